//! Runs one command under an idle limit and a hard limit, and reports exactly one honest end.
//!
//! [`silence`] knows when something last moved. [`bell`] knows what has happened to us and to our children.
//! [`delegate`] starts the command, and [`contain::House`] gives it a pid
//! namespace of its own. [`hollow`] keeps a log's head and tail. [`watch`] decides what ended it, once, and ends its tree. [`owned`] is the
//! job directory's side: ownership at the start, the record at the end.

pub mod args;
pub mod bell;
pub mod contain;
pub mod delegate;
pub mod hollow;
#[cfg(all(target_os = "linux", not(portable)))]
pub mod house;
mod inbox;
pub mod owned;
pub mod ready;
pub mod silence;
pub mod watch;
