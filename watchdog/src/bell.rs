//! What has happened to us and to our children, by signals that are only ever read from a descriptor.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use reap::LINUX;
use reap::process::wait_for;

use crate::contain::Report;
use crate::inbox::Inbox;
pub use crate::inbox::unheard;

/// The signals that ask us to end the job, beside TERM: those that were ignored when we started stay ignored.
const ASKING_POLITELY: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];

/// The signal of our own timer. Not ALRM: that one may have been set by our caller, and is a death then.
pub const TIMER: Signal = Signal::SIGVTALRM;

/// The descriptor of signals.
pub struct Signals(Inbox);

impl Signals {
    /// Blocks what is waited for. To be called before the lock is taken: an owner that is asked must not die of it,
    /// and a blocked signal is kept even where its disposition is to be ignored.
    pub fn block(timer: bool) -> io::Result<Signals> {
        let mut set = SigSet::empty();
        if timer {
            set.add(TIMER);
        }
        for signal in [Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGURG, Signal::SIGCONT] {
            set.add(signal);
        }
        for signal in ASKING_POLITELY.into_iter().filter(|&signal| !is_ignored(signal)) {
            set.add(signal);
        }
        // Set, not added to: what a caller blocked is not ours to keep blocked.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&set), None)?;
        // An ignored SIGCHLD would let the kernel bury our children unseen; an XFSZ would kill us at a record.
        detach::exec::default_signal(libc::SIGCHLD);
        reap::process::survive_file_limits();
        Ok(Signals(Inbox::of(&set)?))
    }

    /// The descriptor, readable when there is something to attend to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Waits for a signal, or for the moment.
    pub fn wait(&self, until: Option<Instant>) {
        self.wait_also(None, until);
    }

    /// Waits for a signal, for the other descriptor, or for the moment.
    pub fn wait_also(&self, other: Option<BorrowedFd<'_>>, until: Option<Instant>) {
        let fds = std::iter::once(self.fd()).chain(other).map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match wait_for(&mut fds.collect::<Vec<_>>(), until) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Below a lowered limit of descriptors poll(2) gives no event any more: then we look from time to time.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: with a null new action sigaction(2) only writes the old one, to memory of ours.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as i32, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// Of this signal.
    Signal(i32),
}

impl Exit {
    /// What waitpid(2) says of a process that has ended.
    fn of(status: i32) -> Exit {
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }
}

/// What is known so far.
#[derive(Debug, Default)]
pub struct Bell {
    /// The command's pid; that of its namespace's first process where it has one.
    pub command: i32,
    /// Where that process tells of the command's end.
    pub report: Option<Report>,
    /// How it ended, once it has.
    pub ended: Option<Exit>,
    /// The signal that asked us to stop.
    pub cancelled: Option<i32>,
    /// Somebody wants to know whether we are well.
    pub asked: bool,
    /// We were stopped, and go on.
    pub continued: bool,
    /// It is time to look at the log.
    pub rang: bool,
    /// Nothing of the command is left, by the kernel's word: no child is, and whoever was orphaned would be one.
    pub childless: bool,
}

impl Bell {
    /// Takes in all that has happened.
    pub fn attend(&mut self, signals: &Signals) {
        let alone = self.hear();
        self.read(signals);
        self.collect();
        // A namespace in which nobody is left is gone in a moment: nothing needs to be hunted in it.
        if alone && !self.childless {
            signals.wait(Some(Instant::now() + Duration::from_millis(50)));
            self.read(signals);
            self.collect();
        }
    }

    /// Takes in the end of a command in a namespace. Says whether it left nobody behind.
    fn hear(&mut self) -> bool {
        let Some(told) = self.report.as_mut().map(Report::read) else { return false };
        if matches!(&told, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
            return false;
        }
        // At its end the pipe would wake us for ever.
        self.report = None;
        told.is_ok_and(|(status, alone)| {
            self.ended = Some(Exit::of(status));
            alone
        })
    }

    fn read(&mut self, signals: &Signals) {
        while let Some(signal) = signals.0.next() {
            match signal {
                libc::SIGCHLD => {}
                libc::SIGURG => self.asked = true,
                libc::SIGCONT => self.continued = true,
                signal if signal == TIMER as i32 => self.rang = true,
                signal => {
                    self.cancelled.get_or_insert(signal);
                }
            }
        }
    }

    /// Collects every child that has ended: the command, and as a subreaper whatever was orphaned below it.
    fn collect(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: waitpid(2) writes one int, and it is ours.
            match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) }) {
                Ok(0) => return self.childless = false,
                Ok(pid) if pid == self.command => {
                    // What it had to tell, it told before it went.
                    self.hear();
                    self.ended.get_or_insert(Exit::of(status));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return self.childless = LINUX,
            }
        }
    }
}
