//! Waits for jobs to end, for no longer than the caller may wait.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use reap::duration::seconds;
use reap::exit::{Fail, Status, complain, printable, say};
use reap::here;

use crate::files;
use crate::job::Job;
use crate::moment;
use crate::root::Root;
use crate::settle::{self, Live, State};
use crate::watch::Watch;
use crate::word::Word;

/// When a job is looked at again that could not be read.
const BLINK: Duration = Duration::from_secs(1);

/// How to wait.
pub struct Order {
    /// At most so long; `None`: until the end or the caller's deadline.
    pub slice: Option<Duration>,
    /// Until any one of the jobs has ended.
    pub any: bool,
}

/// How it stands with one job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Ended(Word),
    /// Its owner had all the time that a caller waits for.
    Spent(Duration),
    NotYet,
    Gone,
}

impl Answer {
    fn status(self) -> Status {
        match self {
            Answer::Ended(Word::Done) => Status::Done,
            Answer::Ended(Word::Timeout) => Status::Limit,
            Answer::Ended(_) => Status::No,
            Answer::Spent(_) | Answer::NotYet => Status::NotYet,
            Answer::Gone => Status::NoJob,
        }
    }

    /// How bad it is; of several jobs the worst counts.
    fn rank(self) -> u8 {
        match self.status() {
            Status::NoJob => 4,
            Status::NotYet => 3,
            Status::No => 2,
            Status::Limit => 1,
            _ => 0,
        }
    }
}

/// Waits until all jobs have ended (with `any`: one of them), the slice is over, or the callers' deadlines are spent.
/// Of several answers the worst is the status, in the order 66, 75, 1, 124, 0. With `any`, prints `id TAB word` for
/// each job that has ended, and only those count.
pub fn wait(jobs: &[(Root, Job)], order: &Order) -> Result<Status, Fail> {
    let end = order.slice.and_then(|slice| Instant::now().checked_add(slice));
    let cannot = |e: io::Error| Fail::cannot("wait for", "the end of a job", &e);
    let mut line = Line::new();
    // A look needs no watch, and a watch is not free.
    let mut watch: Option<Watch> = None;
    let mut unclear = HashSet::new();
    loop {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut first = None;
        if let Some(watch) = &mut watch {
            watch.clear();
        }
        let states = settle::settle(&jobs.iter().map(|(_, job)| job).collect::<Vec<_>>());
        for ((root, job), state) in jobs.iter().zip(states) {
            answers.push(match state {
                State::Ended(word) => Answer::Ended(word),
                // What cannot be looked up now is not gone.
                _ if !root.holds(job).unwrap_or(true) => Answer::Gone,
                State::Live(live) => {
                    let left = caller_left(&live);
                    if let Some(watch) = &mut watch {
                        watch.job(job, &live).map_err(cannot)?;
                        // A deadline that is spent has been seen; waking for it again would be a busy loop.
                        let left = left.filter(|left| !left.is_zero());
                        left.and_then(|left| Instant::now().checked_add(left)).into_iter().for_each(|at| watch.at(at));
                    }
                    let spent = left.is_some_and(|left| left.is_zero());
                    let answer = if spent {
                        Answer::Spent(live.meta.windows.deadline.unwrap_or_default())
                    } else {
                        Answer::NotYet
                    };
                    first.get_or_insert((job, live));
                    answer
                }
                State::Foreign => Answer::Gone,
                State::Damaged(why) => {
                    complain("jobdir", &format!("cannot read job {}: {why}", job.id));
                    Answer::Ended(Word::Unknown)
                }
                State::Unclear(why) => {
                    // What cannot be told now is not an end: it is said once, and looked at again.
                    if unclear.insert(job.id.clone()) {
                        complain("jobdir", &format!("warning: cannot read job {}: {why}; waiting on", job.id));
                    }
                    watch.iter_mut().for_each(|watch| watch.at(Instant::now() + BLINK));
                    Answer::NotYet
                }
            });
        }
        let open = answers.iter().filter(|&&answer| answer == Answer::NotYet).count();
        let ended = |answer: &Answer| matches!(answer, Answer::Ended(_) | Answer::Gone);
        let over = if order.any { answers.iter().any(ended) || open == 0 } else { open == 0 };
        let late = end.is_some_and(|end| Instant::now() >= end);
        if over || late {
            line.clear();
            let status = conclude(jobs, &answers, order);
            watch.into_iter().for_each(Watch::leave);
            return status;
        }
        let Some(watch) = &mut watch else {
            watch = Some(Watch::new().map_err(cannot)?);
            continue;
        };
        end.into_iter().for_each(|end| watch.at(end));
        if let Some((job, live)) = &first
            && line.show(job, live, open)
        {
            watch.at(Instant::now() + Duration::from_secs(1));
        }
        watch.wait().map_err(cannot)?;
    }
}

