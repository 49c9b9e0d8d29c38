//! The ground floor: which process is which, what hangs below it, and how a whole tree ends.
//!
//! A number alone is never trusted: a process is its pid and its start time ([`process::Proc`]), held
//! by a pidfd while it is dealt with ([`process::Pin`]). [`tree`] reads the process table, [`hunt`] ends
//! what a caller points at in it. [`start`], [`duration`], [`here`] and [`exit`] are what all the
//! tools share: how they begin, durations as people write them, the machine we run on, statuses and messages.

pub mod args;
pub mod duration;
pub mod exit;
pub mod here;
pub mod hunt;
pub mod process;
pub mod start;
pub mod tree;
pub mod words;
