//! Stays, and hands each result over as its job ends.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use jobdir::root::Root;
use jobdir::watch::Watch;
use reap::exit::{Fail, Status};

use crate::pass::{self, Offer, Order};

/// When a result that was not taken is offered again.
const AGAIN: Duration = Duration::from_secs(60);

/// Makes a pass whenever something has happened. `before` opens each pass over a root, and
/// `take` says whether a result is dealt with.
pub fn follow(
    roots: &[Root],
    order: &Order<'_>,
    before: &mut dyn FnMut(&Root) -> Result<Option<crate::handler::Turn>, Fail>,
    take: &mut dyn FnMut(&Root, &Offer<'_>) -> Result<bool, Fail>,
) -> Result<Status, Fail> {
    let cannot = |e: std::io::Error| Fail::cannot("follow", "the job root", &e);
    let mut watch = Watch::new().map_err(cannot)?;
    for root in roots {
        watch.directory(root.jobs.as_fd()).map_err(cannot)?;
    }
    let mut taken: HashSet<(usize, String, Option<String>)> = HashSet::new();
    let mut watched: HashSet<(usize, String)> = HashSet::new();
    loop {
        watch.clear();
        let mut present = HashSet::new();
        for (at, root) in roots.iter().enumerate() {
            let turn = before(root)?;
            let mut refused = false;
            pass::pass(
                root,
                order,
                &mut |offer| {
                    let key = (at, offer.job.id.clone(), offer.claim.clone());
                    if taken.contains(&key) || take(root, offer)? {
                        present.insert(key);
                    } else {
                        refused = true;
                    }
                    Ok(())
                },
                &mut |job, live| {
                    // What happened between the look and the watch would be missed: a new watch asks for a new look.
                    if watched.insert((at, job.id.clone())) {
                        watch.directory(job.fd()).map_err(cannot)?;
                        watch.at(Instant::now());
                    }
                    watch.job(job, live).map_err(cannot)
                },
            )?;
            drop(turn);
            if refused {
                watch.at(Instant::now() + AGAIN);
            }
        }
        taken = present;
        watch.wait().map_err(cannot)?;
    }
}
