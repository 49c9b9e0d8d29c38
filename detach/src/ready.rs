//! `-r`: waits until the command says that it is ready, or has ended.
//!
//! On one pipe the command says so: a newline on the descriptor numbered in `$READY_FD`, which is s6's
//! protocol. On the other the child in between, the only process that can wait for the worker, tells
//! how it ended. Both end by themselves, whoever of the three dies first.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use libc::{WEXITSTATUS, WIFSIGNALED, WTERMSIG};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

use reap::LINUX;

use crate::exec::close_all_but;
use crate::refusal::{Refusal, reason, shown};
use crate::report::pipe;

/// How long to sleep between two looks at what gives no event: only while somebody waits for a command to be ready.
const EVENTLESS: Duration = Duration::from_millis(20);

/// How long the end of a command may follow the end of its ready pipe, in milliseconds: an exit closes
/// the pipe first, so the two cannot be told apart at once.
const END_FOLLOWS: u16 = 1000;

/// The parent's ends of both pipes.
pub struct Ready {
    said: PipeReader,
    ended: PipeReader,
}

/// The children's ends of both pipes.
pub struct Ends {
    said: PipeWriter,
    ended: PipeWriter,
    null: File,
    parent: Pid,
}

/// Opens both pipes, and what the child in between will need.
pub fn open() -> Result<(Ready, Ends), Refusal> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| Refusal::failed(format!("cannot open /dev/null: {}", reason(e))))?;
    let (from_command, said) = pipe()?;
    let (from_between, ended) = pipe()?;
    let ready = Ready { said: from_command, ended: from_between };
    Ok((ready, Ends { said, ended, null, parent: getpid() }))
}

impl Ends {
    /// The descriptor on which the command says that it is ready.
    pub fn said(&self) -> RawFd {
        self.said.as_raw_fd()
    }

    /// Stays until the worker has ended, then tells the parent how; for the child in between.
    ///
    /// Holds nothing open meanwhile that belongs to the caller or the worker, and dies with the parent:
    /// `timeout 5 detach -r …` must leave nobody behind but the command.
    pub fn watch(&self, worker: Pid) {
        die_with(self.parent);
        for number in 0..3 {
            // SAFETY: plain numbers of descriptors that this process owns.
            unsafe { libc::dup2(self.null.as_raw_fd(), number) };
        }
        close_all_but(&[self.ended.as_raw_fd()]);
        let mut status = 0;
        let flags = if LINUX { 0 } else { libc::WNOHANG };
        loop {
            // SAFETY: `status` is a valid place for one int.
            match retry(|| Errno::result(unsafe { libc::waitpid(worker.as_raw(), &mut status, flags) })) {
                // No event tells of a parent's death and of the worker's end alike, so both are looked at.
                Ok(0) => {
                    std::thread::sleep(EVENTLESS);
                    die_with(self.parent);
                }
                Ok(_) => {
                    let _ = retry(|| nix::unistd::write(&self.ended, &status.to_ne_bytes()));
                    break;
                }
                Err(_) => break,
            }
        }
    }
}

/// Asks the kernel to kill this process when `parent` dies, where it does such a thing.
fn die_with(parent: Pid) {
    #[cfg(all(target_os = "linux", not(portable)))]
    // SAFETY: sets a number in this process, nothing else.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)
    };
    // It may have died before it could be watched.
    if getppid() != parent {
        // SAFETY: ends this process without running what belongs to the parent.
        unsafe { libc::_exit(0) };
    }
}

/// What came through the ready pipe.
enum Word {
    Ready,
    Other,
    Over,
}

/// How a command ended that was not ready.
enum End {
    /// What waitpid(2) said.
    Status(i32),
    /// It has not, as far as we know: the child in between was killed, or has nothing to tell.
    Unseen,
}

impl Ready {
    /// Waits until the command is ready; refuses with its own status if it ends before, with 125 if
    /// that status is 0 or if it closes the descriptor and runs on.
    ///
    /// A command that ends with 0 may have left its work to a child, as daemons do: as long as
    /// somebody holds the descriptor, that word is waited for.
    pub fn wait(mut self, name: &OsStr, pid: i32) -> Result<(), Refusal> {
        match self.end_before_ready() {
            Ok(None) => Ok(()),
            Ok(Some(end)) => Err(too_early(&shown(name), pid, end)),
            Err(error) => Err(Refusal::failed(format!("cannot wait for pid {pid}: {}", reason(error)))),
        }
    }

    /// How the wait ended instead of in readiness, if it did.
    fn end_before_ready(&mut self) -> io::Result<Option<End>> {
        let mut end = None;
        loop {
            let (said, ended) = match end {
                None => readable([&self.said, &self.ended], PollTimeout::NONE)?.into(),
                // The work may go on in a child.
                Some(End::Status(0) | End::Unseen) => (true, false),
                // It may have been ready before it failed: what is in the pipe counts.
                Some(_) => (readable([&self.said], PollTimeout::ZERO)?[0], false),
            };
            match said {
                true => match self.read()? {
                    Word::Ready => return Ok(None),
                    Word::Other => {}
                    Word::Over => break,
                },
                false if ended => end = Some(self.end()),
                false if end.is_some() => return Ok(end),
                false => {}
            }
        }
        if end.is_none() && readable([&self.ended], END_FOLLOWS.into())?[0] {
            end = Some(self.end());
        }
        Ok(end.or(Some(End::Unseen)))
    }

    fn read(&mut self) -> io::Result<Word> {
        let mut bytes = [0; 512];
        match self.said.read(&mut bytes) {
            Ok(0) => Ok(Word::Over),
            Ok(n) if bytes[..n].contains(&b'\n') => Ok(Word::Ready),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(Word::Other),
        }
    }

    fn end(&mut self) -> End {
        let mut bytes = [0; 4];
        match self.ended.read_exact(&mut bytes) {
            Ok(()) => End::Status(i32::from_ne_bytes(bytes)),
            Err(_) => End::Unseen,
        }
    }
}

/// Waits until a pipe can be read or has ended, or the limit has passed; which of them can.
fn readable<const N: usize>(pipes: [&PipeReader; N], limit: PollTimeout) -> io::Result<[bool; N]> {
    let mut fds = pipes.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
    retry(|| poll(&mut fds, limit))?;
    Ok(fds.map(|fd| fd.any().unwrap_or(false)))
}

fn too_early(name: &str, pid: i32, end: End) -> Refusal {
    let (code, how) = match end {
        End::Unseen => (125, format!("(pid {pid}) closed the descriptor of READY_FD")),
        End::Status(status) if WIFSIGNALED(status) => {
            let signal = WTERMSIG(status);
            let named = Signal::try_from(signal).map_or(format!("signal {signal}"), |s| s.to_string());
            (128 + signal, format!("was killed by {named}"))
        }
        End::Status(status) if WEXITSTATUS(status) == 0 => (125, "ended with status 0".into()),
        End::Status(status) => (WEXITSTATUS(status), format!("ended with status {}", WEXITSTATUS(status))),
    };
    Refusal { status: code as u8, text: format!("{name} {how} before it was ready") }
}

/// Repeats a call that a signal broke off.
pub fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
