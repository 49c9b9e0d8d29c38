//! The ground floor: which process is which, what hangs below it, and how a whole tree ends.
//!
//! A number alone is never trusted: a process is its pid and its start time ([`process::Proc`]), held
//! by a pidfd while it is dealt with ([`process::Pin`]). [`tree`] reads the process table, [`hunt`] ends
//! what a caller points at in it; where there is no /proc, [`ps`] asks ps(1). [`start`], [`duration`], [`here`] and
//! [`exit`] are what all the tools share: how they begin, durations as people write them, the machine we run on,
//! statuses and messages.
//!
//! A process ends with all that hangs below it:
//!
//! ```
//! use std::process::Command;
//! use std::time::Duration;
//!
//! use reap::hunt::{self, Fate, Plan};
//!
//! let mut child = Command::new("sleep").arg("600").spawn()?;
//! let pid = i32::try_from(child.id())?;
//!
//! // TERM, deepest first; after five seconds KILL, until a listing finds nobody.
//! let members = hunt::end(&mut |_| vec![pid], &mut Plan::after(Duration::from_secs(5)))?;
//! assert!(members.iter().all(|member| member.fate != Fate::Survived));
//! child.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here waits for a child of the caller's: a zombie has ended, and is its parent's to collect.

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
