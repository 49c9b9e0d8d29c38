//! Brings jobs up to date: completes a view, records a death, asks an owner that is suspect.
//!
//! Every tool that looks at a job looks through this one function, so that all of them say the same. Many jobs
//! are settled side by side: the leftovers of all dead ones get one grace together, and all suspicious owners are
//! asked at once.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use reap::exit::{Fail, Status, reason};
use reap::hunt::{self, Fate, Plan};
use reap::process::{self, Pin, Proc, StartedWith};
use reap::tree::Table;

use crate::commit::{self, Outcome};
use crate::files;
use crate::job::{Job, Trouble};
use crate::meta::{Meta, Origin, Relation};
use crate::owner::{self, Hold, Lock, Owner};
use crate::record::{End, Reason};
use crate::watch::Watch;
use crate::word::Word;

/// The most that the leftovers of a dead job get between TERM and KILL.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// How long an owner that is asked may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long somebody else may hold the lock of a dead job, and when the job is looked at again if he still does.
const IN_HANDS: Duration = Duration::from_secs(1);

/// How a job stands once it has been settled.
#[derive(Debug)]
pub enum State {
    /// It has ended, and its record is there.
    Ended(Word),
    /// It goes on.
    Live(Box<Live>),
    /// Its end, or what it is, cannot be read.
    Damaged(String),
    /// It cannot be told now; that proves nothing.
    Unclear(String),
    /// No job at all: foreign, and left alone.
    Foreign,
}

impl From<Trouble> for State {
    fn from(trouble: Trouble) -> State {
        match trouble {
            Trouble::Damaged(why) => State::Damaged(why),
            Trouble::Unreadable(why) => State::Unclear(why),
        }
    }
}

impl State {
    /// The failure of whoever needs to know how the job stands and cannot; `None` where it can be known.
    pub fn failure(&self, verb: &str, job: &Job) -> Option<Fail> {
        let (status, why) = match self {
            State::Ended(_) | State::Live(_) => return None,
            State::Damaged(why) | State::Unclear(why) => (Status::Broken, why.as_str()),
            State::Foreign => (Status::NoJob, "no such job"),
        };
        Some(Fail::new(status, format!("cannot {verb} job {}: {why}", job.id)))
    }
}

/// A job that goes on, or of which nothing else can be proved.
#[derive(Debug)]
pub struct Live {
    /// `claimed` or `running`.
    pub word: Word,
    /// What was fixed at its claim.
    pub meta: Meta,
    /// Its owner, where there is one.
    pub owner: Option<Owner>,
    /// Whether it is past a supervisor window and could not be judged.
    pub overdue: bool,
    /// How long until it has to be looked at again even if nothing happens; `None`: never.
    pub due: Option<Duration>,
    /// How long its owner has been at work; since its claim where it has none.
    pub age: Duration,
    /// How long nothing has been heard of it.
    pub silent: Duration,
}

/// What a first look finds.
enum Finding {
    Settled(State),
    Dead(Box<Live>, Death),
    Suspect(Box<Live>, Pin),
}

impl From<Trouble> for Finding {
    fn from(trouble: Trouble) -> Finding {
        Finding::Settled(trouble.into())
    }
}

/// This machine, read for the first job that has to be judged.
type Here = LazyCell<io::Result<Origin>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    NeverStarted,
    WorkerDied,
}

/// Settles each job and says how it stands then, in the same order.
pub fn settle(jobs: &[&Job]) -> Vec<State> {
    settle_read(jobs, jobs.iter().map(|job| job.word()).collect())
}

