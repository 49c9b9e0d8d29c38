//! The contract of a job directory, in code. Every tool opens jobs through this crate, and nothing else
//! spells a file name of one ([`files`]).
//!
//! The file system is the database: a rename is the claim ([`claim`]), the kernel's lock is the proof of life
//! ([`owner`]), a link is the commit ([`commit`]), a rename is the acknowledgement ([`root`]). Whoever looks at a
//! job first brings it up to date, all through one function ([`settle`]).
//!
//! ```
//! use jobdir::claim::{Claimed, Order, claim};
//! use jobdir::finish::{Verdict, finish};
//! use jobdir::root::Root;
//! use jobdir::settle::{State, settle_one};
//! use jobdir::windows::{Flags, Limits};
//! use jobdir::word::Word;
//!
//! # let folder = tempfile::tempdir()?;
//! let root = Root::create(&folder.path().join("root"))?;
//! let limits = Limits::choose(&Flags::default(), &|_| None, &mut |warning| eprintln!("{warning}"));
//! let order = || Order {
//!     id: Some("deploy-7".into()),
//!     name: Some("deploy".into()),
//!     meta: "{\"commit\":\"f6c943f\"}".into(),
//!     windows: limits.clone().into(),
//!     input: None,
//! };
//! let Claimed::Ours(job) = claim(&root, order())? else { panic!("somebody else has it") };
//! assert!(matches!(claim(&root, order())?, Claimed::Taken(..))); // an id is claimed once
//!
//! // Nobody has begun it, so its end may be recorded by hand. `watchdog` records one of its own.
//! assert!(matches!(settle_one(&job), State::Live(live) if live.word == Word::Claimed));
//! finish(&job, Verdict { word: Word::Failed, exit_code: None, error: Some("no longer wanted".into()) })?;
//! assert!(matches!(settle_one(&job), State::Ended(Word::Failed)));
//! assert_eq!(job.record().ok().flatten().map(|record| record.reason).as_deref(), Some("finished"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
