//! Turns jobs that have ended into JSON lines, and takes the word of whoever has dealt with them.
//!
//! Delivery is at least once. A line in a pipe is not delivered: only an acknowledgement moves a job out of the way
//! ([`ack`]), given by a consumer, or by a handler that exits with 0 ([`handler`]). [`pass`] is one look at a root.

pub mod ack;
pub mod args;
pub mod deliver;
pub mod follow;
pub mod handler;
pub mod line;
pub mod pass;
