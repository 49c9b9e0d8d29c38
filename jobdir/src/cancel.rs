//! Asks the owner of a job to stop. It reaps its tree and records the end itself.

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use reap::exit::{Fail, Status};

use crate::commit::{self, Outcome};
use crate::job::Job;
use crate::meta::Origin;
use crate::owner::Lock;
use crate::record::{End, Reason};
use crate::settle::{self, State};
use crate::word::Word;

/// Asks for the end and returns. A claimed job that nobody has started ends at once; an end that came first stands.
pub fn cancel(job: &Job) -> Result<(), Fail> {
    let cannot = |status, why: &str| Fail::new(status, format!("cannot cancel job {}: {why}", job.id));
    let broken = |e: io::Error| cannot(Status::Broken, &reap::exit::reason(&e));
    // An owner is reached by its fingerprint, which it writes right after it has taken the lock.
    let patience = Instant::now() + Duration::from_secs(1);
    loop {
        let live = match settle::settle_one(job) {
            State::Ended(_) => return Ok(()),
            State::Live(live) => live,
            state => return state.failure("cancel", job).map_or(Ok(()), Err),
        };
        let here = Origin::here().map_err(broken)?;
        if let Some(pin) = live.owner.as_ref().and_then(|owner| owner.pin(&here)) {
            match pin.signal(libc::SIGTERM) {
                Ok(()) => return Ok(()),
                Err(Errno::ESRCH) => continue,
                Err(e) => return Err(cannot(Status::No, &reap::exit::reason(&e.into()))),
            }
        }
        if live.word == Word::Claimed && live.owner.is_none() {
            let lock = Lock::take(job, Duration::ZERO).map_err(broken)?;
            // Whoever had it until now may have begun the job.
            if lock.is_some() && job.owner().map_err(|trouble| broken(trouble.into()))?.is_none() {
                let end = End::new(Word::Failed, Reason::Cancelled, "cancelled before it was started".to_owned());
                let (Outcome::Won | Outcome::Lost) = commit::conclude(job, &live.meta, None, end).map_err(broken)?;
                return Ok(());
            }
        }
        if Instant::now() >= patience {
            return Err(cannot(Status::No, "its owner cannot be reached from here"));
        }
        // The owner is between its lock and its fingerprint, which takes microseconds and gives no event.
        std::thread::sleep(Duration::from_millis(5));
    }
}
