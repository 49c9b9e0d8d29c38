//! The files of a job directory, and how they are opened, read and put in place.
//!
//! Everything is reached from a directory's descriptor: no link is followed, a FIFO cannot block, a reader takes
//! no more than it can use. A file is written whole under a hidden name, then renamed or linked into place.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::id;

/// Written at claim, never changed.
pub const META: &str = "meta.json";
/// The request, stored before the claim returns.
pub const INPUT: &str = "input";
/// One word and a newline.
pub const STATUS: &str = "status";
/// The owner's pid; locked while the owner lives.
pub const PID: &str = "pid";
/// The owner's fingerprint and the delegate's session.
pub const OWNER: &str = "owner.json";
/// The delegate's raw stream.
pub const LOG: &str = "out.log";
/// The last stamp of `jobdir touch`.
pub const PROGRESS: &str = "progress";
/// The delegate's own output.
pub const OUTPUT: &str = "output.json";
/// The delegate's standard output, where it is kept apart as the output.
pub const STDOUT: &str = "stdout";
/// How often a handler was tried.
pub const DELIVERY: &str = "delivery.json";
/// The terminal record.
pub const RESULT: &str = "result.json";
/// The record of an owner that had lost the claim before its end.
pub const LATE: &str = "late.json";
/// Jobs whose result has not been delivered yet.
pub const JOBS: &str = "jobs";
/// Jobs after their acknowledgement.
pub const DELIVERED: &str = "delivered";

/// How hidden names start: a claim in the making.
pub const CLAIMING: &str = ".claim-";
/// How hidden names start: a directory on its way out.
pub const PRUNING: &str = ".prune-";
/// How hidden names start: a file in the making.
pub const MAKING: &str = ".tmp-";

/// The most that is read of a small file of ours; a larger one is damage.
pub const SMALL: u64 = 2 << 20;
/// The most that is read of a record or an output.
pub const LARGE: u64 = 128 << 20;

/// No file of ours is ever writable by others, even under umask 0; the umask takes away more.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// Whether writes must survive a power cut: always, unless `JOBDIR_SYNC=0`.
pub fn durable() -> bool {
    std::env::var_os("JOBDIR_SYNC").is_none_or(|value| value != "0")
}

/// fsync(2) of a file or a directory, where that is asked for.
pub fn sync(fd: impl AsFd) -> io::Result<()> {
    if durable() { flush(fd) } else { Ok(()) }
}

#[cfg(not(target_vendor = "apple"))]
fn flush(fd: impl AsFd) -> io::Result<()> {
    Ok(nix::unistd::fsync(fd)?)
}

/// Its fsync(2) leaves the data to the drive; F_FULLFSYNC of its fcntl(2) does not, where the file system has it.
#[cfg(target_vendor = "apple")]
fn flush(fd: impl AsFd) -> io::Result<()> {
    fcntl(&fd, FcntlArg::F_FULLFSYNC).or_else(|_| nix::unistd::fsync(&fd).map(|()| 0))?;
    Ok(())
}

/// Whether an error says that the file system or the kernel has no such call.
pub fn is_unsupported(error: Errno) -> bool {
    error == Errno::ENOSYS
        || error == Errno::EINVAL
        || error as i32 == libc::EOPNOTSUPP
        || error as i32 == libc::ENOTSUP
}

/// ELOOP, by which POSIX says that a link is not followed, where open(2) of FreeBSD has EMLINK and NetBSD's EFTYPE.
pub fn not_followed(error: Errno) -> Errno {
    match error {
        #[cfg(any(target_os = "freebsd", target_os = "dragonfly"))]
        Errno::EMLINK => Errno::ELOOP,
        #[cfg(target_os = "netbsd")]
        Errno::EFTYPE => Errno::ELOOP,
        error => error,
    }
}

