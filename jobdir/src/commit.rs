//! Commits the one terminal record, and the view that follows it.
//!
//! The order is fixed, and each step was found to lose or contradict something when left out: a file of its own in
//! the job's directory, fsync, link(2), which fails if a record exists, fsync of the directory, and only then the
//! word in `status`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::unistd::linkat;

use crate::files;
use crate::job::{Job, Trouble};
use crate::meta::Meta;
use crate::output;
use crate::owner::Owner;
use crate::record::End;
use crate::root::rename_exclusive;
use crate::word::Word;

/// Whose record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Ours.
    Won,
    /// Another one was first, and stays.
    Lost,
}

/// Room for the record and the view, taken while there is some: a full disk cannot hide the end.
#[derive(Debug, Default)]
pub struct Reserve {
    record: Option<Made>,
    view: Option<Made>,
}

/// A file under a hidden name.
#[derive(Debug)]
struct Made {
    name: String,
    file: File,
    room: u64,
}

impl Made {
    fn new(job: &Job) -> io::Result<Made> {
        let name = files::hidden(files::MAKING)?;
        let file = File::from(files::open(job.fd(), name.as_str(), OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?);
        Ok(Made { name, file, room: 0 })
    }

    fn with_room(job: &Job, bytes: u64) -> io::Result<Made> {
        let made = Made::new(job)?;
        let room = take_room(&made.file, bytes);
        room.inspect_err(|_| made.discard(job))?;
        Ok(Made { room: bytes, ..made })
    }

    fn fill(&self, text: &[u8], durable: bool) -> io::Result<()> {
        self.file.write_all_at(text, 0)?;
        self.file.set_len(text.len() as u64)?;
        if durable { files::sync(&self.file) } else { Ok(()) }
    }

    fn discard(&self, job: &Job) {
        // What stays behind is found by prune.
        let _ = files::remove(job.fd(), self.name.as_str());
    }
}

#[cfg(all(target_os = "linux", not(portable)))]
fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    // Not fs2's allocate: it reads an errno that posix_fallocate(3) does not set.
    let length = i64::try_from(bytes).map_err(|_| Errno::EFBIG)?;
    Ok(nix::fcntl::posix_fallocate(file, 0, length)?)
}

/// Where nobody promises room, what is written has it, but on file systems that never overwrite.
#[cfg(not(all(target_os = "linux", not(portable))))]
fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    file.write_all_at(&vec![0; usize::try_from(bytes).map_err(|_| Errno::EFBIG)?], 0)
}

impl Reserve {
    /// Takes room for a record of `bytes` and for the view.
    pub fn take(job: &Job, bytes: u64) -> io::Result<Reserve> {
        let record = Made::with_room(job, bytes)?;
        let view = Made::with_room(job, 64).inspect_err(|_| record.discard(job))?;
        Ok(Reserve { record: Some(record), view: Some(view) })
    }

    /// Gives the room back.
    pub fn discard(&mut self, job: &Job) {
        for made in self.record.take().iter().chain(&self.view.take()) {
            made.discard(job);
        }
    }
}

/// Records an end that nobody watched: adds the log's size and whatever output was published, and commits. From here
/// on a publication would come too late to stand in the record.
pub fn conclude(job: &Job, meta: &Meta, owner: Option<&Owner>, mut end: End) -> io::Result<Outcome> {
    let _closed = output::close(job);
    end.log_bytes = job.log_bytes()?;
    end.progress_at = job.last_sign()?;
    end.output = match output::published(job, output::GREATEST_LIMIT) {
        Err(Trouble::Damaged(why)) => {
            end.warnings.push(format!("the output is not valid: {why}"));
            None
        }
        output => output?,
    };
    commit(job, &end.to_json(&job.id, meta, owner), end.word, &mut Reserve::default())
}

/// Commits `text` as the record of the job, and `word` as its view. An error means that nothing is committed:
/// the same call may succeed later. The view is not worth an error: any reader completes it.
pub fn commit(job: &Job, text: &str, word: Word, reserve: &mut Reserve) -> io::Result<Outcome> {
    let text = format!("{text}\n");
    // A text that is too long for the room must not waste it: the caller may come back with a shorter one.
    let outcome = match reserve.record.take_if(|made| text.len() as u64 <= made.room) {
        Some(made) => put(job, made, text.as_bytes()),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    // After a failed fsync the pages of that file may count as clean: only a new file can be trusted.
    let outcome = outcome.or_else(|_| put(job, Made::new(job)?, text.as_bytes()))?;
    // Without the directory on the disk the view must not say more than it: then it is left to a reader, who
    // syncs first.
    if outcome == Outcome::Won && files::sync(&job.dir).is_ok() {
        let shown = reserve.view.take().is_some_and(|made| {
            let shown = show(job, &made, word);
            shown.inspect_err(|_| made.discard(job)).is_ok()
        });
        if !shown {
            let _ = set_view(job, word);
        }
    }
    reserve.discard(job);
    Ok(outcome)
}

fn put(job: &Job, made: Made, text: &[u8]) -> io::Result<Outcome> {
    let linked = made.fill(text, true).and_then(|()| link(job, &made));
    made.discard(job);
    linked
}

fn link(job: &Job, made: &Made) -> io::Result<Outcome> {
    match linkat(job.fd(), made.name.as_str(), job.fd(), files::RESULT, AtFlags::empty()) {
        // NFS may lose the reply to a link that was made, and a job may play with the names in its directory: what
        // counts is whether our own file stands there.
        linked @ (Ok(()) | Err(Errno::EEXIST)) => {
            let stands = nix::sys::stat::fstat(&made.file).map_err(io::Error::from).and_then(|ours| {
                let stands = files::look(job.fd(), files::RESULT)?;
                Ok(stands.is_some_and(|stands| (stands.st_dev, stands.st_ino) == (ours.st_dev, ours.st_ino)))
            });
            match (stands, linked) {
                (Ok(true), _) => Ok(Outcome::Won),
                (Ok(false), _) => Ok(Outcome::Lost),
                // Made is made, even where it cannot be looked at just now.
                (Err(_), Ok(())) => Ok(Outcome::Won),
                (Err(e), Err(_)) => Err(e),
            }
        }
        // Where there are no links, or no room for a second name (tmpfs counts it as an inode), the first one is moved.
        Err(refused @ (Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENOSPC | Errno::EDQUOT)) => {
            match rename_exclusive(job.fd(), &made.name, job.fd(), files::RESULT) {
                Ok(()) => Ok(Outcome::Won),
                Err(Errno::EEXIST) => Ok(Outcome::Lost),
                Err(_) => Err(refused.into()),
            }
        }
        Err(e) => Err(e.into()),
    }
}

fn show(job: &Job, made: &Made, word: Word) -> io::Result<()> {
    made.fill(format!("{word}\n").as_bytes(), false)?;
    Ok(renameat(job.fd(), made.name.as_str(), job.fd(), files::STATUS)?)
}

/// Sets the view. It is allowed to be lost: the record tells it again.
pub fn set_view(job: &Job, word: Word) -> io::Result<()> {
    files::replace(job.fd(), files::STATUS, format!("{word}\n").as_bytes(), false)
}

/// Completes the view of a record that was found beside a word that is not terminal: its writer died in between, so
/// the directory may not be on the disk yet, and must be before anybody acts on what it holds.
pub fn complete_view(job: &Job, word: Word) -> io::Result<()> {
    files::sync(&job.dir)?;
    // A file system that takes no writes any more still lets its jobs be read.
    let _ = set_view(job, word);
    Ok(())
}
