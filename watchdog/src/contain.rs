//! What is told between a fork and an exec, and of a command in a pid namespace ([`House`]), which only Linux has.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::RawFd;

use nix::errno::Errno;
use reap::exit::Fail;

#[cfg(all(target_os = "linux", not(portable)))]
pub use crate::house::House;

/// What failed between the fork and the exec.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// The exec itself: the command's own fault.
    Exec,
    /// Our ids in the new user namespace.
    Ids,
    /// A /proc of the namespace's own. The command runs without it.
    Proc,
    /// The fork of the command.
    Fork,
}

/// Two numbers, as they go through a pipe whole.
pub type Pair = [u8; 2 * size_of::<i32>()];

/// Makes them.
pub fn pair(first: i32, second: i32) -> Pair {
    let mut bytes = Pair::default();
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    bytes
}

/// Reads them.
fn numbers(pair: Pair) -> (i32, i32) {
    let [a, b, c, d, second @ ..] = pair;
    (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes(second))
}

impl Step {
    /// What [`tell`] has told.
    pub fn read(told: Pair) -> (Step, Errno) {
        let (step, number) = numbers(told);
        let ours = [Step::Ids, Step::Proc, Step::Fork].into_iter().find(|&known| known as i32 == step);
        (ours.unwrap_or(Step::Exec), Errno::from_raw(number))
    }

    /// The failure in words.
    pub fn fail(self, errno: Errno) -> Fail {
        let verb = match self {
            Step::Exec => "run",
            Step::Ids => "map the user into a namespace for",
            Step::Proc => "mount a /proc for",
            Step::Fork => "fork for",
        };
        Fail::cannot(verb, "the command", &errno.into())
    }
}

/// Says what failed, to whoever waits for the exec. Makes system calls only.
pub fn tell(pipe: RawFd, step: Step, errno: Errno) {
    send(pipe, pair(step as i32, errno as i32));
}

/// Says two numbers at once. Makes system calls only.
pub fn send(pipe: RawFd, pair: Pair) {
    // SAFETY: write(2) of a local array with its length.
    unsafe { libc::write(pipe, pair.as_ptr().cast(), pair.len()) };
}

/// Where the namespace's first process tells of the command's end.
#[derive(Debug)]
pub struct Report(pub File);

impl Report {
    /// The command's wait status, and whether the namespace is empty and goes by itself. `WouldBlock`: it runs; another
    /// error: the first process was killed, which its own status tells.
    pub fn read(&mut self) -> io::Result<(i32, bool)> {
        let mut end = Pair::default();
        self.0.read_exact(&mut end)?;
        let (status, alone) = numbers(end);
        Ok((status, alone != 0))
    }
}

/// Nobody has one.
#[cfg(not(all(target_os = "linux", not(portable))))]
pub enum House {}

#[cfg(not(all(target_os = "linux", not(portable))))]
#[allow(missing_docs)]
impl House {
    pub fn new() -> Result<House, Fail> {
        let text = "cannot contain the command: this system has no pid namespaces";
        Err(Fail::new(reap::exit::Status::Broken, text))
    }

    pub fn fork(&mut self) -> Result<i32, Fail> {
        match *self {}
    }

    pub fn report(self) -> Report {
        match self {}
    }

    pub fn keep(&self, _: [RawFd; 2], _: bool, _: &mut dyn FnMut() -> Errno) -> ! {
        match *self {}
    }
}
