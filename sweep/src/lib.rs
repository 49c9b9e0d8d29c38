//! Turns jobs that have ended into JSON lines, and takes the word of whoever has dealt with them.
//!
//! Delivery is at least once. A line in a pipe is not delivered: only an acknowledgement moves a job out of the way
//! ([`ack`]), given by a consumer, or by a handler that exits with 0 ([`handler`]). [`pass`] is one look at a root.
//!
//! ```
//! use jobdir::root::Root;
//! use sweep::pass::{Order, pass};
//! # use jobdir::claim::{Claimed, Order as Claim, claim};
//! # use jobdir::finish::{Verdict, finish};
//! # use jobdir::windows::{Flags, Limits};
//! # use jobdir::word::Word;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("root");
//! # let windows = Limits::choose(&Flags::default(), &|_| None, &mut |_| {}).into();
//! # let order = Claim { id: None, name: None, meta: "{}".into(), windows, input: None };
//! # let Claimed::Ours(job) = claim(&Root::create(&path)?, order)? else { panic!("a minted id is taken") };
//! # finish(&job, Verdict { word: Word::Done, exit_code: Some(0), error: None })?;
//!
//! let root = Root::open(&path)?.expect("a root with jobs in it");
//! let order = Order { name: None, limit: usize::MAX, counted: false };
//! let mut store = Vec::new();
//! let swept = pass(
//!     &root,
//!     &order,
//!     &mut |offer| {
//!         store.push((offer.line)().into_owned()); // first it is safe elsewhere,
//!         root.acknowledge(offer.job).expect("a move to delivered/"); // and then it is delivered
//!         Ok(())
//!     },
//!     &mut |job, live| Ok(eprintln!("{} goes on, silent for {:?}", job.id, live.silent)),
//! )?;
//! assert_eq!((swept.offered, store.len()), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod ack;
pub mod args;
pub mod deliver;
mod follow;
pub mod handler;
mod line;
pub mod pass;
