//! Waits for something to happen to jobs: an owner's end (its pidfd), a change in a directory (inotify), or the
//! moment at which one has to be looked at again. No sleep loop, but for what gives no event here: a job of
//! another machine, or of another pid namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use reap::process::{Pin, timeout};

use crate::files;
use crate::job::Job;
use crate::meta::{Origin, Relation};
use crate::settle::Live;

/// How often a job is looked at whose end gives no event on this machine.
const BLIND: Duration = Duration::from_secs(1);

/// One thing that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(WatchDescriptor);

/// What is being waited for.
pub struct Watch {
    events: Inotify,
    pins: Vec<Pin>,
    due: Option<Instant>,
    here: Origin,
}

impl Watch {
    /// A watch on nothing yet.
    pub fn new() -> io::Result<Watch> {
        let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Watch { events, pins: Vec::new(), due: None, here: Origin::here()? })
    }

    /// Watches a directory for names that arrive or go. To be called before the look that the wait depends on:
    /// what happens between the two would be missed otherwise.
    pub fn directory(&self, dir: BorrowedFd<'_>) -> io::Result<Mark> {
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
        self.add(dir, ".", flags)
    }

    /// Watches for the answer of an owner that is asked.
    pub fn answer(&self, job: &Job) -> io::Result<Mark> {
        self.add(job.fd(), files::PID, AddWatchFlags::IN_ATTRIB)
    }

    /// Watches a directory or file no longer; one that is gone is not watched any more in any case.
    pub fn forget(&self, mark: Mark) {
        let _ = self.events.rm_watch(mark.0);
    }

    fn add(&self, dir: BorrowedFd<'_>, name: &str, flags: AddWatchFlags) -> io::Result<Mark> {
        let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
        Ok(Mark(self.events.add_watch(path.as_str(), flags)?))
    }

    /// Forgets the jobs of the last look; the directories stay.
    pub fn clear(&mut self) {
        self.pins.clear();
        self.due = None;
    }

    /// Counts on a job that was just found alive. Its owner's end is the end of the job; without an owner that can be
    /// held, its files tell.
    pub fn job(&mut self, job: &Job, live: &Live) -> io::Result<()> {
        let now = Instant::now();
        if let Some(due) = live.due.and_then(|due| now.checked_add(due)) {
            // One that is overdue and cannot be judged is looked at again like one that gives no event.
            self.at(if live.overdue { now + BLIND } else { due });
        }
        let Some(owner) = &live.owner else {
            if live.meta.origin.seen_from(&self.here) == Relation::Elsewhere {
                self.at(now + BLIND);
            }
            return Ok(());
        };
        if !owner.is_comparable(&self.here) {
            self.at(now + BLIND);
            return Ok(());
        }
        match owner.pin(&self.here) {
            Some(pin) => {
                self.pins.push(pin);
                // From now on its progress stamps need not wake us.
                self.add(job.fd(), ".", AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF).map(drop)
            }
            // It ended since the look.
            None => {
                self.at(now);
                Ok(())
            }
        }
    }

    /// Ends the wait at this moment at the latest.
    pub fn at(&mut self, moment: Instant) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Waits until something happens.
    pub fn wait(&mut self) -> io::Result<()> {
        self.wait_also(&[])
    }

    /// Waits until something happens, or one of these has ended.
    pub fn wait_also(&mut self, others: &[&Pin]) -> io::Result<()> {
        let until = self.due.map_or(PollTimeout::NONE, timeout);
        let pins = self.pins.iter().chain(others.iter().copied());
        let fds = std::iter::once(self.events.as_fd()).chain(pins.filter_map(Pin::fd));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, until) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        match self.events.read_events() {
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
