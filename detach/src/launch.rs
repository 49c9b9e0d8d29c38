//! The launch: two forks with a new session between them, and an exec that is waited for.
//!
//! 1. The parent opens and prepares everything that can fail with words of its own.
//! 2. The child in between starts a session, forks the worker and ends, so that the worker leads no
//!    session, can never get a terminal and descends from nobody. With `-r` it stays, to tell how the
//!    worker ended, until the parent has heard enough.
//! 3. The worker puts its descriptors, signals and directory in order and becomes the command.
//!
//! Past the first fork only system calls are made, and nothing is ever dropped. So a child may work in its parent's
//! memory while the parent stands still, which costs half of a copy (borrow.rs); only the child in
//! between of `-r`, which stays while the parent goes on, gets a copy of its own.

use std::ffi::CString;
use std::io::PipeWriter;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, chdir, fork, getpid, setsid};

use crate::args::Args;
use crate::borrow::{self, Stack};
use crate::exec::{self, Prepared};
use crate::ready::{self, retry};
use crate::refusal::{Refusal, reason, shown};
use crate::report::{self, Step};
use crate::streams::Streams;

/// Starts the command; returns the worker's pid once the exec has happened and, with `-r`, the
/// command is ready. Every failure before the exec leaves nothing running.
pub fn start(args: &Args) -> Result<i32, Refusal> {
    // A caller that ignores SIGCHLD would have our children vanish before we could wait for them.
    exec::default_signal(libc::SIGCHLD);
    // Before we open anything: later, a number might be one of our own.
    for &fd in &args.keep {
        open_across_exec(fd)
            .map_err(|errno| Refusal::failed(format!("cannot keep descriptor {fd}: {}", reason(errno))))?;
    }
    let streams = Streams::open(args)?;
    let (from_children, report) = report::pipe()?;
    let (ready, ends) = args.ready.then(ready::open).transpose()?.unzip();
    // The lowest number that will be free: a shell like dash can only write to one of a single digit.
    let free = |fd: &RawFd| !args.keep.contains(fd) && *fd != report.as_raw_fd();
    let ready_fd = ready.as_ref().and_then(|_| (3..).find(free));
    let command = Prepared::new(&args.command, &[("READY_FD", ready_fd.map(|fd| fd.to_string().into()))])?;
    let chdir = args.chdir.as_ref().map(|dir| CString::new(dir.as_os_str().as_bytes())).transpose();
    let chdir = chdir.map_err(|_| Refusal::failed("cannot change to a directory with a NUL byte"))?;
    let mut spared = args.keep.clone();
    spared.push(report.as_raw_fd());
    spared.extend(ends.as_ref().map(ready::Ends::said));
    spared.sort_unstable();
    let launch = Launch { command: &command, chdir, streams, report, ends, ready_fd, spared, stack: Stack::new() };

    // A signal must find neither of two processes in the other's memory; the worker empties the mask at its end.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let between = match args.ready {
        // SAFETY: this process has one thread, so the child may use whatever the parent had.
        true => match unsafe { fork() } {
            Ok(ForkResult::Child) => launch.begin_session(),
            Ok(ForkResult::Parent { child }) => Ok(child),
            Err(errno) => Err(errno),
        },
        false => borrow::run(&Stack::new(), &|| launch.begin_session()),
    };
    let _ = mask.map(|mask| mask.thread_set_mask());
    let between = between.map_err(|errno| Refusal::failed(format!("cannot fork: {}", reason(errno))))?;
    drop(launch); // or our own copies would keep the pipes from ending
    let started = match report::receive(from_children) {
        Ok(Ok(pid)) => Ok(pid),
        Ok(Err((step, errno))) => Err(words(step, errno, args, &command)),
        Err(error) => Err(Refusal::failed(format!("cannot start {}: {}", shown(command.name()), reason(error)))),
    };
    let outcome = match (started, ready) {
        (Ok(pid), Some(ready)) => ready.wait(command.name(), pid).map(|()| pid),
        (other, _) => other,
    };
    if args.ready {
        // Ours until it has been waited for, so the number cannot be somebody else's.
        let _ = kill(between, Signal::SIGKILL);
    }
    let _ = retry(|| waitpid(between, None));
    outcome
}

/// The words for a step that failed in a child.
fn words(step: Step, errno: Errno, args: &Args, command: &Prepared) -> Refusal {
    let failed = |act: &str| Refusal::failed(format!("cannot {act}: {}", reason(errno)));
    match (step, &args.chdir) {
        (Step::Exec, dir) => command.refusal(errno, dir.as_deref()),
        (Step::Chdir, Some(dir)) => failed(&format!("change to {}", shown(dir))),
        (Step::Session, _) => failed("start a session"),
        (Step::Fork, _) => failed("fork"),
        _ => failed("put descriptors in order"),
    }
}

/// What the children need, all of it made before the first fork.
struct Launch<'a> {
    command: &'a Prepared,
    chdir: Option<CString>,
    streams: Streams,
    report: PipeWriter,
    ends: Option<ready::Ends>,
    /// The number that the ready pipe gets in the worker.
    ready_fd: Option<RawFd>,
    /// All that must not be closed in the worker, sorted.
    spared: Vec<RawFd>,
    /// The worker's.
    stack: Stack,
}

impl Launch<'_> {
    /// The life of the child in between.
    fn begin_session(&self) -> ! {
        if let Err(errno) = setsid() {
            self.fail(Step::Session, errno);
        }
        match borrow::run(&self.stack, &|| self.work()) {
            Err(errno) => self.fail(Step::Fork, errno),
            Ok(worker) => {
                if let Some(ends) = &self.ends {
                    ends.watch(worker);
                }
                exit(0)
            }
        }
    }

    /// The life of the worker until it is the command.
    fn work(&self) -> ! {
        // While SIGPIPE is still ignored: a parent that has been killed meanwhile does not stop us.
        report::send(&self.report, Step::Started, getpid().as_raw());
        for (number, fd) in (0..).zip(self.streams.numbers()) {
            self.place(fd, number);
        }
        exec::close_all_but(&self.spared);
        if let (Some(ends), Some(number)) = (&self.ends, self.ready_fd) {
            self.place(ends.said(), number);
        }
        exec::clean_signals();
        if let Some(Err(errno)) = self.chdir.as_deref().map(|dir| retry(|| chdir(dir))) {
            self.fail(Step::Chdir, errno);
        }
        self.fail(Step::Exec, self.command.exec())
    }

    /// Makes `fd` the descriptor `number`, open across exec.
    fn place(&self, fd: RawFd, number: RawFd) {
        let placed = match fd == number {
            true => open_across_exec(fd),
            // SAFETY: plain numbers of descriptors that this process owns.
            false => retry(|| Errno::result(unsafe { libc::dup2(fd, number) })).map(drop),
        };
        if let Err(errno) = placed {
            self.fail(Step::Descriptors, errno);
        }
    }

    fn fail(&self, step: Step, errno: Errno) -> ! {
        report::send(&self.report, step, errno as i32);
        exit(125)
    }
}

/// Lets the descriptor live through exec; fails with EBADF if it is not open.
fn open_across_exec(fd: RawFd) -> nix::Result<()> {
    // SAFETY: a plain number; setting this flag reads and writes no memory.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// Ends a child without running or flushing anything that belongs to the parent.
fn exit(status: i32) -> ! {
    // SAFETY: ends this process; nothing is touched on the way.
    unsafe { libc::_exit(status) }
}
