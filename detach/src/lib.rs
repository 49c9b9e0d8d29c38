//! Start a command in a session of its own, and say truthfully whether it started.
//!
//! [`launch::start`] is the tool; [`exec`] is what others may use of it: a command made ready before
//! a fork, and the status and the words for one that cannot run.

pub mod args;
mod borrow;
pub mod exec;
pub mod launch;
mod ready;
pub mod refusal;
mod report;
mod streams;
