//! The job root: found, judged safe, and opened once; everything inside is reached from its descriptors.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use fs2::FileExt;
use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{geteuid, mkdir};
use reap::exit::{Fail, Status};

use crate::files;
use crate::id;
use crate::job::Job;

/// How a directory is opened that we may not be allowed to read; elsewhere that one is passed over.
#[cfg(all(target_os = "linux", not(portable)))]
const PLACE: OFlag = OFlag::O_PATH;
#[cfg(not(all(target_os = "linux", not(portable))))]
const PLACE: OFlag = OFlag::O_DIRECTORY;

/// A job root that is safely ours.
#[derive(Debug)]
pub struct Root {
    /// Its absolute path, for people and for `JOB_DIR`.
    pub path: PathBuf,
    /// `jobs/`.
    pub jobs: OwnedFd,
    dir: OwnedFd,
    /// `delivered/`, opened at the first acknowledgement, and locked for each rename.
    archive: OnceCell<File>,
}

/// The root that is meant: `--root`, else `$JOBDIR_ROOT`, else the state directory of the user.
pub fn chosen(option: Option<PathBuf>) -> Result<PathBuf, Fail> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if option.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        return Err(Fail::new(Status::Usage, "cannot use job root '': the path is empty"));
    }
    option
        .or_else(|| set("JOBDIR_ROOT"))
        // By its specification a relative one does not count.
        .or_else(|| set("XDG_STATE_HOME").filter(|state| state.is_absolute()).map(|state| state.join("jobdir")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/jobdir")))
        .ok_or_else(|| {
            Fail::new(Status::Usage, "cannot choose a job root: neither --root nor JOBDIR_ROOT nor HOME is given")
        })
}

impl Root {
    /// Opens a root; `None` where there is none yet. One that is not safely ours is refused before anything
    /// in it is read: it is not owned by the effective user, others may write to it, it is a link, or somebody else
    /// may rename one of its ancestors.
    pub fn open(path: &Path) -> Result<Option<Root>, Fail> {
        let path = absolute(path)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = match open(&path, flags, Mode::empty()).map_err(files::not_followed) {
            Ok(dir) => dir,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP | Errno::ENOTDIR) if path.is_symlink() => {
                return Err(refused(&path, "it is a symbolic link"));
            }
            Err(Errno::EACCES) => return Err(refused(&path, "permission denied")),
            Err(e) => return Err(Fail::cannot("open job root", path.display(), &e.into())),
        };
        judge(&path, dir.as_fd())?;
        let jobs = match files::open_dir(dir.as_fd(), files::JOBS) {
            Ok(jobs) => jobs,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Fail::cannot("open", path.join(files::JOBS).display(), &e)),
        };
        Ok(Some(Root { path, jobs, dir, archive: OnceCell::new() }))
    }

    /// Opens a root, and makes it first where there is none: mode 0700.
    pub fn create(path: &Path) -> Result<Root, Fail> {
        if let Some(root) = Root::open(path)? {
            root.delivered_made()?;
            return Ok(root);
        }
        let path = absolute(path)?;
        let cannot = |e: &io::Error| Fail::cannot("make job root", path.display(), e);
        // Judged before anything is made: a refused root leaves nothing behind.
        let place =
            path.ancestors().skip(1).find_map(|above| open(above, PLACE | OFlag::O_CLOEXEC, Mode::empty()).ok());
        if let Some(place) = place {
            judge_ancestors(&path, place.as_fd(), ".")?;
        }
        make_with_parents(&path, 0o700).map_err(|e| cannot(&e.into()))?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Judged before anything is made in it: somebody else may have been there first.
        let dir = open(&path, flags, Mode::empty()).map_err(|e| cannot(&e.into()))?;
        judge(&path, dir.as_fd())?;
        make(dir.as_fd(), files::JOBS).map_err(|e| cannot(&e))?;
        let root = Root::open(&path)?.ok_or_else(|| cannot(&io::ErrorKind::NotFound.into()))?;
        root.delivered_made()?;
        let parent = path.parent().map(std::fs::File::open).transpose().map_err(|e| cannot(&e))?;
        parent.iter().try_for_each(files::sync).map_err(|e| cannot(&e))?;
        Ok(root)
    }

    /// `delivered/`; `None` where nothing was ever delivered.
    pub fn delivered(&self) -> io::Result<Option<OwnedFd>> {
        match files::open_dir(self.dir.as_fd(), files::DELIVERED) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// `delivered/`, made where there is none.
    pub fn delivered_made(&self) -> Result<OwnedFd, Fail> {
        let made = || match self.delivered()? {
            Some(dir) => Ok(dir),
            None => {
                make(self.dir.as_fd(), files::DELIVERED)?;
                files::sync(&self.dir)?;
                files::open_dir(self.dir.as_fd(), files::DELIVERED)
            }
        };
        made().map_err(|e| Fail::cannot("make", self.path.join(files::DELIVERED).display(), &e))
    }

    /// A job by its id: in jobs/, else in delivered/; `None` where there is none. What is no directory is no job.
    pub fn job(&self, id: &str) -> io::Result<Option<Job>> {
        if !id::is_valid(id) {
            return Ok(None);
        }
        if let Some(job) = self.pending(id)? {
            return Ok(Some(job));
        }
        // An acknowledgement may move it between the two looks, in this direction alone.
        match self.delivered()? {
            Some(delivered) => self.archived(delivered.as_fd(), id),
            None => Ok(None),
        }
    }

    /// A job in jobs/ by its id.
    pub fn pending(&self, id: &str) -> io::Result<Option<Job>> {
        self.job_in(self.jobs.as_fd(), files::JOBS, id)
    }

    /// A delivered job by its id.
    pub fn archived(&self, delivered: BorrowedFd<'_>, id: &str) -> io::Result<Option<Job>> {
        self.job_in(delivered, files::DELIVERED, id)
    }

    /// A job in one of the two places.
    pub fn job_in(&self, dir: BorrowedFd<'_>, place: &'static str, id: &str) -> io::Result<Option<Job>> {
        let path = || self.path.join(place).join(id);
        let job = |dir| Job { id: id.to_owned(), dir, path: path(), delivered: place == files::DELIVERED };
        Ok(found(files::open_dir(dir, id))?.map(job))
    }

    /// The ids in jobs/, sorted: minted ones by the time of their claim.
    pub fn ids(&self) -> io::Result<Vec<String>> {
        ids(self.jobs.as_fd())
    }

    /// Whether a job that was opened here still goes by its name, here or after its delivery.
    pub fn holds(&self, job: &Job) -> io::Result<bool> {
        let named = self.job(&job.id)?;
        let same = named.map(|named| Ok::<_, Errno>(identity(&fstat(&named.dir)?) == identity(&fstat(&job.dir)?)));
        Ok(same.transpose()?.unwrap_or(false))
    }

    /// Moves a job that was opened here to delivered/. Says whether it moved: its name may stand for another claim.
    pub fn acknowledge(&self, job: &Job) -> io::Result<bool> {
        if self.archive.get().is_none() {
            let made = self.delivered_made().map_err(|fail| io::Error::other(fail.text))?;
            let _ = self.archive.set(made.into());
        }
        let archive = self.archive.get().ok_or(Errno::EBADF)?;
        move_job(job, self.jobs.as_fd(), (archive.as_fd(), &job.id), archive)
    }
}

