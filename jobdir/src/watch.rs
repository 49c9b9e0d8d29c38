//! Waits for something to happen to jobs: an owner's end (its pidfd), a change in a directory (inotify), or the
//! moment at which one has to be looked at again. No sleep loop, but for what gives no event here: a job of
//! another machine, or of another pid namespace.

use std::collections::HashSet;
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

/// What is being waited for.
pub struct Watch {
    /// Made for the first directory: one that has no owner to hold needs it, and to close it takes the kernel 15 ms.
    events: Option<Inotify>,
    /// Directories that stay.
    roots: HashSet<WatchDescriptor>,
    /// Jobs that are watched, and those of them that the last look has found.
    jobs: HashSet<WatchDescriptor>,
    found: HashSet<WatchDescriptor>,
    pins: Vec<Pin>,
    due: Option<Instant>,
    here: Origin,
}

impl Watch {
    /// A watch on nothing yet.
    pub fn new() -> io::Result<Watch> {
        let none = HashSet::new;
        let (roots, jobs, found) = (none(), none(), none());
        Ok(Watch { events: None, roots, jobs, found, pins: Vec::new(), due: None, here: Origin::here()? })
    }

    /// Watches a root's directory for names that arrive or go. To be called before the look that the wait depends on:
    /// what happens between the two would be missed otherwise.
    pub fn root(&mut self, dir: BorrowedFd<'_>) -> io::Result<()> {
        let mark = self.directory(dir)?;
        self.roots.insert(mark);
        Ok(())
    }

    /// Watches for the answer of an owner that is asked.
    pub fn answer(&mut self, job: &Job) -> io::Result<()> {
        self.add(job.fd(), files::PID, AddWatchFlags::IN_ATTRIB).map(drop)
    }

    fn directory(&mut self, dir: BorrowedFd<'_>) -> io::Result<WatchDescriptor> {
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
        self.add(dir, ".", flags)
    }

    fn add(&mut self, dir: BorrowedFd<'_>, name: &str, flags: AddWatchFlags) -> io::Result<WatchDescriptor> {
        let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?),
        };
        Ok(events.add_watch(path.as_str(), flags)?)
    }

    /// Forgets what the last look has found; the roots stay.
    pub fn clear(&mut self) {
        self.found.clear();
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
        match &live.owner {
            Some(owner) if owner.is_comparable(&self.here) => match owner.pin(&self.here) {
                Some(pin) if pin.fd().is_some() => {
                    self.pins.push(pin);
                    return Ok(());
                }
                // An old kernel.
                Some(_) => self.at(now + BLIND),
                // It ended since the look.
                None => self.at(now),
            },
            None if live.meta.origin.seen_from(&self.here) != Relation::Elsewhere => {}
            _ => self.at(now + BLIND),
        }
        let mark = self.directory(job.fd())?;
        self.found.insert(mark);
        if self.jobs.insert(mark) {
            // What happened between the look and the watch would be missed: so it is looked at again.
            self.at(now);
        }
        Ok(())
    }

    /// Watches no longer what the last look has not found.
    fn forget(&mut self) {
        if !self.jobs.is_empty() && self.found.is_empty() && self.roots.is_empty() {
            self.events = None;
        }
        for &mark in self.jobs.difference(&self.found) {
            // One that is gone is not watched any more in any case.
            let _ = self.events.as_ref().map(|events| events.rm_watch(mark));
        }
        self.jobs.clone_from(&self.found);
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
        self.forget();
        let until = self.due.map_or(PollTimeout::NONE, timeout);
        let pins = self.pins.iter().chain(others.iter().copied());
        let fds = self.events.iter().map(AsFd::as_fd).chain(pins.filter_map(Pin::fd));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, until) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        match self.events.as_ref().map_or(Err(nix::errno::Errno::EAGAIN), Inotify::read_events) {
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
