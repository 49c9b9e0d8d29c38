//! The delegate's own output: taken, checked, published whole, and read once at the end.
//!
//! `meta.json`, which never changes, doubles as the lock between a publication and the verdict: what
//! `put` has reported as published stands in the record, and what comes later is refused.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use fs2::FileExt;
use nix::fcntl::OFlag;
use reap::exit::{Fail, Status};

use crate::files;
use crate::job::Job;
use crate::json;
use crate::settle::{self, State};

/// The size that an output may have unless the watchdog is told otherwise: 16 MiB.
pub const DEFAULT_LIMIT: u64 = 16 << 20;

/// The size that no output may have.
pub const GREATEST_LIMIT: u64 = 64 << 20;

/// Publishes one JSON document as the job's output. After the verdict it is refused, and so is anything that
/// is not exactly one document; what was published before then stays.
pub fn put(job: &Job, from: &mut dyn Read, what: &str) -> Result<(), Fail> {
    let mut bytes = Vec::new();
    from.take(GREATEST_LIMIT + 1).read_to_end(&mut bytes).map_err(|e| Fail::cannot("read", what, &e))?;
    if bytes.len() as u64 > GREATEST_LIMIT {
        return Err(Fail::new(Status::No, format!("cannot publish {what}: it is larger than {GREATEST_LIMIT} bytes")));
    }
    let document =
        json::document(&bytes).map_err(|why| Fail::new(Status::No, format!("cannot publish {what}: {why}")))?;
    let cannot = |e: io::Error| Fail::cannot("publish the output of job", &job.id, &e);
    let ended = || Fail::new(Status::Taken, format!("cannot publish the output of job {}: it has ended", job.id));
    match settle::settle_one(job) {
        State::Live(_) => {}
        State::Ended(_) => return Err(ended()),
        State::Damaged(why) | State::Unclear(why) => {
            return Err(Fail::new(Status::Broken, format!("job {}: {why}", job.id)));
        }
        State::Foreign => return Err(Fail::new(Status::NoJob, format!("no such job: {}", job.id))),
    }
    let lock = File::from(files::open(job.fd(), files::META, OFlag::O_RDONLY).map_err(cannot)?);
    FileExt::lock_exclusive(&lock).map_err(cannot)?;
    if files::look(job.fd(), files::RESULT).map_err(cannot)?.is_some() {
        return Err(ended());
    }
    files::replace(job.fd(), files::OUTPUT, format!("{document}\n").as_bytes(), true).map_err(cannot)?;
    files::sync(&job.dir).map_err(cannot)
}

/// Keeps publications out while an end is recorded. A publisher that was stopped half-way cannot hold the end up
/// for more than a second.
pub fn close(job: &Job) -> Option<File> {
    let lock = File::from(files::open(job.fd(), files::META, OFlag::O_RDONLY).ok()?);
    let deadline = Instant::now() + Duration::from_secs(1);
    while FileExt::try_lock_exclusive(&lock).is_err() {
        if Instant::now() >= deadline {
            return None;
        }
        // A lock that is freed gives no event, and a blocking flock has no time limit.
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(lock)
}

/// The output on one line: what the command wrote to a standard output that is captured, else what was published;
/// `None` where there is neither. The error says what is wrong with it.
pub fn published(job: &Job, limit: u64) -> Result<Option<String>, String> {
    for (name, what) in [(files::STDOUT, "standard output: "), (files::OUTPUT, "")] {
        match files::read(job.fd(), name, limit) {
            Ok(bytes) if bytes.is_empty() && name == files::STDOUT => {}
            Ok(bytes) => {
                let document = json::document(&bytes).map_err(|why| format!("{what}{why}"))?;
                return Ok(Some(json::one_line(document).into_owned()));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{what}{}", reap::exit::reason(&e))),
        }
    }
    Ok(None)
}
