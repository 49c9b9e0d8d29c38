//! Keeps the head and the tail of a log, and gives the blocks of its middle back (fallocate(2), a punched hole).
//!
//! The log keeps its length and its offsets; whoever reads the middle reads zeros. Events on the log would cost a
//! chatty command half its speed, so a timer looks, and only where a bound was asked for: as often as the log needs
//! to grow by half of the bound at the pace it was last seen at. So twice the bound is on the disk at most, but for what
//! a flood writes in the milliseconds before we are awake and have the file's lock, and at its start before the timer
//! knows of it. At rest it is the bound.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use reap::exit::reason;

use crate::silence::Silence;

/// The longest time between two looks: what a command that begins to write has to itself.
const SLOWEST: Duration = Duration::from_millis(100);

/// The shortest, and the first one.
const FASTEST: Duration = Duration::from_micros(250);

/// A log that is hollowed out as it grows.
pub struct Hollow {
    log: File,
    /// What is kept at rest: a half of it is the head, a half the tail.
    size: u64,
    inode: u64,
    /// Holes start and end with the file system's blocks: parts of one would be overwritten with zeros, and not freed.
    block: u64,
    /// The end of the hole.
    hole: u64,
    released: u64,
    refused: Option<Errno>,
    alarm: Alarm,
    pace: Duration,
    length: u64,
    looked: Instant,
}

impl Hollow {
    /// Watches over a log that is open for writing.
    pub fn new(log: &File, size: u64) -> io::Result<Hollow> {
        let stat = log.metadata()?;
        let block = stat.blksize().clamp(512, size / 4);
        let head = (size / 2).next_multiple_of(block);
        let mut hollow = Hollow {
            log: log.try_clone()?,
            size,
            inode: stat.ino(),
            block,
            hole: head,
            released: 0,
            refused: None,
            alarm: Alarm::new()?,
            pace: FASTEST,
            length: stat.len(),
            looked: Instant::now(),
        };
        hollow.ring();
        Ok(hollow)
    }

    /// Looks, releases what is too much, and sets the timer anew. An error: the middle cannot be released, and the log
    /// is past twice its bound.
    pub fn look(&mut self, silence: Option<&mut Silence>) -> Result<(), Errno> {
        let length = self.trim(self.size, silence);
        let (now, grown) = (Instant::now(), length.saturating_sub(self.length));
        let passed = now - self.looked;
        (self.length, self.looked) = (length, now);
        // Slower again step by step: whoever wrote fast goes on after a pause.
        let slower = (self.pace * 2).min(SLOWEST);
        self.pace = match grown {
            0 => slower,
            _ => passed.mul_f64(self.size as f64 / 2.0 / grown as f64).clamp(FASTEST, slower.max(FASTEST)),
        };
        match self.refused {
            Some(e) if length.saturating_sub(self.hole - self.head()) > 2 * self.size => Err(e),
            _ => {
                self.ring();
                Ok(())
            }
        }
    }

    /// When to look, where no timer rings for it.
    pub fn due(&self) -> Option<Instant> {
        self.alarm.due()
    }

    /// The last look, when nobody writes any more. Returns what has to be said of the log.
    pub fn finish(mut self) -> Option<String> {
        self.trim(self.size / 2, None);
        if self.released > 0 {
            let (head, tail) = (self.head(), self.length().saturating_sub(self.hole));
            let released = self.released;
            return Some(format!(
                "{released} bytes of the log's middle were released; its first {head} and its last {tail} are kept"
            ));
        }
        self.refused.map(|e| format!("the log's middle could not be released: {}", reason(&e.into())))
    }

    /// Releases what is before the tail, where more than `most` has gathered behind the hole. Returns the log's length.
    fn trim(&mut self, most: u64, silence: Option<&mut Silence>) -> u64 {
        let length = self.length();
        // The command may have cut its log.
        self.hole = self.hole.min(length).max(self.head());
        let from = self.hole;
        let to = length.saturating_sub(self.size / 2) / self.block * self.block;
        if length.saturating_sub(from) <= most || to <= from {
            return length;
        }
        let punch = || punch(&self.log, from, to);
        let punched = match silence {
            Some(silence) => silence.unheard(self.inode, punch),
            None => punch(),
        };
        self.refused = punched.err();
        if self.refused.is_none() {
            self.hole = to;
            self.released += to - from;
        }
        length
    }

    fn head(&self) -> u64 {
        (self.size / 2).next_multiple_of(self.block)
    }

    fn length(&self) -> u64 {
        self.log.metadata().map_or(self.length, |stat| stat.len())
    }

    fn ring(&mut self) {
        self.alarm.set(self.pace);
    }
}

#[cfg(all(target_os = "linux", not(portable)))]
use linux::*;
#[cfg(not(all(target_os = "linux", not(portable))))]
use portable::*;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux {
    use std::os::fd::AsFd;

    use nix::fcntl::{FallocateFlags, fallocate};
    use nix::sys::signal::{SigEvent, SigevNotify};
    use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
    use nix::time::ClockId;

    use super::{Duration, Errno, File, Instant, io};
    use crate::bell::TIMER;

    /// A signal after a while: finer than what poll(2) takes, and it wakes every wait.
    pub struct Alarm(Timer);

    impl Alarm {
        pub fn new() -> io::Result<Alarm> {
            let ring = SigEvent::new(SigevNotify::SigevSignal { signal: TIMER, si_value: 0 });
            Ok(Alarm(Timer::new(ClockId::CLOCK_MONOTONIC, ring)?))
        }

        pub fn set(&mut self, after: Duration) {
            // It is there, and the time is valid: there is nothing that could be refused.
            let _ = self.0.set(Expiration::OneShot(after.into()), TimerSetTimeFlags::empty());
        }

        pub fn due(&self) -> Option<Instant> {
            None
        }
    }

    pub fn punch(log: &File, from: u64, to: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let offset = |at: u64| i64::try_from(at).map_err(|_| Errno::EFBIG);
        loop {
            match fallocate(log.as_fd(), flags, offset(from)?, offset(to - from)?) {
                Err(Errno::EINTR) => {}
                other => return other,
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod portable {
    use super::{Duration, Errno, File, Instant, io};

    /// A moment at which the wait ends.
    pub struct Alarm(Instant);

    impl Alarm {
        pub fn new() -> io::Result<Alarm> {
            Ok(Alarm(Instant::now()))
        }

        pub fn set(&mut self, after: Duration) {
            self.0 = Instant::now() + after;
        }

        pub fn due(&self) -> Option<Instant> {
            Some(self.0)
        }
    }

    /// fcntl(2) of macOS.
    #[cfg(target_vendor = "apple")]
    pub fn punch(log: &File, from: u64, to: u64) -> Result<(), Errno> {
        use std::os::fd::AsRawFd;
        let offset = |at: u64| i64::try_from(at).map_err(|_| Errno::EFBIG);
        let hole =
            libc::fpunchhole_t { fp_flags: 0, reserved: 0, fp_offset: offset(from)?, fp_length: offset(to - from)? };
        // SAFETY: an open descriptor, and a struct that the call only reads.
        Errno::result(unsafe { libc::fcntl(log.as_raw_fd(), libc::F_PUNCHHOLE, &raw const hole) }).map(drop)
    }

    #[cfg(not(target_vendor = "apple"))]
    pub fn punch(_: &File, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
}
