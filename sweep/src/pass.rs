//! One pass over a root: settle what has died, then hand over what has ended, in the order of ids.
//!
//! Names are held, results are not. As long as everything has ended, each directory is opened once; the first
//! one that has not is the occasion to settle all that have not, side by side.

use std::borrow::Cow;
use std::collections::HashMap;

use jobdir::commit;
use jobdir::job::{Job, Trouble};
use jobdir::root::Root;
use jobdir::settle::{self, Live, State};
use jobdir::word::Word;
use reap::exit::{Fail, complain, reason};
use reap::process::{MoreDescriptors, side_by_side};

use crate::handler;
use crate::line;

/// What is asked of a pass.
pub struct Order<'a> {
    /// Results of this name alone.
    pub name: Option<&'a str>,
    /// At most so many results.
    pub limit: usize,
    /// Whether each result is an attempt at a delivery, to be counted.
    pub counted: bool,
}

/// A result to hand over.
pub struct Offer<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its claim's token; `None` where even that cannot be read.
    pub claim: Option<String>,
    /// What is wrong with it, where its end cannot be read.
    pub damage: Option<&'a str>,
    /// What to say, without a line end.
    pub line: &'a dyn Fn() -> Cow<'a, str>,
}

impl Offer<'_> {
    /// Reports damage on standard error, for whoever does not read the lines.
    pub fn report(&self) {
        if let Some(why) = self.damage {
            complain("sweep", &format!("cannot read the end of job {}: {why}", self.job.id));
        }
    }
}

/// Reports a live job that is past its supervisor's windows, on standard error.
pub fn report_overdue(job: &Job, live: &Live) {
    if live.overdue {
        complain("sweep", &format!("warning: job {} is overdue, and cannot be judged from here", job.id));
    }
}

/// What a pass has come to.
#[derive(Default)]
pub struct Outcome {
    /// How many results were handed over.
    pub offered: usize,
    /// Whether anything could not be read.
    pub trouble: bool,
}

/// Why a job is not handed over as a record.
enum Aside {
    Waits,
    Damaged(String),
    Unclear(String),
}

