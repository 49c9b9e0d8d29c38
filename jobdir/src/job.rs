//! One job's directory, opened once, and what is read from it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::FileStat;

use crate::files;
use crate::json;
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
    /// That of a file.
    pub fn of(name: &str, error: &io::Error) -> Trouble {
        let text = format!("cannot read {name}: {}", reap::exit::reason(error));
        if files::is_damage(error) { Trouble::Damaged(text) } else { Trouble::Unreadable(text) }
    }

    /// What is wrong.
    pub fn text(&self) -> &str {
        let (Trouble::Damaged(text) | Trouble::Unreadable(text)) = self;
        text
    }
}

/// What could be read; `None` of what is damaged.
pub fn undamaged<T>(read: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
    match read {
        Err(Trouble::Damaged(_)) => Ok(None),
        read => read.map(Some),
    }
}

impl From<Trouble> for io::Error {
    fn from(trouble: Trouble) -> io::Error {
        io::Error::other(trouble.text().to_owned())
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

    /// The token of its claim alone, for whoever needs nothing else of meta.json; `None` where that is damaged.
    pub fn token(&self) -> Result<Option<String>, Trouble> {
        let file = files::read(self.fd(), files::META, files::SMALL).map_err(|e| Trouble::of(files::META, &e));
        let text = undamaged(file)?.and_then(|file| String::from_utf8(file).ok());
        Ok(text.and_then(|text| json::text(&json::fields(&text).ok()?, "claim")))
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

    /// The owner's fingerprint; `None` where there is none, or half of one.
    pub fn owner(&self) -> Result<Option<Owner>, Trouble> {
        let file = files::read(self.fd(), files::OWNER, files::SMALL).map_err(|e| Trouble::of(files::OWNER, &e));
        Ok(undamaged(file)?.and_then(|file| Owner::read(&file)))
    }

    /// Whether somebody has signed `pid`. What is no number was written by nobody of ours; it still says that somebody
    /// was here.
    pub fn is_signed(&self) -> Result<bool, Trouble> {
        match files::read(self.fd(), files::PID, 64) {
            Ok(file) => Ok(!file.trim_ascii().is_empty()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(true),
            Err(e) => Err(Trouble::Unreadable(format!("cannot read {}: {}", files::PID, reap::exit::reason(&e)))),
        }
    }

    /// When the log or a progress stamp last changed, by the wall clock; `None` where nothing was ever said.
    pub fn last_sign(&self) -> Result<Option<Duration>, Trouble> {
        // The claim made the log, empty: that was no sign.
        let log = self.look(files::LOG)?.filter(|stat| stat.st_size > 0);
        Ok([log, self.look(files::PROGRESS)?].iter().flatten().filter(|s| files::is_file(s)).map(files::changed).max())
    }

    /// The log's size.
    pub fn log_bytes(&self) -> Result<Option<u64>, Trouble> {
        Ok(self.look(files::LOG)?.and_then(|stat| u64::try_from(stat.st_size).ok()))
    }

    /// The last bytes of the log, at most `most`; empty where it is no file or cannot be read.
    pub fn log_tail(&self, most: u64) -> Vec<u8> {
        let tail = || {
            let file = File::from(files::open(self.fd(), files::LOG, OFlag::O_RDONLY)?);
            let size = file.metadata()?.len();
            let mut bytes = vec![0; usize::try_from(size.min(most)).unwrap_or(0)];
            let read = file.read_at(&mut bytes, size.saturating_sub(most))?;
            bytes.truncate(read);
            Ok::<_, io::Error>(bytes)
        };
        tail().unwrap_or_default()
    }

    fn look(&self, name: &str) -> Result<Option<FileStat>, Trouble> {
        let why = |e: io::Error| Trouble::Unreadable(format!("cannot look at {name}: {}", reap::exit::reason(&e)));
        files::look(self.fd(), name).map_err(why)
    }

    /// The text of the last progress stamp.
    pub fn progress(&self) -> Option<String> {
        let file = files::read(self.fd(), files::PROGRESS, files::SMALL).ok()?;
        Some(String::from_utf8_lossy(&file).trim_end().to_owned()).filter(|text| !text.is_empty())
    }
}
