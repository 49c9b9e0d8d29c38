//! A stamp of progress: the second sign of life, for work that has nothing to say in its log.

use reap::exit::{Fail, Status};

use crate::files;
use crate::job::{Job, Trouble};

/// The longest text of a stamp, in bytes.
pub const LONGEST: usize = 4096;

/// Stamps progress, with a short text for people.
pub fn stamp(job: &Job, text: &str) -> Result<(), Fail> {
    if text.len() > LONGEST {
        return Err(Fail::usage("jobdir", format!("the text is longer than {LONGEST} bytes")));
    }
    match job.word() {
        Ok(word) if word.is_terminal() => {
            return Err(Fail::new(Status::Taken, format!("cannot stamp job {}: it has ended ({word})", job.id)));
        }
        Ok(_) => {}
        Err(Trouble::Damaged(why) | Trouble::Unreadable(why)) => {
            return Err(Fail::new(Status::Broken, format!("cannot stamp job {}: {why}", job.id)));
        }
    }
    files::replace(job.fd(), files::PROGRESS, format!("{text}\n").as_bytes(), false)
        .or_else(|_| {
            // A full disk has no room for the text; the time alone needs none.
            let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CREAT;
            let file = files::open(job.fd(), files::PROGRESS, flags)?;
            let now = nix::sys::time::TimeSpec::UTIME_NOW;
            Ok(nix::sys::stat::futimens(file, &now, &now)?)
        })
        .map_err(|e: std::io::Error| Fail::cannot("stamp job", &job.id, &e))
}
