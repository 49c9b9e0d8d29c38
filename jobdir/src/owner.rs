//! Who owns a job, and whether that owner lives.
//!
//! The owner holds an exclusive flock(2) on `pid` until it ends, and the kernel drops it then: no reused number,
//! zombie or other pid namespace can fool anyone. Others probe with a *shared* lock, since exclusive probes
//! would take each other for the owner. owner.json is the second witness, for file systems without locks.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use fs2::FileExt;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use reap::process::{self, Pin, Proc};
use reap::{LINUX, duration, here, ps};

use crate::files;
use crate::job::{Job, Trouble};
use crate::json::{self, Fields, Object};
use crate::meta::{Origin, Relation};
use crate::moment;

/// The signal that asks an owner whether it is well; ignored by default, so that a stranger would feel nothing.
pub const ASK: i32 = libc::SIGURG;

/// The exclusive lock on `pid`: held, its holder owns the job or is settling it.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Tries to take it, for at most `patience`: a probe may be in the way for a moment. `None`: somebody has it.
    pub fn take(job: &Job, patience: Duration) -> io::Result<Option<Lock>> {
        let file = File::from(files::open(job.fd(), files::PID, OFlag::O_RDWR | OFlag::O_CREAT)?);
        let taken = files::lock_within(patience, || match FileExt::try_lock_exclusive(&file) {
            // Where there are no locks, owner.json is the only witness.
            Err(e) if lacks_locks(&e) => Ok(()),
            tried => tried,
        })?;
        Ok(taken.map(|()| Lock(file)))
    }

    /// Writes the owner's number.
    pub fn sign(&self) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let text = format!("{}\n", process::own_pid());
        self.0.write_all_at(text.as_bytes(), 0)?;
        self.0.set_len(text.len() as u64)
    }

    /// Answers whoever asks: the file gets a time that it never had. The coarse clock of the kernel
    /// would give two answers within one tick the same.
    pub fn answer(&self) -> io::Result<()> {
        let now = nix::sys::time::TimeSpec::from(here::wall());
        Ok(nix::sys::stat::futimens(self.0.as_fd(), &now, &now)?)
    }
}

/// Whether the file system has no locks at all.
fn lacks_locks(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    number.is_some_and(|e| e == Errno::ENOLCK || files::is_unsupported(e))
}

/// What a probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody owns the job, or is settling it.
    Free,
    /// Somebody does.
    Held,
    /// That cannot be told from here, which proves nothing.
    Unclear,
}

/// Whether the job has a living owner.
pub fn probe(job: &Job, owner: Option<&Owner>, here: &Origin) -> Result<Hold, Trouble> {
    let opened = files::open(job.fd(), files::PID, OFlag::O_RDONLY);
    match opened.map(File::from).and_then(|file| FileExt::try_lock_shared(&file)) {
        Ok(()) => Ok(Hold::Free),
        Err(e) if files::is_contended(&e) => Ok(Hold::Held),
        Err(e) if lacks_locks(&e) || files::is_damage(&e) => {
            Ok(owner.map_or(Hold::Unclear, |owner| owner.witness(here)))
        }
        Err(e) => Err(Trouble::Unreadable(format!("cannot probe {}: {}", files::PID, reap::exit::reason(&e)))),
    }
}

/// The owner's fingerprint.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The process.
    pub proc: Proc,
    /// Its machine and boot, and the pid namespace that its number belongs to.
    pub origin: Origin,
    /// How long the host had slept when it started.
    pub slept: Duration,
    /// When it started the job, by the wall clock.
    pub started_at: Duration,
    /// When, on the monotonic clock of that boot.
    pub started_monotonic: Duration,
    /// The command, as a JSON array of strings.
    pub command: String,
    /// The delegate's session, by its leader.
    pub session: Option<Proc>,
}

impl Owner {
    /// This process, as the owner of a job that starts now.
    pub fn here(command: String) -> io::Result<Owner> {
        Ok(Owner {
            proc: process::me()?,
            origin: Origin::here()?,
            slept: here::slept(),
            started_at: here::wall(),
            started_monotonic: here::monotonic(),
            command,
            session: None,
        })
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let object = Object::new().value("version", Some(1)).raw("pid", &self.proc.pid.to_string());
        let object = self.origin.write(object.value("start", Some(self.proc.start)));
        object
            .value("slept_s", Some(duration::seconds(self.slept)))
            .text("started_at", &moment::rfc3339(self.started_at))
            .value("started_monotonic_s", Some(duration::seconds(self.started_monotonic)))
            .raw("command", &self.command)
            .value("session", self.session.map(|leader| leader.pid))
            .value("session_start", self.session.map(|leader| leader.start))
            .end()
            + "\n"
    }

