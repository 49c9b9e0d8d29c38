//! Start a command in a session of its own, and say truthfully whether it started.
//!
//! [`launch::start`] is the tool; [`exec`] is what others may use of it: a command made ready before
//! a fork, and the status and the words for one that cannot run.
//!
//! ```
//! use detach::args::Args;
//! use detach::launch;
//!
//! # let folder = tempfile::tempdir()?;
//! let log = folder.path().join("log");
//! let args = Args { output: Some(log), command: vec!["sleep".into(), "0".into()], ..Args::default() };
//! let pid = launch::start(&args)?; // the exec has happened, and nobody waits for it
//! assert!(pid > 1);
//!
//! let missing = Args { command: vec!["/no/such/program".into()], ..Args::default() };
//! assert_eq!(launch::start(&missing).unwrap_err().status, 127); // and nothing was left behind
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The caller has one thread: its children work in its memory for a moment.

pub mod args;
mod borrow;
pub mod exec;
pub mod launch;
mod ready;
pub mod refusal;
mod report;
mod streams;
