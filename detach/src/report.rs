//! What the children tell the parent before the exec.
//!
//! A pipe that exec closes: packets of two numbers, a step and its value. The worker says its pid
//! first; a failure names the step and the errno; the end of the pipe without one is the exec.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use crate::refusal::{Refusal, reason};

/// What a packet is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// The worker exists; the value is its pid.
    Started,
    /// setsid(2) failed.
    Session,
    /// The second fork failed.
    Fork,
    /// A descriptor could not be put in its place.
    Descriptors,
    /// The directory of `-C` could not be entered.
    Chdir,
    /// The command could not be run.
    Exec,
}

const STEPS: [Step; 6] = [Step::Started, Step::Session, Step::Fork, Step::Descriptors, Step::Chdir, Step::Exec];

/// Sends one packet; makes system calls only. A parent that is gone does not need it.
pub fn send(to: &PipeWriter, step: Step, value: i32) {
    let packet = [step as i32, value];
    // SAFETY: the buffer is eight bytes, all initialised; less than PIPE_BUF, they arrive as a whole.
    let write = || unsafe { libc::write(to.as_raw_fd(), packet.as_ptr().cast(), size_of_val(&packet)) };
    while write() < 0 && Errno::last() == Errno::EINTR {}
}

/// Waits until the pipe has ended: the worker's pid once its exec has happened, else what failed.
pub fn receive(mut from: PipeReader) -> io::Result<Result<i32, (Step, Errno)>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    let mut pid = None;
    for packet in bytes.chunks_exact(8) {
        let number = |half: &[u8]| half.try_into().map_or(-1, i32::from_ne_bytes);
        let (step, value) = (number(&packet[..4]), number(&packet[4..]));
        match STEPS.into_iter().find(|known| *known as i32 == step) {
            Some(Step::Started) => pid = Some(value),
            Some(failed) => return Ok(Err((failed, Errno::from_raw(value)))),
            None => {}
        }
    }
    pid.map(Ok).ok_or_else(|| io::Error::other("a child was killed before the start"))
}

/// A pipe that exec closes.
pub fn pipe() -> Result<(PipeReader, PipeWriter), Refusal> {
    io::pipe().map_err(|error| Refusal::failed(format!("cannot make a pipe: {}", reason(error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_alone_means_success() {
        let (from, to) = io::pipe().unwrap_or_else(|e| panic!("{e}"));
        send(&to, Step::Started, 42);
        drop(to);
        assert_eq!(receive(from).ok(), Some(Ok(42)));
    }

    #[test]
    fn a_failure_outweighs_the_pid() {
        let (from, to) = io::pipe().unwrap_or_else(|e| panic!("{e}"));
        send(&to, Step::Started, 42);
        send(&to, Step::Exec, libc::ENOENT);
        drop(to);
        assert_eq!(receive(from).ok(), Some(Err((Step::Exec, Errno::ENOENT))));
    }

    #[test]
    fn silence_is_no_success() {
        let (from, to) = io::pipe().unwrap_or_else(|e| panic!("{e}"));
        drop(to);
        assert!(receive(from).is_err());
    }
}