/// Renames a job's directory in `from`, unless its name stands for another one by now; says whether it did. An
/// exclusive lock on `delivered` keeps a claim of the same id from looking in the two places in between.
pub fn move_job(
    job: &Job,
    from: BorrowedFd<'_>,
    (to, name): (BorrowedFd<'_>, &str),
    delivered: &File,
) -> io::Result<bool> {
    let ours = fstat(&job.dir)?;
    FileExt::lock_exclusive(delivered)?;
    let moved = files::look(from, &job.id).and_then(|named| match named {
        Some(named) if identity(&named) == identity(&ours) => rename_new(from, &job.id, to, name).map(|()| true),
        _ => Ok(false),
    });
    // Freed for a descriptor that stays open; a close frees it in any case.
    let _ = FileExt::unlock(delivered);
    moved
}

/// Removes a job's directory in `from`, under a hidden name first, so that nobody finds half of it; says whether it did,
/// as [`move_job`] does.
pub fn remove_job(job: &Job, from: BorrowedFd<'_>, delivered: BorrowedFd<'_>) -> io::Result<bool> {
    let hidden = files::hidden(files::PRUNING)?;
    // An open of its own: a lock belongs to the open file description.
    let lock = File::from(files::open_dir(delivered, ".")?);
    if !move_job(job, from, (from, &hidden), &lock)? {
        return Ok(false);
    }
    files::remove_tree(from, hidden.as_str()).map(|()| true)
}

/// The valid ids among the names of a directory, sorted.
pub fn ids(dir: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut ids = files::names(dir)?;
    ids.retain(|name| id::is_valid(name));
    ids.sort_unstable();
    Ok(ids)
}

/// A rename that refuses to replace: renameat2(2), which nix and musl do not have, and renameatx_np(2) of macOS
/// (rename(2) there). ENOSYS elsewhere.
pub fn rename_exclusive(from: BorrowedFd<'_>, old: &str, to: BorrowedFd<'_>, new: &str) -> nix::Result<()> {
    #[cfg(all(target_os = "linux", not(portable)))]
    let rename = |from: i32, old: *const libc::c_char, to: i32, new: *const libc::c_char| {
        // SAFETY: two descriptors that are open, two NUL-terminated paths, and a number.
        unsafe { libc::syscall(libc::SYS_renameat2, from, old, to, new, libc::RENAME_NOREPLACE) }
    };
    #[cfg(target_vendor = "apple")]
    let rename = |from: i32, old: *const libc::c_char, to: i32, new: *const libc::c_char| {
        // SAFETY: as above.
        unsafe { libc::renameatx_np(from, old, to, new, libc::RENAME_EXCL) }
    };
    #[cfg(not(any(target_vendor = "apple", all(target_os = "linux", not(portable)))))]
    let rename = |_: i32, _: *const libc::c_char, _: i32, _: *const libc::c_char| {
        Errno::ENOSYS.set();
        -1
    };
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    let renamed = old.with_nix_path(|old| new.with_nix_path(|new| rename(from, old.as_ptr(), to, new.as_ptr())))??;
    Errno::result(renamed).map(drop)
}

/// A rename that refuses to replace. Where the file system cannot say so (EINVAL), an existing name is
/// looked for first, and rename(2) itself refuses to replace a directory that is not empty.
pub fn rename_new(from: BorrowedFd<'_>, old: &str, to: BorrowedFd<'_>, new: &str) -> io::Result<()> {
    match rename_exclusive(from, old, to, new) {
        Err(e) if files::is_unsupported(e) => {
            if files::look(to, new)?.is_some() {
                return Err(Errno::EEXIST.into());
            }
            match nix::fcntl::renameat(from, old, to, new) {
                Err(Errno::ENOTEMPTY | Errno::ENOTDIR) => Err(Errno::EEXIST.into()),
                other => Ok(other?),
            }
        }
        other => Ok(other?),
    }
}

/// A directory that may be missing. A file or a link in its place is foreign, and no job.
fn found(opened: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(dir) => Ok(Some(dir)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn make(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match mkdirat(dir, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Makes a directory; those above it that are missing get mode 0755. What is there already is for the caller to judge.
fn make_with_parents(path: &Path, mode: libc::mode_t) -> Result<(), Errno> {
    let make = || match mkdir(path, Mode::from_bits_truncate(mode)) {
        Err(Errno::EEXIST) => Ok(()),
        made => made,
    };
    match (make(), path.parent()) {
        (Err(Errno::ENOENT), Some(parent)) => make_with_parents(parent, 0o755).and_then(|()| make()),
        (made, _) => made,
    }
}

/// The path with every component but the last as it was given; `..` and links in between are the caller's.
fn absolute(path: &Path) -> Result<PathBuf, Fail> {
    // A trailing slash would make open(2) follow a link in spite of O_NOFOLLOW; components have none.
    std::path::absolute(path)
        .map(|path| path.components().collect())
        .map_err(|e| Fail::cannot("find job root", path.display(), &e))
}

fn refused(path: &Path, why: &str) -> Fail {
    Fail::new(Status::Refused, format!("cannot use job root {}: {why}", path.display()))
}

fn judge(path: &Path, dir: BorrowedFd<'_>) -> Result<(), Fail> {
    let cannot = |e: Errno| Fail::cannot("look at job root", path.display(), &e.into());
    let root = fstat(dir).map_err(cannot)?;
    if root.st_uid != geteuid().as_raw() {
        return Err(refused(path, &format!("it belongs to user {}, not to us", root.st_uid)));
    }
    if root.st_mode & 0o022 != 0 {
        return Err(refused(path, "group or others may write to it"));
    }
    judge_ancestors(path, dir, "..")
}

/// The real ancestors, from the descriptor up: whatever links the path went through, these hold the root.
fn judge_ancestors(path: &Path, dir: BorrowedFd<'_>, first: &str) -> Result<(), Fail> {
    let mut up = String::from(first);
    let mut below = None;
    loop {
        let ancestor = fstatat(dir, up.as_str(), AtFlags::empty())
            .map_err(|e| Fail::cannot("look at job root", path.display(), &e.into()))?;
        if Some(identity(&ancestor)) == below {
            return Ok(());
        }
        if ancestor.st_mode & 0o002 != 0 && ancestor.st_mode & libc::S_ISVTX == 0 {
            return Err(refused(path, "anybody may write to a directory above it that has no sticky bit"));
        }
        below = Some(identity(&ancestor));
        up.push_str("/..");
    }
}

fn identity(stat: &FileStat) -> (libc::dev_t, libc::ino_t) {
    (stat.st_dev, stat.st_ino)
}

/// What a JOB on a command line names: an id, or a path `ROOT/jobs/ID` (or `delivered/`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The root that a path names; `None`: the chosen one.
    pub root: Option<PathBuf>,
    /// The id.
    pub id: String,
}

impl Named {
    /// Reads a JOB. A word with a `/` is a path.
    pub fn parse(word: &OsStr) -> Result<Named, Fail> {
        let no_job = || Fail::new(Status::NoJob, format!("cannot open job '{}': no such job", word.display()));
        if !word.as_encoded_bytes().contains(&b'/') {
            let id = word.to_str().filter(|id| id::is_valid(id)).ok_or_else(no_job)?;
            return Ok(Named { root: None, id: id.to_owned() });
        }
        let path = std::path::absolute(word).map_err(|e| Fail::cannot("find", word.display(), &e))?;
        let mut components = path.components().rev();
        let (Some(Component::Normal(id)), Some(Component::Normal(place))) = (components.next(), components.next())
        else {
            return Err(no_job());
        };
        let id = id.to_str().filter(|id| id::is_valid(id)).ok_or_else(no_job)?;
        if place != files::JOBS && place != files::DELIVERED {
            return Err(no_job());
        }
        Ok(Named { root: Some(components.rev().collect()), id: id.to_owned() })
    }

    /// Opens the job; no such job is a failure of its own kind.
    pub fn open(&self, option: Option<&Path>) -> Result<(Root, Job), Fail> {
        let path = match &self.root {
            Some(root) => root.clone(),
            None => chosen(option.map(Path::to_path_buf))?,
        };
        let no_job =
            || Fail::new(Status::NoJob, format!("cannot open job {}: no such job in {}", self.id, path.display()));
        let root = Root::open(&path)?.ok_or_else(no_job)?;
        let job = root.job(&self.id).map_err(|e| Fail::cannot("open job", &self.id, &e))?;
        let job = job.filter(|job| !job.is_foreign()).ok_or_else(no_job)?;
        Ok((root, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_an_id_or_a_path_below_a_root() {
        let named = |word: &str| Named::parse(OsStr::new(word)).ok();
        assert_eq!(named("a-1"), Some(Named { root: None, id: "a-1".into() }));
        let there = Some(Named { root: Some("/r".into()), id: "a-1".into() });
        assert_eq!(named("/r/jobs/a-1"), there);
        assert_eq!(named("/r/jobs/a-1/"), there);
        assert_eq!(named("/r/delivered/a-1"), there);
        for word in ["", "-rf", "../x", "/", "/jobs", "/r/other/a", "/r/jobs/..", "/r/jobs/.hidden", "a\nb"] {
            assert_eq!(named(word), None, "{word:?}");
        }
    }
}
