//! Waits for something to happen to jobs: an owner's end (its pidfd), a change in a directory (inotify), or the
//! moment at which one has to be looked at again. No sleep loop, but for what gives no event here: a job of
//! another machine, or of another pid namespace; and where there are no events at all, a look every few moments.

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use reap::process::{EVENTLESS, Pin, wait_for};

use crate::events::{Events, Mark, Of};
use crate::files;
use crate::job::Job;
use crate::meta::{Origin, Relation};
use crate::settle::Live;

/// How often a job is looked at whose end gives no event on this machine.
const BLIND: Duration = Duration::from_secs(1);

/// What is being waited for.
pub struct Watch {
    /// `None`: nothing is told here.
    events: Option<Events>,
    /// Directories that stay.
    roots: HashSet<Mark>,
    /// Jobs that are watched, and those of them that the last look has found.
    jobs: HashSet<Mark>,
    found: HashSet<Mark>,
    pins: Vec<Pin>,
    due: Option<Instant>,
    /// When the last look began.
    looked: Instant,
    here: Origin,
}

impl Watch {
    /// A watch on nothing yet.
    pub fn new() -> io::Result<Watch> {
        let none = HashSet::new;
        let (roots, jobs, found) = (none(), none(), none());
        let events = Events::new()?;
        Ok(Watch {
            events,
            roots,
            jobs,
            found,
            pins: Vec::new(),
            due: None,
            looked: Instant::now(),
            here: Origin::here()?,
        })
    }

    /// Watches a root's directory for names that arrive or go. To be called before the look that the wait depends on:
    /// what happens between the two would be missed otherwise.
    pub fn root(&mut self, dir: BorrowedFd<'_>) -> io::Result<()> {
        let mark = self.add(dir, ".", Of::Names)?;
        self.roots.extend(mark);
        Ok(())
    }

    /// Watches for the answer of an owner that is asked.
    pub fn answer(&mut self, job: &Job) -> io::Result<()> {
        self.add(job.fd(), files::PID, Of::Times).map(drop)
    }

    /// `None` where nothing is told, and then of nothing: half of the news is worse than a look.
    fn add(&mut self, dir: BorrowedFd<'_>, name: &str, of: Of) -> io::Result<Option<Mark>> {
        let Some(events) = &self.events else { return Ok(None) };
        match events.add(dir, name, of) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && files::look(dir, name)?.is_some() => {
                self.events = None;
                Ok(None)
            }
            mark => mark.map(Some),
        }
    }

    /// Forgets what the last look has found; the roots stay.
    pub fn clear(&mut self) {
        self.found.clear();
        self.pins.clear();
        self.due = None;
        self.looked = Instant::now();
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
        let told = self.events.is_some();
        let pin = owner.filter(|_| told).and_then(|owner| owner.pin(&self.here));
        // What another machine or pid namespace does may give no event here, nor may an old kernel.
        let blind = match &live.owner {
            Some(_) => pin.as_ref().is_none_or(|pin| pin.fd().is_none()),
            None => live.due.is_none() || live.meta.origin.seen_from(&self.here) == Relation::Elsewhere,
        };
        // An owner whose end tells all need not wake us by its files before.
        let of = if blind || pin.is_none() { Of::Names } else { Of::Itself };
        let Some(mark) = self.add(job.fd(), ".", of)? else { return Ok(()) };
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
            self.events.iter().for_each(|events| events.remove(mark));
        }
        self.jobs.clone_from(&self.found);
    }

    /// Ends the watch of a process that is about to end.
    pub fn leave(self) {
        self.events.into_iter().for_each(Events::leave);
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
        if self.events.is_none() {
            // An owner that has to be asked makes a look a long one, and the next one later.
            self.at(Instant::now() + (10 * self.looked.elapsed()).clamp(EVENTLESS, BLIND));
        }
        let pins = self.pins.iter().chain(others.iter().copied());
        let fds = self.events.iter().map(Events::fd).chain(pins.filter_map(Pin::fd));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match wait_for(&mut fds, self.due) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        self.events.as_ref().map_or(Ok(()), Events::clear)
    }
}
