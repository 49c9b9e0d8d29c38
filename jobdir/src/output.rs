//! The delegate's own output: taken, checked, published whole, and read once at the end.
//!
//! `meta.json`, which never changes, doubles as the lock between a publication and the verdict: what
//! `put` has reported as published stands in the record, and what comes later is refused.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use fs2::FileExt;
use nix::fcntl::OFlag;
use reap::exit::{Fail, Status};

use crate::files;
use crate::job::{Job, Trouble};
use crate::json;
use crate::settle::{self, State};

/// The size that an output may have unless the watchdog is told otherwise: 16 MiB.
pub const DEFAULT_LIMIT: u64 = 16 << 20;

/// The size that no output may have.
pub const GREATEST_LIMIT: u64 = 64 << 20;

/// The variable that tells a job's processes the size that its watchdog takes.
pub const LIMIT: &str = "JOB_MAX_OUTPUT";

/// Publishes one JSON document as the job's output. After the verdict it is refused, and so is anything that
/// is not exactly one document, or larger than the watchdog takes; what was published before then stays.
pub fn put(job: &Job, from: &mut dyn Read, what: &str) -> Result<(), Fail> {
    let refused = |why: String| Fail::new(Status::No, format!("cannot publish {what}: {why}"));
    let limit = std::env::var(LIMIT).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_LIMIT);
    let limit = limit.min(GREATEST_LIMIT);
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Fail::cannot("read", what, &e))?;
    if bytes.len() as u64 > limit {
        return Err(refused(format!("it is larger than {limit} bytes")));
    }
    let document = json::document(&bytes).map_err(refused)?;
    let cannot = |e: io::Error| Fail::cannot("publish the output of job", &job.id, &e);
    let ended = || Fail::new(Status::Taken, format!("cannot publish the output of job {}: it has ended", job.id));
    match settle::settle_one(job) {
        State::Live(_) => {}
        State::Ended(_) => return Err(ended()),
        state => return state.failure("publish the output of", job).map_or(Ok(()), Err),
    }
    let lock = File::from(files::open(job.fd(), files::META, OFlag::O_RDONLY).map_err(cannot)?);
    FileExt::lock_exclusive(&lock).map_err(cannot)?;
    let has_ended = || files::look(job.fd(), files::RESULT).map(|found| found.is_some()).map_err(cannot);
    if has_ended()? {
        return Err(ended());
    }
    files::replace(job.fd(), files::OUTPUT, format!("{document}\n").as_bytes(), true).map_err(cannot)?;
    files::sync(&job.dir).map_err(cannot)?;
    // An end that ran out of patience with us was recorded without this output.
    if has_ended()?
        && !job.record().ok().flatten().is_some_and(|record| record.text.contains(&*json::one_line(document)))
    {
        return Err(ended());
    }
    Ok(())
}

/// Keeps publications out while an end is recorded. A publisher that was stopped half-way cannot hold the end up
/// for more than a second.
pub fn close(job: &Job) -> Option<File> {
    let lock = File::from(files::open(job.fd(), files::META, OFlag::O_RDONLY).ok()?);
    files::lock_within(Duration::from_secs(1), || FileExt::try_lock_exclusive(&lock)).ok()??;
    Some(lock)
}

/// The output on one line: what the command wrote to a standard output that is captured, else what was published;
/// `None` where there is neither.
pub fn published(job: &Job, limit: u64) -> Result<Option<String>, Trouble> {
    let read = |name: &str| match files::read(job.fd(), name, limit) {
        Ok(bytes) if bytes.is_empty() && name == files::STDOUT => Ok(None),
        Ok(bytes) => {
            json::document(&bytes).map(|text| Some(json::one_line(text).into_owned())).map_err(Trouble::Damaged)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Trouble::of(name, &e)),
    };
    match read(files::STDOUT) {
        Ok(None) => read(files::OUTPUT),
        // Noise on standard output does not hide a document that was put.
        Err(Trouble::Damaged(why)) => match read(files::OUTPUT) {
            Ok(None) | Err(Trouble::Damaged(_)) => Err(Trouble::Damaged(format!("standard output: {why}"))),
            settled => settled,
        },
        settled => settled,
    }
}
