//! Waits for something to happen to jobs: an owner's end (its pidfd), a change in a directory (inotify), or the
//! moment at which one has to be looked at again. No sleep loop, but for what gives no event here: a job of
//! another machine, or of another pid namespace.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::unistd::{ForkResult, fork, pipe2};
use reap::process::{Pin, timeout};

use crate::files;
use crate::job::Job;
use crate::meta::{Origin, Relation};
use crate::settle::Live;

/// How often a job is looked at whose end gives no event on this machine.
const BLIND: Duration = Duration::from_secs(1);

/// A directory was moved away, or removed.
const GONE: AddWatchFlags = AddWatchFlags::IN_MOVE_SELF.union(AddWatchFlags::IN_DELETE_SELF);

/// What is being waited for.
pub struct Watch {
    events: Inotify,
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
        let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Watch { events, roots, jobs, found, pins: Vec::new(), due: None, here: Origin::here()? })
    }

    /// Watches a root's directory for names that arrive or go. To be called before the look that the wait depends on:
    /// what happens between the two would be missed otherwise.
    pub fn root(&mut self, dir: BorrowedFd<'_>) -> io::Result<()> {
        let mark = self.add(dir, ".", AddWatchFlags::IN_MOVED_TO | GONE)?;
        self.roots.insert(mark);
        Ok(())
    }

    /// Watches for the answer of an owner that is asked.
    pub fn answer(&self, job: &Job) -> io::Result<()> {
        self.add(job.fd(), files::PID, AddWatchFlags::IN_ATTRIB).map(drop)
    }

    fn add(&self, dir: BorrowedFd<'_>, name: &str, flags: AddWatchFlags) -> io::Result<WatchDescriptor> {
        let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
        Ok(self.events.add_watch(path.as_str(), flags)?)
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
        let owner = live.owner.as_ref().filter(|owner| owner.is_comparable(&self.here));
        let pin = owner.and_then(|owner| owner.pin(&self.here));
        // What another machine or pid namespace does may give no event here, nor may an old kernel.
        let blind = match &live.owner {
            Some(_) => pin.as_ref().is_none_or(|pin| pin.fd().is_none()),
            None => live.due.is_none() || live.meta.origin.seen_from(&self.here) == Relation::Elsewhere,
        };
        // An owner whose end tells all need not wake us by its files before.
        let flags = if blind || pin.is_none() { AddWatchFlags::IN_MOVED_TO | GONE } else { GONE };
        let mark = self.add(job.fd(), ".", flags)?;
        self.found.insert(mark);
        if self.jobs.insert(mark) || (owner.is_some() && pin.is_none()) {
            // It has ended since the look, or something happened before the watch, which would be missed.
            self.at(now);
        } else if blind {
            self.at(now + BLIND);
        }
        self.pins.extend(pin);
        Ok(())
    }

    /// Watches no longer what the last look has not found.
    fn forget(&mut self) {
        for &mark in self.jobs.difference(&self.found) {
            // One that is gone is not watched any more in any case.
            let _ = self.events.rm_watch(mark);
        }
        self.jobs.clone_from(&self.found);
    }

    /// Ends the watch of a process that is about to end. To close an inotify descriptor takes the kernel 15 ms, in which
    /// our caller would wait: so a child holds it until we are gone, and waits in our place.
    pub fn leave(self) {
        let Ok((until, held)) = pipe2(OFlag::O_CLOEXEC) else { return };
        // SAFETY: this process has one thread, and the child makes system calls only.
        match unsafe { fork() } {
            // Then it is ours to wait.
            Err(_) => {}
            Ok(ForkResult::Parent { .. }) => std::mem::forget((self.events, held)),
            // Nobody must wait for the child: it holds nothing of ours, and the pipe ends with its last writer, which is the
            // parent.
            // SAFETY: plain numbers of descriptors, and an end without anything that belongs to the parent.
            Ok(ForkResult::Child) => unsafe {
                libc::close(held.as_raw_fd());
                libc::dup2(until.as_raw_fd(), 0);
                libc::dup2(self.events.as_fd().as_raw_fd(), 1);
                libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
                libc::read(0, [0_u8; 1].as_mut_ptr().cast(), 1);
                libc::_exit(0)
            },
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
        self.forget();
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