/// How long the caller of a started job should still wait; `None`: for ever.
fn caller_left(live: &Live) -> Option<Duration> {
    live.owner.as_ref()?;
    Some(live.meta.windows.deadline?.saturating_sub(live.age))
}

fn conclude(jobs: &[(Root, Job)], answers: &[Answer], order: &Order) -> Result<Status, Fail> {
    let mut counted: Vec<Answer> = answers.to_vec();
    if order.any && answers.iter().any(|answer| matches!(answer, Answer::Ended(_) | Answer::Gone)) {
        counted.retain(|answer| matches!(answer, Answer::Ended(_) | Answer::Gone));
        for ((_, job), answer) in jobs.iter().zip(answers) {
            if let Answer::Ended(word) = answer {
                // A reader that has gone does not change the answer.
                say(format!("{}\t{word}\n", job.id)).or_else(Fail::unless_quiet)?;
            }
        }
    }
    for ((_, job), answer) in jobs.iter().zip(answers).filter(|(_, answer)| counted.contains(answer)) {
        match answer {
            Answer::Ended(_) => {}
            Answer::Gone => {
                complain("jobdir", &format!("cannot wait for job {}: there is no such job any more", job.id))
            }
            Answer::NotYet => {
                let slice = order.slice.map(seconds).unwrap_or_default();
                complain("jobdir", &format!("job {} has not ended within {slice} s; it goes on, wait again", job.id));
            }
            Answer::Spent(deadline) => {
                let text = format!(
                    "the caller's deadline of {} s is spent; proceed without job {}, which goes on",
                    seconds(*deadline),
                    job.id
                );
                complain("jobdir", &text);
            }
        }
    }
    Ok(counted.into_iter().max_by_key(|answer| answer.rank()).map_or(Status::Done, Answer::status))
}

/// The live line of a person's terminal.
struct Line {
    shown: bool,
    terminal: bool,
}

impl Line {
    fn new() -> Line {
        Line { shown: false, terminal: io::stderr().is_terminal() }
    }

    /// Shows how it stands with the job; says whether anybody sees it.
    fn show(&mut self, job: &Job, live: &Live, open: usize) -> bool {
        if !self.terminal {
            return false;
        }
        let age = live.owner.as_ref().map_or_else(
            || here::wall().saturating_sub(live.meta.claimed_at),
            |owner| here::wall().saturating_sub(owner.started_at),
        );
        let size = files::look(job.fd(), files::LOG).ok().flatten().map_or(0, |stat| stat.st_size);
        let mut text = format!(
            "{} {} for {}, silent for {}, log {size} B",
            job.id,
            live.word,
            moment::span(age),
            moment::span(live.silent)
        );
        if let Some(progress) = job.progress() {
            text.push_str(&format!(", {}", printable(&progress)));
        }
        if open > 1 {
            text.push_str(&format!(" (and {} more)", open - 1));
        }
        let text: String = text.chars().take(usize::from(width()).saturating_sub(1)).collect();
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
        self.shown = true;
        true
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The terminal's width in columns.
fn width() -> u16 {
    // SAFETY: TIOCGWINSZ writes one winsize (ioctl_tty(2)), and it is one that we own.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) == 0 && size.ws_col > 0 {
            size.ws_col
        } else {
            80
        }
    }
}