/// Makes one pass. `take` gets each result; `alive` gets each job that goes on.
pub fn pass(
    root: &Root,
    order: &Order<'_>,
    take: &mut dyn FnMut(&Offer<'_>) -> Result<(), Fail>,
    alive: &mut dyn FnMut(&Job, &Live) -> Result<(), Fail>,
) -> Result<Outcome, Fail> {
    let ids = root.ids().map_err(|e| Fail::cannot("list", root.path.display(), &e))?;
    let mut outcome = Outcome::default();
    let mut aside: Option<HashMap<usize, Aside>> = None;
    for (index, id) in ids.iter().enumerate() {
        if outcome.offered >= order.limit {
            // A limit on results is no limit on settling.
            if aside.is_none() {
                settle_from(root, &ids, index, alive)?;
            }
            break;
        }
        if matches!(aside.as_ref().and_then(|aside| aside.get(&index)), Some(Aside::Waits)) {
            continue;
        }
        let job = match root.pending(id) {
            Ok(Some(job)) => job,
            // Foreign, or acknowledged in the meantime.
            Ok(None) => continue,
            Err(e) => {
                outcome.complain(id, &format!("it cannot be opened: {}", reason(&e)));
                continue;
            }
        };
        let ended = is_end(&job.word());
        if aside.is_none() && !ended {
            aside = Some(settle_from(root, &ids, index, alive)?);
        }
        match aside.as_mut().and_then(|aside| aside.remove(&index)) {
            Some(Aside::Waits) => {}
            Some(Aside::Unclear(why)) => outcome.complain(id, &why),
            Some(Aside::Damaged(why)) => outcome.damaged(&job, &why, order, take)?,
            None => outcome.recorded(&job, ended, order, take)?,
        }
    }
    Ok(outcome)
}

fn is_end(word: &Result<Word, Trouble>) -> bool {
    word.as_ref().is_ok_and(|word| word.is_terminal())
}

/// Settles all that have not ended, from here on.
fn settle_from(
    root: &Root,
    ids: &[String],
    from: usize,
    alive: &mut dyn FnMut(&Job, &Live) -> Result<(), Fail>,
) -> Result<HashMap<usize, Aside>, Fail> {
    let mut aside = HashMap::new();
    let _descriptors = MoreDescriptors::allow();
    let most = side_by_side();
    let (mut some, mut words) = (Vec::new(), Vec::new());
    for (index, id) in ids.iter().enumerate().skip(from) {
        match root.pending(id) {
            Ok(Some(job)) => {
                let word = job.word();
                if !is_end(&word) {
                    some.push((index, job));
                    words.push(word);
                }
            }
            Ok(None) => {}
            Err(e) => {
                aside.insert(index, Aside::Unclear(format!("it cannot be opened: {}", reason(&e))));
            }
        }
        if some.len() == most || index + 1 == ids.len() {
            let jobs: Vec<&Job> = some.iter().map(|(_, job)| job).collect();
            let states = settle::settle_read(&jobs, std::mem::take(&mut words));
            for ((index, job), state) in some.drain(..).zip(states) {
                let why = match state {
                    State::Ended(_) => continue,
                    State::Foreign => Aside::Waits,
                    State::Live(live) => {
                        alive(&job, &live)?;
                        Aside::Waits
                    }
                    State::Damaged(why) => Aside::Damaged(why),
                    State::Unclear(why) => Aside::Unclear(why),
                };
                aside.insert(index, why);
            }
        }
    }
    Ok(aside)
}

impl Outcome {
    fn complain(&mut self, id: &str, why: &str) {
        complain("sweep", &format!("cannot read job {id}: {why}"));
        self.trouble = true;
    }

    /// Hands over the record of a job that has ended; `ended`: its status said so before.
    fn recorded(
        &mut self,
        job: &Job,
        ended: bool,
        order: &Order<'_>,
        take: &mut dyn FnMut(&Offer<'_>) -> Result<(), Fail>,
    ) -> Result<(), Fail> {
        let record = match job.record() {
            // Without its view a record may not be on the disk yet, and must be before anybody acts on it.
            Ok(Some(record)) if !ended && !is_end(&job.word()) => match commit::complete_view(job, record.word) {
                Ok(()) => record,
                Err(e) => {
                    self.complain(&job.id, &reason(&e));
                    return Ok(());
                }
            },
            Ok(Some(record)) => record,
            Ok(None) if ended || is_end(&job.word()) => {
                return self.damaged(job, "its status is terminal, and there is no record", order, take);
            }
            // Its id has come to stand for a new claim since the others were settled.
            Ok(None) => return Ok(()),
            Err(Trouble::Damaged(why)) => return self.damaged(job, &why, order, take),
            Err(Trouble::Unreadable(why)) => {
                self.complain(&job.id, &why);
                return Ok(());
            }
        };
        if order.name.is_some_and(|name| record.name.as_deref() != Some(name)) {
            return Ok(());
        }
        self.offered += 1;
        let claim = Some(record.claim.clone());
        let line = || line::of_record(job, &record, order.counted.then(|| handler::attempt(job)));
        take(&Offer { job, claim, damage: None, line: &line })
    }

    /// Hands over a job whose end cannot be read, as what it is.
    fn damaged(
        &mut self,
        job: &Job,
        why: &str,
        order: &Order<'_>,
        take: &mut dyn FnMut(&Offer<'_>) -> Result<(), Fail>,
    ) -> Result<(), Fail> {
        let meta = job.meta().ok();
        if order.name.is_some() && meta.as_ref().and_then(|meta| meta.name.as_deref()) != order.name {
            return Ok(());
        }
        self.trouble = true;
        self.offered += 1;
        let claim = meta.as_ref().map(|meta| meta.claim.clone());
        let line = || line::of_damage(job, meta.as_ref(), why, order.counted.then(|| handler::attempt(job))).into();
        take(&Offer { job, claim, damage: Some(why), line: &line })
    }
}
