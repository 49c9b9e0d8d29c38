//! delivery.json: how often a handler was tried on a job's result.

use std::io;

use reap::here;

use crate::files;
use crate::job::Job;
use crate::json::{self, Object};
use crate::moment;

/// How often; 0 where nothing can be read.
pub fn attempts(job: &Job) -> u64 {
    let file = files::read(job.fd(), files::DELIVERY, files::SMALL).unwrap_or_default();
    let text = String::from_utf8(file).unwrap_or_default();
    json::fields(&text).ok().and_then(|fields| json::whole(&fields, "attempts")).unwrap_or(0)
}

/// Writes down that this many were made.
pub fn count(job: &Job, attempts: u64) -> io::Result<()> {
    let text = Object::new()
        .value("version", Some(1))
        .value("attempts", Some(attempts))
        .text("last_at", &moment::rfc3339(here::wall()))
        .end();
    files::replace(job.fd(), files::DELIVERY, format!("{text}\n").as_bytes(), false)
}
