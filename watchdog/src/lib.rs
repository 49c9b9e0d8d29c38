//! Runs one command under an idle limit and a hard limit, and reports exactly one honest end.
//!
//! [`silence`] knows when something last moved. [`bell`] knows what has happened to us and to our children.
//! [`delegate`] starts the command, and [`contain::House`] gives it a pid
//! namespace of its own. [`hollow`] keeps a log's head and tail. [`watch`] decides what ended it, once, and ends its tree. [`owned`] is the
//! job directory's side: ownership at the start, the record at the end.
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