/// Settles jobs whose `status` has been read already.
pub fn settle_read(jobs: &[&Job], words: Vec<Result<Word, Trouble>>) -> Vec<State> {
    let here = Here::new(Origin::here);
    let mut states: Vec<Option<State>> = Vec::with_capacity(jobs.len());
    let mut dead = Vec::new();
    let mut suspects = Vec::new();
    for (index, (job, word)) in jobs.iter().zip(words).enumerate() {
        states.push(None);
        match look(job, word, &here).unwrap_or_else(Finding::from) {
            Finding::Settled(state) => states[index] = Some(state),
            // The one that we belong to is not ours to judge: its owner would wait for us.
            Finding::Dead(live, _) | Finding::Suspect(live, _) if is_ours(&live) => {
                states[index] = Some(State::Live(live))
            }
            Finding::Dead(live, death) => dead.push((index, live, death)),
            Finding::Suspect(live, pin) => suspects.push((index, live, pin)),
        }
    }
    for (index, state) in ask(jobs, suspects) {
        match state {
            Some(state) => states[index] = Some(state),
            // Its owner ended while it was asked: now there is something to see.
            None => match look(jobs[index], jobs[index].word(), &here).unwrap_or_else(Finding::from) {
                Finding::Settled(state) => states[index] = Some(state),
                Finding::Dead(live, death) => dead.push((index, live, death)),
                Finding::Suspect(live, _) => states[index] = Some(State::Live(live)),
            },
        }
    }
    // Nobody was found to be dead without it, and where nobody was, it need not be read.
    if !dead.is_empty()
        && let Ok(here) = &*here
    {
        bury(jobs, dead, here).into_iter().for_each(|(index, state)| states[index] = Some(state));
    }
    states.into_iter().map(|state| state.unwrap_or(State::Foreign)).collect()
}

/// Settles one job.
pub fn settle_one(job: &Job) -> State {
    settle(&[job]).pop().unwrap_or(State::Foreign)
}

fn look(job: &Job, word: Result<Word, Trouble>, here: &Here) -> Result<Finding, Trouble> {
    if let Ok(word) = word
        && word.is_terminal()
    {
        return Ok(Finding::Settled(match job.record()? {
            Some(record) => State::Ended(record.word),
            None => State::Damaged(format!("its status is {word}, and there is no {}", files::RESULT)),
        }));
    }
    if let Some(state) = recorded(job) {
        return Ok(Finding::Settled(state));
    }
    let unknown = |e: &io::Error| Trouble::Unreadable(format!("cannot tell which boot this is: {}", reason(e)));
    let here = here.as_ref().map_err(unknown)?;
    let meta = match job.meta() {
        Ok(meta) => meta,
        Err(Trouble::Damaged(_)) if job.is_foreign() => return Ok(Finding::Settled(State::Foreign)),
        Err(Trouble::Damaged(why)) => {
            return match owner::probe(job, job.owner()?.as_ref(), here)? {
                // Its owner knows what it has read, and may still end it well.
                Hold::Held => Err(Trouble::Unreadable(format!("{why}; its owner lives"))),
                Hold::Free | Hold::Unclear => Err(Trouble::Damaged(why)),
            };
        }
        Err(unreadable) => return Err(unreadable),
    };
    let word = match word {
        // The view may have been lost in a power cut; `pid` tells what it was.
        Err(Trouble::Damaged(_)) => None,
        word => Some(word?),
    };
    judge(job, word, meta, here)
}

/// A job without a record: does it live, and is it well?
fn judge(job: &Job, word: Option<Word>, meta: Meta, here: &Origin) -> Result<Finding, Trouble> {
    let started = word == Some(Word::Running) || job.is_signed()?;
    let owner = job.owner()?;
    let word = word.unwrap_or(if started { Word::Running } else { Word::Claimed });
    let origin = owner.as_ref().map_or(&meta.origin, |owner| &owner.origin);
    let relation = origin.seen_from(here);
    let hold = match relation {
        Relation::Elsewhere => Hold::Unclear,
        Relation::EarlierBoot => Hold::Free,
        Relation::SameBoot | Relation::SomeBoot => owner::probe(job, owner.as_ref(), here)?,
    };
    let age = owner.as_ref().map_or_else(|| meta.age(relation), |owner| owner.age(here));
    let silent = silence(job.last_sign()?, age, owner.as_ref());
    let (overdue, due) = if started {
        nearest(&[(meta.windows.silence, silent), (meta.windows.age, age)])
    } else {
        nearest(&[(meta.windows.start, age)])
    };
    let live = Live { word, meta, owner, overdue, due, age, silent };
    let death = if started || relation == Relation::EarlierBoot { Death::WorkerDied } else { Death::NeverStarted };
    let owned = live.owner.as_ref().filter(|owner| owner.is_comparable(here));
    let gone = owned.is_some_and(|owner| owner.is_gone(here));
    Ok(match hold {
        Hold::Free if overdue || death == Death::WorkerDied => Finding::Dead(Box::new(live), death),
        // The lock outlives its owner in a child that is between fork and exec, and a settler has it for a while:
        // whoever is gone is settled as soon as the lock can be had.
        Hold::Held if gone || (overdue && live.owner.is_none()) => Finding::Dead(Box::new(live), death),
        Hold::Held if overdue && let Some(pin) = owned.and_then(|owner| owner.pin(here)) => {
            Finding::Suspect(Box::new(live), pin)
        }
        // One that cannot be asked is listed, never judged.
        _ => Finding::Settled(State::Live(Box::new(live))),
    })
}