    /// Reads the file; `None` where it is not whole.
    pub fn read(text: &[u8]) -> Option<Owner> {
        let fields = json::fields(std::str::from_utf8(text).ok()?).ok()?;
        let pid = |key: &str| json::whole(&fields, key).and_then(|pid| i32::try_from(pid).ok()).filter(|&pid| pid > 0);
        let proc = |pid, start| Some(Proc { pid, start: json::whole(&fields, start)? });
        Some(Owner {
            proc: proc(pid("pid")?, "start")?,
            origin: Origin::read(&fields)?,
            slept: span(&fields, "slept_s")?,
            started_at: moment::parse(&json::text(&fields, "started_at")?)?,
            started_monotonic: span(&fields, "started_monotonic_s")?,
            command: json::one_line(fields.get("command")?.get()).into_owned(),
            session: pid("session").and_then(|pid| proc(pid, "session_start")),
        })
    }

    /// Whether its numbers mean here what they meant there.
    pub fn is_comparable(&self, here: &Origin) -> bool {
        self.origin.seen_from(here) == Relation::SameBoot
            && (self.origin.pid_namespace.is_some() || !LINUX)
            && self.origin.pid_namespace == here.pid_namespace
    }

    /// A hold on the living owner; `None` where it has ended or cannot be told from here.
    pub fn pin(&self, here: &Origin) -> Option<Pin> {
        if self.is_comparable(here) { Pin::take(self.proc) } else { None }
    }

    /// Whether it has ended for certain, as it can be told in no time.
    pub fn is_gone(&self, here: &Origin) -> bool {
        match LINUX {
            true => self.is_comparable(here) && self.witness(here) == Hold::Free,
            false => self.is_comparable(here) && ps::is_free(self.proc.pid),
        }
    }

    /// What pid and start time tell, where the lock does not.
    pub fn witness(&self, here: &Origin) -> Hold {
        match self.origin.seen_from(here) {
            Relation::EarlierBoot => Hold::Free,
            Relation::SameBoot if self.is_comparable(here) => match process::stat(self.proc.pid) {
                Ok(stat) if stat.proc == self.proc && !stat.is_dead() => Hold::Held,
                Ok(_) => Hold::Free,
                Err(e) if LINUX && e.kind() == io::ErrorKind::NotFound => Hold::Free,
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Hold::Free,
                Err(_) => Hold::Unclear,
            },
            _ => Hold::Unclear,
        }
    }

    /// How long it has been at work, without the time that the host slept.
    pub fn age(&self, here: &Origin) -> Duration {
        match self.origin.seen_from(here) {
            Relation::SameBoot => here::monotonic().saturating_sub(self.started_monotonic),
            _ => here::wall().saturating_sub(self.started_at),
        }
    }
}

fn span(fields: &Fields<'_>, key: &str) -> Option<Duration> {
    duration::read(fields.get(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_back_as_it_was() {
        let mut owner = Owner::here("[\"a\\nb\"]".into()).unwrap();
        for session in [None, Some(Proc { pid: 7, start: 8 })] {
            owner.session = session;
            let read = Owner::read(owner.to_json().as_bytes()).unwrap();
            assert_eq!((read.proc, read.session, &read.command), (owner.proc, session, &owner.command));
            assert_eq!((read.slept, read.started_monotonic), (owner.slept, owner.started_monotonic));
            assert_eq!(read.origin, owner.origin);
        }
        let here = Origin::here().unwrap();
        assert!(owner.pin(&here).is_some());
        owner.origin.pid_namespace = Some(1);
        assert!(owner.pin(&here).is_none(), "a number of another namespace is not ours to compare");
        assert_eq!(owner.witness(&here), Hold::Unclear);
    }

    #[test]
    fn half_a_fingerprint_is_none() {
        let whole = Owner::here("[]".into()).unwrap().to_json();
        for end in 0..whole.len() - 2 {
            assert!(Owner::read(&whole.as_bytes()[..end]).is_none());
        }
        assert!(Owner::read(whole.replace("\"pid\":", "\"pid\":-").as_bytes()).is_none());
    }
}
