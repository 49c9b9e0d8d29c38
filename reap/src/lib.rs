//! The ground floor: which process is which, what hangs below it, and how a whole tree ends.
//!
//! A number alone is never trusted: a process is its pid and its start time ([`process::Proc`]), held
//! by a pidfd while it is dealt with ([`process::Pin`]). [`tree`] reads the process table, [`hunt`] ends
//! what a caller points at in it; where there is no /proc, [`ps`] asks ps(1). [`start`], [`duration`], [`here`] and
//! [`exit`] are what all the tools share: how they begin, durations as people write them, the machine we run on,
//! statuses and messages.

pub mod args;
pub mod duration;
pub mod exit;
pub mod here;
pub mod hunt;
pub mod process;
pub mod ps;
pub mod start;
pub mod tree;
pub mod words;

/// Whether Linux itself is asked (/proc, pidfds, file events, a subreaper), and not only what every Unix has. Off with
/// `--cfg portable` too, so that whatever other systems get is built and tested here.
pub const LINUX: bool = cfg!(all(target_os = "linux", not(portable)));
