//! A handler: run once for each result, with the line on its standard input. Its exit status 0 is the
//! acknowledgement.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use detach::exec::{Prepared, default_signal};
use fs2::FileExt;
use jobdir::delivery;
use jobdir::files;
use jobdir::job::Job;
use jobdir::root::Root;
use nix::errno::Errno;
use reap::exit::{Fail, Status, complain, reason};
use reap::process;

/// The turn of one handler sweep of a root: overlapping ticks wait for each other, and do not send twice.
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for the turn.
    pub fn take(root: &Root) -> Result<Turn, Fail> {
        let take = || {
            let dir = File::from(files::open_dir(root.jobs.as_fd(), ".")?);
            FileExt::lock_exclusive(&dir)?;
            Ok(Turn { _lock: dir })
        };
        take().map_err(|e: io::Error| Fail::cannot("lock", root.path.display(), &e))
    }
}

/// Counts one more attempt before it is made, so that one which kills us counts too. Returns its number.
pub fn attempt(job: &Job) -> u64 {
    let attempt = delivery::attempts(job).saturating_add(1);
    if let Err(e) = delivery::count(job, attempt) {
        complain("sweep", &format!("warning: cannot count attempt {attempt} of job {}: {}", job.id, reason(&e)));
    }
    attempt
}

/// Offers one line; says whether it was taken. A handler that cannot be run at all, or can take nothing now, ends the
/// sweep.
pub fn offer(handler: &[OsString], line: &str) -> Result<bool, Fail> {
    let Some((name, arguments)) = handler.split_first() else { return Ok(false) };
    let cannot = |e: &io::Error| Fail::cannot("run handler", name.display(), e);
    // A file, not a pipe: a handler that does not read its input must not hold us up.
    let mut input = nameless().map_err(|e| cannot(&e))?;
    input
        .write_all(line.as_bytes())
        .and_then(|()| input.write_all(b"\n"))
        .and_then(|()| input.rewind())
        .map_err(|e| cannot(&e))?;
    // A caller that ignores it would have the handler vanish before it could be waited for.
    default_signal(libc::SIGCHLD);
    let mut command = Command::new(name);
    // What we ignore, and what we make of the umask, is not the handler's affair.
    let umask = process::callers_umask();
    // SAFETY: two system calls, and nothing else, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            default_signal(libc::SIGXFSZ);
            if let Some(mask) = umask {
                libc::umask(mask);
            }
            Ok(())
        });
    }
    match command.args(arguments).stdin(input).status() {
        // EX_TEMPFAIL of sysexits(3): whoever it hands results to is not there, so the next one would fare no better.
        Ok(status) if status.code() == Some(Status::NotYet as i32) => {
            let text = format!("cannot deliver: handler {} can take nothing now", name.display());
            Err(Fail::new(Status::NotYet, text))
        }
        Ok(status) => Ok(status.success()),
        Err(e) => Err(unrunnable(handler, &e).unwrap_or_else(|| cannot(&e))),
    }
}

/// A file that nobody else can open.
#[cfg(all(target_os = "linux", not(portable)))]
fn nameless() -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(memfd_create("line", MFdFlags::MFD_CLOEXEC).map(File::from)?)
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn nameless() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::env::temp_dir().join(files::hidden("sweep.")?);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path).map(|()| file)
}

/// The status and the words for a handler that cannot be run; `None` where nothing can be run at all.
fn unrunnable(handler: &[OsString], error: &io::Error) -> Option<Fail> {
    let errno = Errno::from_raw(error.raw_os_error()?);
    let refusal = Prepared::new(handler, &[]).map_or_else(|refusal| refusal, |handler| handler.refusal(errno, None));
    Some(Fail { status: refusal.status, text: refusal.text })
}
