//! A handler: run once for each result, with the line on its standard input. Its exit status 0 is the
//! acknowledgement.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::process::Command;

use detach::exec::Prepared;
use fs2::FileExt;
use jobdir::files;
use jobdir::job::Job;
use jobdir::json::Object;
use jobdir::list;
use jobdir::moment;
use jobdir::root::Root;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use reap::exit::{Fail, complain, reason};
use reap::here;

/// The turn of one handler sweep of a root: overlapping ticks wait for each other, and do not send twice.
pub struct Turn(#[allow(dead_code)] File);

impl Turn {
    /// Waits for the turn.
    pub fn take(root: &Root) -> Result<Turn, Fail> {
        let take = || {
            let dir = File::from(files::open_dir(root.jobs.as_fd(), ".")?);
            FileExt::lock_exclusive(&dir)?;
            Ok(Turn(dir))
        };
        take().map_err(|e: io::Error| Fail::cannot("lock", root.path.display(), &e))
    }
}

/// Counts one more attempt before it is made, so that one which kills us counts too. Returns its number.
pub fn attempt(job: &Job) -> u64 {
    let attempt = list::attempts(job) + 1;
    let text = Object::new()
        .value("version", Some(1))
        .value("attempts", Some(attempt))
        .text("last_at", &moment::rfc3339(here::wall()))
        .end();
    if let Err(e) = files::replace(job.fd(), files::DELIVERY, format!("{text}\n").as_bytes(), false) {
        complain("sweep", &format!("warning: cannot count attempt {attempt} of job {}: {}", job.id, reason(&e)));
    }
    attempt
}

/// Offers one line; says whether it was taken. A handler that cannot be run at all ends the sweep.
pub fn offer(handler: &[OsString], line: &str) -> Result<bool, Fail> {
    let Some((name, arguments)) = handler.split_first() else { return Ok(false) };
    let cannot = |e: &io::Error| Fail::cannot("run handler", name.display(), e);
    // A file, not a pipe: a handler that does not read its input must not hold us up.
    let mut input = memfd_create("line", MFdFlags::MFD_CLOEXEC).map(File::from).map_err(|e| cannot(&e.into()))?;
    input
        .write_all(line.as_bytes())
        .and_then(|()| input.write_all(b"\n"))
        .and_then(|()| input.rewind())
        .map_err(|e| cannot(&e))?;
    match Command::new(name).args(arguments).stdin(input).status() {
        Ok(status) => Ok(status.success()),
        Err(e) => Err(unrunnable(handler, &e).unwrap_or_else(|| cannot(&e))),
    }
}

/// The status and the words for a handler that cannot be run; `None` where nothing can be run at all.
fn unrunnable(handler: &[OsString], error: &io::Error) -> Option<Fail> {
    let errno = Errno::from_raw(error.raw_os_error()?);
    let refusal = Prepared::new(handler, &[]).map_or_else(|refusal| refusal, |handler| handler.refusal(errno, None));
    Some(Fail { status: refusal.status, text: refusal.text })
}
