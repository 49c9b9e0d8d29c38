//! The contract of a job directory, in code. Every tool opens jobs through this crate, and nothing else
//! spells a file name of one ([`files`]).
//!
//! The file system is the database: a rename is the claim ([`claim`]), the kernel's lock is the proof of life
//! ([`owner`]), a link is the commit ([`commit`]), a rename is the acknowledgement ([`root`]). Whoever looks at a
//! job first brings it up to date, all through one function ([`settle`]).

pub mod args;
pub mod cancel;
pub mod claim;
pub mod commit;
pub mod delivery;
mod events;
pub mod files;
pub mod finish;
pub mod id;
pub mod job;
pub mod json;
pub mod list;
pub mod meta;
pub mod moment;
pub mod output;
pub mod owner;
pub mod progress;
pub mod prune;
pub mod record;
pub mod root;
pub mod screen;
pub mod settle;
pub mod show;
pub mod wait;
pub mod watch;
pub mod windows;
pub mod word;
