//! Runs one command under an idle limit and a hard limit, and reports exactly one honest end.
//!
//! [`watch`] decides what ended the command, once, and ends its tree. Below it, silence.rs knows when something last
//! moved, bell.rs what has happened to us and to our children, and hollow.rs keeps a log's head and tail; delegate.rs
//! starts the command, house.rs gives it a pid namespace of its own; owned.rs is the job directory's side: ownership at
//! the start, the record at the end.
//!
//! ```
//! use lexopt::Parser;
//! use watchdog::args::{self, Ask};
//! use watchdog::watch::until_done;
//!
//! let line = ["--hard", "200ms", "--", "sh", "-c", "sleep 600 & sleep 600"];
//! let Ask::Run(args) = args::parse(Parser::from_args(line))? else { panic!("no run") };
//! assert_eq!(until_done(&args, None)?, 124); // a limit was hit, and nobody is left
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The process becomes the watchdog: it has one thread, its signals are read from a descriptor, and orphans below it
//! become its children. To go on with other work, start the program, by [`detach::launch`] say.

pub mod args;
mod bell;
mod contain;
mod delegate;
mod hollow;
#[cfg(all(target_os = "linux", not(portable)))]
mod house;
mod inbox;
mod owned;
pub mod ready;
mod silence;
pub mod watch;
