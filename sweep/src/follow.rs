//! Stays, and hands each result over as its job ends.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use jobdir::root::Root;
use jobdir::watch::Watch;
use reap::exit::{Fail, Status};

use crate::handler::Turn;
use crate::pass::{self, Offer, Order};

/// When a result that was not taken is offered again.
const AGAIN: Duration = Duration::from_secs(60);

/// A claim in one of the roots.
type Key = (usize, String, Option<String>);

/// Makes a pass whenever something has happened, until as many results as `order` allows are taken. `before` opens
/// each pass over a root, and `take` says whether a result is dealt with.
pub fn follow(
    roots: &[Root],
    order: &Order<'_>,
    before: &mut dyn FnMut(&Root) -> Result<Option<Turn>, Fail>,
    take: &mut dyn FnMut(&Root, &Offer<'_>) -> Result<bool, Fail>,
) -> Result<Status, Fail> {
    let cannot = |e: std::io::Error| Fail::cannot("follow", "the job root", &e);
    let mut watch = Watch::new().map_err(cannot)?;
    for root in roots {
        watch.root(root.jobs.as_fd()).map_err(cannot)?;
    }
    let whole = Order { limit: usize::MAX, ..*order };
    let mut left = order.limit;
    let mut taken: HashSet<Key> = HashSet::new();
    let mut known: HashSet<Key> = HashSet::new();
    loop {
        watch.clear();
        let mut present = HashSet::new();
        let mut living = HashSet::new();
        for (at, root) in roots.iter().enumerate() {
            let turn = before(root)?;
            let mut refused = false;
            pass::pass(
                root,
                &whole,
                &mut |offer| {
                    let key = (at, offer.job.id.clone(), offer.claim.clone());
                    if taken.contains(&key) {
                        present.insert(key);
                    } else if left > 0 && take(root, offer)? {
                        left -= 1;
                        present.insert(key);
                    } else {
                        refused = true;
                    }
                    Ok(())
                },
                &mut |job, live| {
                    let key = (at, job.id.clone(), Some(live.meta.claim.clone()));
                    if !known.contains(&key) {
                        pass::report_overdue(job, live);
                    }
                    living.insert(key);
                    watch.job(job, live).map_err(cannot)
                },
            )?;
            drop(turn);
            if refused {
                watch.at(Instant::now() + AGAIN);
            }
        }
        (taken, known) = (present, living);
        if left == 0 {
            return Ok(Status::Done);
        }
        watch.wait().map_err(cannot)?;
    }
}
