//! Records an end by hand, for a job that has no living owner: another host's that is known to be dead, say.

use std::time::Duration;

use reap::exit::{Fail, Status};

use crate::commit::{self, Outcome};
use crate::job::Job;
use crate::owner::Lock;
use crate::record::{End, Reason};
use crate::settle;
use crate::word::Word;

/// What is to be recorded.
pub struct Verdict {
    /// The terminal word.
    pub word: Word,
    /// The command's exit status, where it is known.
    pub exit_code: Option<i32>,
    /// One line for people.
    pub error: Option<String>,
}

/// Commits the record. A job with a living owner, or with a record, is refused. What is left of the job on this
/// machine is ended first.
pub fn finish(job: &Job, verdict: Verdict) -> Result<(), Fail> {
    let broken = |why: String| Fail::new(Status::Broken, format!("cannot finish job {}: {why}", job.id));
    let ended = || Fail::new(Status::Taken, format!("cannot finish job {}: it has ended already", job.id));
    let meta = job.meta().map_err(|trouble| broken(trouble.text().to_owned()))?;
    let lock = Lock::take(job, Duration::from_secs(1)).map_err(|e| broken(reap::exit::reason(&e)))?;
    let Some(_lock) = lock else {
        return Err(Fail::new(Status::Taken, format!("cannot finish job {}: its owner lives", job.id)));
    };
    if job.record().map_err(|trouble| broken(trouble.text().to_owned()))?.is_some() {
        return Err(ended());
    }
    let owner = job.owner().map_err(|trouble| broken(trouble.text().to_owned()))?;
    let warnings = settle::end_remains_of(&meta, owner.as_ref()).map_err(|e| broken(reap::exit::reason(&e)))?;
    let mut end = End::new(verdict.word, Reason::Finished, verdict.error);
    end.exit_code = verdict.exit_code;
    end.warnings = warnings;
    match commit::conclude(job, &meta, owner.as_ref(), end) {
        Ok(Outcome::Won) => Ok(()),
        Ok(Outcome::Lost) => Err(ended()),
        Err(e) => Err(broken(reap::exit::reason(&e))),
    }
}
