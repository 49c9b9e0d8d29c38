//! One job's directory, opened once, and what is read from it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::files;
use crate::meta::Meta;
use crate::owner::Owner;
use crate::record::Record;
use crate::word::Word;

/// A job, by the descriptor of its directory: its name may come to stand for another one.
#[derive(Debug)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// The directory.
    pub dir: OwnedFd,
    /// Where it was found; an acknowledgement moves it.
    pub path: PathBuf,
    /// Whether it was found in delivered/.
    pub delivered: bool,
}

/// Why a file of a job gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is wrong, and will stay so: what is wrong with it.
    Damaged(String),
    /// It cannot be read now; that proves nothing.
    Unreadable(String),
}

impl Trouble {
    fn of(name: &str, error: &io::Error) -> Trouble {
        let text = format!("cannot read {name}: {}", reap::exit::reason(error));
        if files::is_damage(error) { Trouble::Damaged(text) } else { Trouble::Unreadable(text) }
    }

    /// What is wrong.
    pub fn text(&self) -> &str {
        let (Trouble::Damaged(text) | Trouble::Unreadable(text)) = self;
        text
    }
}

impl Job {
    /// The directory, to reach its files from.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether it is a directory of somebody else's: it has none of the files that every job has.
    pub fn is_foreign(&self) -> bool {
        [files::STATUS, files::META, files::RESULT].iter().all(|name| matches!(files::look(self.fd(), name), Ok(None)))
    }

    /// The word in `status`, not settled.
    pub fn word(&self) -> Result<Word, Trouble> {
        let file = files::read(self.fd(), files::STATUS, 64).map_err(|e| Trouble::of(files::STATUS, &e))?;
        Word::read(&file).ok_or_else(|| {
            let found = reap::exit::printable(&String::from_utf8_lossy(&file));
            Trouble::Damaged(format!("its status is '{found}'"))
        })
    }

    /// What was fixed at the claim.
    pub fn meta(&self) -> Result<Meta, Trouble> {
        let file = files::read(self.fd(), files::META, files::SMALL).map_err(|e| Trouble::of(files::META, &e))?;
        Meta::read(&file, &self.id).map_err(|why| Trouble::Damaged(format!("cannot use {}: {why}", files::META)))
    }

    /// The terminal record; `None` where there is none yet.
    pub fn record(&self) -> Result<Option<Record>, Trouble> {
        let file = match files::read(self.fd(), files::RESULT, files::LARGE) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Trouble::of(files::RESULT, &e)),
        };
        let damaged = |why: String| Trouble::Damaged(format!("cannot use {}: {why}", files::RESULT));
        Record::read(file, &self.id).map(Some).map_err(damaged)
    }

    /// The owner's fingerprint; `None` where it cannot be read.
    pub fn owner(&self) -> Option<Owner> {
        Owner::read(&files::read(self.fd(), files::OWNER, files::SMALL).ok()?)
    }

    /// The owner's pid as it stands in `pid`; `None` where the file is empty or no number.
    pub fn pid(&self) -> io::Result<Option<i32>> {
        let file = files::read(self.fd(), files::PID, 64)?;
        // What is no number was written by nobody of ours; it still says that somebody was here.
        let number = std::str::from_utf8(&file).ok().and_then(|text| text.trim_ascii().parse().ok());
        Ok(if file.trim_ascii().is_empty() { None } else { Some(number.unwrap_or(-1)) })
    }

    /// When the log or a progress stamp last changed, by the wall clock; `None` where nothing was ever said.
    pub fn last_sign(&self) -> Option<Duration> {
        let look = |name| files::look(self.fd(), name).ok().flatten().filter(files::is_file);
        // The claim made the log, empty: that was no sign.
        let log = look(files::LOG).filter(|stat| stat.st_size > 0);
        log.iter().chain(&look(files::PROGRESS)).map(files::changed).max()
    }

    /// The log's size.
    pub fn log_bytes(&self) -> Option<u64> {
        u64::try_from(files::look(self.fd(), files::LOG).ok()??.st_size).ok()
    }

    /// The text of the last progress stamp.
    pub fn progress(&self) -> Option<String> {
        let file = files::read(self.fd(), files::PROGRESS, files::SMALL).ok()?;
        Some(String::from_utf8_lossy(&file).trim_end().to_owned()).filter(|text| !text.is_empty())
    }
}
