//! Removes what nobody needs any more: delivered jobs that ended long ago, and claims that were never finished.
//!
//! A directory is renamed to a hidden name first, so that nobody finds half of it, and removed then. A job that is not
//! terminal, or still locked, stays.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use fs2::FileExt;
use reap::exit::Fail;
use reap::here;

use crate::files;
use crate::job::{Job, undamaged};
use crate::owner::Lock;
use crate::record::Reason;
use crate::root::{self, Root, ids};
use crate::settle;

/// What may go.
pub struct Order {
    /// How long ago the job must have ended.
    pub older_than: Duration,
    /// Terminal jobs that were not delivered too.
    pub undelivered: bool,
    /// Only say what would go.
    pub dry_run: bool,
}

/// Tells `gone` each id that was removed, and `trouble` what stood in the way of one.
pub fn prune(
    root: &Root,
    order: &Order,
    gone: &mut dyn FnMut(&str) -> Result<(), Fail>,
    trouble: &mut dyn FnMut(String),
) -> Result<(), Fail> {
    let cannot = |e: io::Error| Fail::cannot("prune", root.path.display(), &e);
    let delivered = root.delivered().map_err(cannot)?;
    let delivered = delivered.as_ref().map(AsFd::as_fd);
    let before = here::wall().saturating_sub(order.older_than);
    let pending = order.undelivered.then(|| (root.jobs.as_fd(), files::JOBS));
    for (dir, place) in delivered.map(|dir| (dir, files::DELIVERED)).into_iter().chain(pending) {
        for id in ids(dir).map_err(cannot)? {
            let opened = root.job_in(dir, place, &id);
            let removed = opened.and_then(|job| match job {
                Some(job) if may_go(&job, before)? => {
                    // Another prune may be at it, or be done with it.
                    let Some(_busy) = busy(job.dir.try_clone()?)? else { return Ok(false) };
                    if !root.holds(&job)? {
                        return Ok(false);
                    }
                    // A wedged owner may still hold it: its tree has not ended.
                    let Some(_lock) = Lock::take(&job, Duration::ZERO)? else { return Ok(false) };
                    if order.dry_run {
                        return Ok(true);
                    }
                    end_orphans(&job)?;
                    root::remove_job(&job, dir, delivered.unwrap_or(dir))
                }
                _ => Ok(false),
            });
            match removed {
                Ok(true) => gone(&id)?,
                Ok(false) => {}
                Err(e) => trouble(format!("cannot remove job {id}: {}", reap::exit::reason(&e))),
            }
        }
    }
    if !order.dry_run {
        for dir in std::iter::once(root.jobs.as_fd()).chain(delivered) {
            remove_hidden(dir, trouble);
        }
        tidy(root, root.jobs.as_fd(), files::JOBS, trouble);
        if let Some(delivered) = delivered {
            tidy(root, delivered, files::DELIVERED, trouble);
        }
    }
    Ok(())
}

/// Whether it has ended, and before then. What has died without a record is left to a sweep: here nothing is settled.
fn may_go(job: &Job, before: Duration) -> io::Result<bool> {
    let record = undamaged(job.record())?.flatten();
    let terminal = record.is_some() || undamaged(job.word())?.is_some_and(|word| word.is_terminal());
    let ended = match record.and_then(|record| record.ended_at) {
        // Of a damaged one only the directory tells.
        None => files::look(job.fd(), files::STATUS)?.map(|stat| files::changed(&stat)),
        ended => ended,
    };
    Ok(terminal && ended.is_some_and(|ended| ended <= before))
}

/// Ends what a wedged owner left that was killed before it woke: nobody else looks for it after the record.
fn end_orphans(job: &Job) -> io::Result<()> {
    let wedged = undamaged(job.record())?.flatten().is_some_and(|record| record.reason == Reason::Wedged.as_str());
    let Some(meta) = undamaged(job.meta())?.filter(|_| wedged) else { return Ok(()) };
    let left = settle::end_remains_of(&meta, job.owner()?.as_ref())?;
    left.into_iter().next().map_or(Ok(()), |survivor| Err(io::Error::other(survivor)))
}

/// A directory's lock: held by whoever makes or removes it. `None`: somebody else is at it.
fn busy(dir: OwnedFd) -> io::Result<Option<File>> {
    let dir = File::from(dir);
    match FileExt::try_lock_exclusive(&dir) {
        Err(e) if files::is_contended(&e) => Ok(None),
        locked => locked.map(|()| Some(dir)),
    }
}

/// Removes hidden directories that nobody is at work on: claims whose maker died, removals that were cut short.
fn remove_hidden(dir: BorrowedFd<'_>, trouble: &mut dyn FnMut(String)) {
    let hidden = |name: &String| name.starts_with(files::CLAIMING) || name.starts_with(files::PRUNING);
    let names = files::names(dir).unwrap_or_else(|e| {
        trouble(format!("cannot look for what is hidden: {}", reap::exit::reason(&e)));
        Vec::new()
    });
    for name in names.into_iter().filter(hidden) {
        let removed = files::open_dir(dir, name.as_str()).and_then(busy).and_then(|free| match free {
            // A claim that was finished in the meantime has another name by now, and stays.
            Some(_open) => files::remove_tree(dir, name.as_str()),
            None => Ok(()),
        });
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                trouble(format!("cannot remove {name}: {}", reap::exit::reason(&e)));
            }
            _ => {}
        }
    }
}

/// Removes files in the making that a killed writer left in jobs that have ended.
fn tidy(root: &Root, dir: BorrowedFd<'_>, place: &'static str, trouble: &mut dyn FnMut(String)) {
    let each = ids(dir).map(|ids| {
        for id in ids {
            if let Err(e) = root.job_in(dir, place, &id).and_then(|job| job.as_ref().map_or(Ok(()), tidy_job)) {
                trouble(format!("cannot tidy job {id}: {}", reap::exit::reason(&e)));
            }
        }
    });
    if let Err(e) = each {
        trouble(format!("cannot list {place}: {}", reap::exit::reason(&e)));
    }
}

fn tidy_job(job: &Job) -> io::Result<()> {
    let mut left = files::names(job.fd())?;
    left.retain(|name| name.starts_with(files::MAKING));
    if left.is_empty() || !undamaged(job.word())?.is_some_and(|word| word.is_terminal()) {
        return Ok(());
    }
    let Some(_lock) = Lock::take(job, Duration::ZERO)? else { return Ok(()) };
    left.iter().try_for_each(|name| files::remove(job.fd(), name.as_str()))
}