/// Opens a directory below `dir`; a link in its place is an error.
pub fn open_dir<P: ?Sized + NixPath>(dir: BorrowedFd<'_>, name: &P) -> io::Result<OwnedFd> {
    open(dir, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// openat(2) that follows no link and waits for no FIFO.
pub fn open<P: ?Sized + NixPath>(dir: BorrowedFd<'_>, name: &P, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    loop {
        match openat(dir, name, flags, FILE_MODE) {
            Err(Errno::EINTR) => {}
            other => return Ok(other.map_err(not_followed)?),
        }
    }
}

/// Takes back that an open did not wait: whoever gets the descriptor expects nothing of that.
pub fn block(file: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Reads a file below `dir`, at most `bound` bytes; a larger one, or what is no file, is `InvalidData`.
pub fn read(dir: BorrowedFd<'_>, name: &str, bound: u64) -> io::Result<Vec<u8>> {
    let mut file = File::from(open(dir, name, OFlag::O_RDONLY)?);
    let most = usize::try_from(bound).unwrap_or(usize::MAX).saturating_add(1);
    // As much as an allocator still gives and takes for nothing; most files of ours are shorter.
    let mut bytes = vec![0; most.min(1024)];
    let mut length = 0;
    while length < most {
        if length == bytes.len() {
            bytes.resize(most.min(8 * length), 0);
        }
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        // All that we write ends with a line: then nobody needs to be asked whether there is more.
        if length < bytes.len() && bytes[..length].last() == Some(&b'\n') {
            break;
        }
    }
    bytes.truncate(length);
    if length as u64 > bound {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is larger than {bound} bytes")));
    }
    Ok(bytes)
}

/// Whether an error of a read says that the file itself is wrong (missing, a link, a directory, too large),
/// and not that it cannot be read just now.
pub fn is_damage(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(number) => {
            [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EISDIR, libc::ENXIO, libc::EAGAIN].contains(&number)
        }
        None => error.kind() == io::ErrorKind::InvalidData,
    }
}

/// What is known of an entry without opening it; `None` where there is none.
pub fn look(dir: BorrowedFd<'_>, name: &str) -> io::Result<Option<FileStat>> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether an entry is a file.
pub fn is_file(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
}

/// The time of the last change of a file's content, since the epoch.
pub fn changed(stat: &FileStat) -> std::time::Duration {
    #[cfg(not(target_os = "netbsd"))]
    let nanos = stat.st_mtime_nsec;
    #[cfg(target_os = "netbsd")]
    let nanos = stat.st_mtimensec;
    let nanos = u32::try_from(nanos).unwrap_or(0);
    u64::try_from(stat.st_mtime).map_or(std::time::Duration::ZERO, |s| std::time::Duration::new(s, nanos))
}

/// A hidden name that nobody else uses.
pub fn hidden(kind: &str) -> io::Result<String> {
    Ok(format!("{kind}{}", id::random(6)?))
}

/// Creates a file that must not exist yet, and writes all of it.
pub fn create(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(open(dir, name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Puts a file in place of another one, whole; what was there stays until then. The caller syncs the
/// directory where that matters.
pub fn replace(dir: BorrowedFd<'_>, name: &str, bytes: &[u8], durable: bool) -> io::Result<()> {
    let hidden = hidden(MAKING)?;
    let mut file = File::from(open(dir, hidden.as_str(), OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?);
    let written = file
        .write_all(bytes)
        .and_then(|()| if durable { sync(&file) } else { Ok(()) })
        .and_then(|()| Ok(renameat(dir, hidden.as_str(), dir, name)?));
    written.inspect_err(|_| drop(remove(dir, hidden.as_str())))
}

/// Removes a file; that it is not there is success.
pub fn remove<P: ?Sized + NixPath>(dir: BorrowedFd<'_>, name: &P) -> io::Result<()> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Tries to take a lock for at most `patience`; `None`: somebody else has it. A lock that is freed gives no event, and
/// a blocking flock(2) has no time limit, so it is tried again every few milliseconds.
pub fn lock_within(
    patience: std::time::Duration,
    mut attempt: impl FnMut() -> io::Result<()>,
) -> io::Result<Option<()>> {
    let deadline = std::time::Instant::now() + patience;
    loop {
        match attempt() {
            Ok(()) => return Ok(Some(())),
            Err(e) if !is_contended(&e) => return Err(e),
            Err(_) if std::time::Instant::now() >= deadline => return Ok(None),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

/// Whether a lock was refused because somebody else has it.
pub fn is_contended(error: &io::Error) -> bool {
    error.raw_os_error() == fs2::lock_contended_error().raw_os_error()
}

/// The names in a directory, as far as they are text.
pub fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    // A descriptor of its own: reading moves the position, which duplicates share.
    let mut listing = nix::dir::Dir::from_fd(open_dir(dir, ".")?)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        if let Ok(name) = entry?.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes a directory with all that is in it, following no link.
pub fn remove_tree<P: ?Sized + NixPath>(dir: BorrowedFd<'_>, name: &P) -> io::Result<()> {
    let inner = match open_dir(dir, name) {
        Ok(inner) => inner,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A file, or a link: what stands in the way of anything else is told as it is.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => return remove(dir, name),
        Err(e) => return Err(e),
    };
    let mut listing = nix::dir::Dir::from_fd(open_dir(inner.as_fd(), ".")?)?;
    for entry in listing.iter() {
        let entry = entry?;
        let child = entry.file_name();
        if child == c"." || child == c".." {
            continue;
        }
        match unlinkat(inner.as_fd(), child, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR | Errno::EPERM) => {
                remove_tree(inner.as_fd(), child)?;
            }
            Err(e) => return Err(e.into()),
        }
    }
    match unlinkat(dir, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