/// Whether one of the windows is over, and otherwise how long until the nearest is.
fn nearest(windows: &[(Option<Duration>, Duration)]) -> (bool, Option<Duration>) {
    let limited = || windows.iter().filter_map(|&(window, spent)| Some((window?, spent)));
    let overdue = limited().any(|(window, spent)| spent > window);
    // Time does not count while it is spent: a look right at the end would find the window not quite over.
    let due = limited().map(|(window, spent)| window.saturating_sub(spent) + Duration::from_millis(20)).min();
    (overdue, due)
}

/// How long nothing has been heard: never longer than its age, whatever a stepped wall clock says, and without the
/// time that the host slept.
fn silence(sign: Option<Duration>, age: Duration, owner: Option<&Owner>) -> Duration {
    let slept = owner.map_or(Duration::ZERO, |owner| reap::here::slept().saturating_sub(owner.slept));
    sign.map_or(age, |sign| age.min(reap::here::wall().saturating_sub(sign).saturating_sub(slept)))
}

/// Asks all suspicious owners at once. `None` for one that ended meanwhile.
fn ask(jobs: &[&Job], suspects: Vec<(usize, Box<Live>, Pin)>) -> Vec<(usize, Option<State>)> {
    if suspects.is_empty() {
        return Vec::new();
    }
    let deadline = Instant::now() + ANSWER_WITHIN;
    let stamp = |job: &Job| files::look(job.fd(), files::PID).ok().flatten().map(|stat| files::changed(&stat));
    let mut watch = Watch::new();
    let mut asked = Vec::with_capacity(suspects.len());
    for (index, live, pin) in suspects {
        let job = jobs[index];
        let before = stamp(job);
        let marked = watch.as_mut().is_ok_and(|watch| watch.answer(job).is_ok());
        let sent = pin.signal(owner::ASK);
        asked.push((index, live, pin, before, marked, sent));
    }
    loop {
        let mut open = Vec::new();
        for (index, _, pin, before, marked, sent) in &asked {
            if sent.is_ok() && stamp(jobs[*index]) == *before && !pin.has_ended() {
                open.push((pin, *marked));
            }
        }
        if open.is_empty() || Instant::now() >= deadline {
            break;
        }
        match &mut watch {
            Ok(watch) if open.iter().all(|(_, marked)| *marked) => {
                watch.clear();
                watch.at(deadline);
                let _ = watch.wait_also(&open.iter().map(|(pin, _)| *pin).collect::<Vec<_>>());
            }
            // Without file events the answers have to be looked for.
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let judge = |(index, live, pin, before, _, sent): (usize, Box<Live>, Pin, _, _, Result<(), Errno>)| {
        let state = match sent {
            _ if pin.has_ended() => None,
            // One that cannot be asked is listed, never judged.
            Err(_) => Some(State::Live(live)),
            Ok(()) if stamp(jobs[index]) != before => Some(State::Live(believed(live))),
            Ok(()) => Some(wedged(jobs[index], *live)),
        };
        (index, state)
    };
    asked.into_iter().map(judge).collect()
}

/// An owner that answers has judged its job itself, and will again within its own idle window.
fn believed(mut live: Box<Live>) -> Box<Live> {
    live.overdue = false;
    live.due = Some(live.meta.windows.idle.unwrap_or_default().max(ANSWER_WITHIN));
    live
}

fn wedged(job: &Job, live: Live) -> State {
    let text = format!("its owner lives, and gave no answer within {} s", ANSWER_WITHIN.as_secs());
    write_down(job, End::new(Word::Unknown, Reason::Wedged, text), &live)
}

/// Records the deaths, once nothing is left of the dead.
fn bury(jobs: &[&Job], dead: Vec<(usize, Box<Live>, Death)>, here: &Origin) -> Vec<(usize, State)> {
    let mut states = Vec::new();
    let mut held: Vec<(usize, Box<Live>, Death, Lock)> = Vec::new();
    let mut waiting = dead;
    let deadline = Instant::now() + IN_HANDS;
    while !waiting.is_empty() {
        let late = Instant::now() >= deadline;
        for (index, live, death) in std::mem::take(&mut waiting) {
            match Lock::take(jobs[index], Duration::ZERO) {
                // Under the lock, look again: who held it before may have ended the job, or begun it.
                Ok(Some(lock)) => match recorded(jobs[index]) {
                    Some(state) => states.push((index, state)),
                    None => match refreshed(jobs[index], live, death) {
                        Ok((live, death)) => held.push((index, live, death, lock)),
                        Err(trouble) => states.push((index, trouble.into())),
                    },
                },
                Ok(None) if !late => waiting.push((index, live, death)),
                Ok(None) => states.push((index, State::Live(Box::new(Live { due: Some(IN_HANDS), ..*live })))),
                Err(e) => {
                    let why = format!("cannot lock {}: {}", files::PID, reason(&e));
                    states.push((index, State::Unclear(why)));
                }
            }
        }
        if !waiting.is_empty() {
            // A lock that is freed gives no event, and a blocking flock has no time limit.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if held.is_empty() {
        return states;
    }
    let remains: Vec<Remains> =
        held.iter().map(|(_, live, ..)| Remains::of(&live.meta, live.owner.as_ref(), here)).collect();
    let grace = held.iter().map(|(_, live, ..)| live.meta.windows.grace).max().unwrap_or_default();
    let left = end_remains(&remains, grace.min(LAST_GRACE));
    for (at, (index, live, death, lock)) in held.into_iter().enumerate() {
        let state = match &left {
            Ok(left) => {
                let survivors = left.iter().filter(|(whose, _)| *whose == at).map(|(_, warning)| warning.clone());
                record_death(jobs[index], *live, death, survivors.collect())
            }
            Err(e) => State::Unclear(format!("cannot read the process table: {}", reason(e))),
        };
        states.push((index, state));
        drop(lock);
    }
    states
}

/// How a job stands by its record alone, the view completed; `None` where there is no record.
fn recorded(job: &Job) -> Option<State> {
    Some(match job.record() {
        Ok(None) => return None,
        Ok(Some(record)) => match commit::complete_view(job, record.word) {
            Ok(()) => State::Ended(record.word),
            Err(e) => State::Unclear(format!("cannot sync its directory: {}", reason(&e))),
        },
        Err(trouble) => trouble.into(),
    })
}

/// A claimed job may have begun and lost its owner since the first look.
fn refreshed(job: &Job, mut live: Box<Live>, death: Death) -> Result<(Box<Live>, Death), Trouble> {
    live.owner = job.owner()?;
    let begun = live.owner.is_some() || job.is_signed()?;
    Ok((live, if begun { Death::WorkerDied } else { death }))
}

fn record_death(job: &Job, live: Live, death: Death, survivors: Vec<String>) -> State {
    let (reason, text) = match death {
        Death::NeverStarted => {
            let window = live.meta.windows.start.map(reap::duration::seconds).unwrap_or_default();
            (Reason::NeverStarted, format!("no watchdog took it within {window} s"))
        }
        Death::WorkerDied => (Reason::WorkerDied, "its watchdog died before it could record an end".to_owned()),
    };
    let mut end = End::new(Word::Unknown, reason, text);
    end.warnings = survivors;
    write_down(job, end, &live)
}

fn write_down(job: &Job, end: End, live: &Live) -> State {
    let word = end.word;
    match commit::conclude(job, &live.meta, live.owner.as_ref(), end) {
        Ok(Outcome::Won) => State::Ended(word),
        Ok(Outcome::Lost) => recorded(job).unwrap_or_else(|| State::Unclear("its record came and went".to_owned())),
        Err(e) => State::Unclear(format!("cannot record its end: {}", reason(&e))),
    }
}

/// Whether this process is a part of the job: then somebody else has to settle it. The token is looked for in
/// everyone above us too, since a job inside a job carries only the inner one itself.
fn is_ours(live: &Live) -> bool {
    let (claim, started) = (&live.meta.claim, StartedWith::new(TOKEN));
    std::env::var(TOKEN).is_ok_and(|token| token == *claim)
        || process::ancestors().is_ok_and(|above| above.into_iter().any(|pid| started.of(pid).contains(claim)))
}

/// The variable that every process of a job carries, with the token of its claim.
pub const TOKEN: &str = "JOB_CLAIM";

/// How what is left of a dead job is known: by its claim token, and by its session where that can be verified.
pub struct Remains {
    token: String,
    session: Option<Proc>,
}

impl Remains {
    /// Those of a job.
    pub fn of(meta: &Meta, owner: Option<&Owner>, here: &Origin) -> Remains {
        let session = owner.filter(|owner| owner.is_comparable(here)).and_then(|owner| owner.session);
        Remains { token: meta.claim.clone(), session }
    }
}

/// Ends what is left of one job on this machine, and returns a warning for each survivor.
pub fn end_remains_of(meta: &Meta, owner: Option<&Owner>) -> io::Result<Vec<String>> {
    let here = Origin::here()?;
    let relation = owner.map_or(&meta.origin, |owner| &owner.origin).seen_from(&here);
    if !matches!(relation, Relation::SameBoot | Relation::SomeBoot) {
        return Ok(Vec::new());
    }
    let left = end_remains(&[Remains::of(meta, owner, &here)], meta.windows.grace)?;
    Ok(left.into_iter().map(|(_, warning)| warning).collect())
}

/// Ends all remains side by side, and returns a warning for each survivor, with the index of its job; where there is no
/// process table to find them by, a warning for each job.
///
/// A process belongs to a job if it was started with the token, or if the leader of its session is the very
/// process that the owner recorded. A bare number proves nothing.
pub fn end_remains(remains: &[Remains], grace: Duration) -> io::Result<Vec<(usize, String)>> {
    let tokens: HashMap<&str, usize> = remains.iter().enumerate().map(|(at, one)| (one.token.as_str(), at)).collect();
    let led = remains.iter().enumerate().filter_map(|(at, one)| Some((one.session?, at)));
    let sessions: HashMap<i32, (Proc, usize)> = led.map(|(leader, at)| (leader.pid, (leader, at))).collect();
    let mut whose: HashMap<i32, usize> = HashMap::new();
    let mut seeds = |table: &Table| {
        let (mut roots, started) = (Vec::new(), StartedWith::new(TOKEN));
        for stat in table.iter().filter(|stat| !stat.is_dead()) {
            let session = sessions
                .get(&stat.session)
                .filter(|(leader, _)| table.get(leader.pid).is_some_and(|now| now.proc == *leader));
            let token = || {
                let carried = started.of(stat.proc.pid);
                carried.iter().find_map(|token| tokens.get(token.as_str()).copied())
            };
            if let Some(at) = session.map(|(_, at)| *at).or_else(token) {
                roots.push(stat.proc.pid);
                for member in table.below(&[stat.proc.pid]) {
                    whose.entry(member.proc.pid).or_insert(at);
                }
            }
        }
        roots
    };
    // Orphans that fork and exit all the time hang below nobody that we could ask: several listings must miss them.
    let members = match hunt::end(&mut seeds, &mut Plan { listings: 5, ..Plan::after(grace) }) {
        // Here nobody will ever find them; what the lock has told stands.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let warning = format!("whatever it left behind may go on: {}", reason(&e));
            return Ok((0..remains.len()).map(|at| (at, warning.clone())).collect());
        }
        members => members?,
    };
    let survivors = members.iter().filter(|member| member.fate == Fate::Survived);
    Ok(survivors.map(|one| (whose.get(&one.stat.proc.pid).copied().unwrap_or(0), one.warning())).collect())
}
