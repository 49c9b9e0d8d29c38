//! Waits for jobs to end, for no longer than the caller may wait.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use reap::duration::seconds;
use reap::exit::{Fail, Status, complain, say};

use crate::files;
use crate::job::Job;
use crate::moment;
use crate::root::Root;
use crate::screen::{Line, Paper, Screen, Style, bar, clean, columns, fitting, limit, on_interrupt, size};
use crate::settle::{self, Live, State};
use crate::show;
use crate::watch::Watch;
use crate::word::Word;

/// When a job is looked at again that could not be read, or that somebody looks at.
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
    let mut view = View::new(jobs);
    // A look needs no watch, and a watch is not free.
    let mut watch: Option<Watch> = None;
    let mut troubled = HashSet::new();
    loop {
        let mut answers = Vec::with_capacity(jobs.len());
        watch.iter_mut().for_each(Watch::clear);
        view.iter_mut().for_each(|view| view.lines.clear());
        // What cannot be read is said once, and above what is drawn.
        let mut trouble = |view: &mut Option<View>, job: &Job, text: String| {
            if troubled.insert(job.id.clone()) {
                view.iter_mut().for_each(|view| drop(view.screen.clear()));
                complain("jobdir", &text);
            }
        };
        let states = settle::settle(&jobs.iter().map(|(_, job)| job).collect::<Vec<_>>());
        for ((root, job), state) in jobs.iter().zip(states) {
            answers.push(match state {
                State::Ended(word) => {
                    view.iter_mut().for_each(|view| view.ended(root, job));
                    Answer::Ended(word)
                }
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
                    view.iter_mut().for_each(|view| view.live(job, &live));
                    answer
                }
                State::Foreign => Answer::Gone,
                State::Damaged(why) => {
                    trouble(&mut view, job, format!("cannot read job {}: {why}", job.id));
                    Answer::Ended(Word::Unknown)
                }
                State::Unclear(why) => {
                    // What cannot be told now is not an end: it is looked at again.
                    trouble(&mut view, job, format!("warning: cannot read job {}: {why}; waiting on", job.id));
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
            view.iter_mut().for_each(|view| drop(view.screen.clear()));
            let status = conclude(jobs, &answers, order);
            watch.into_iter().for_each(Watch::leave);
            return status;
        }
        let Some(watch) = &mut watch else {
            watch = Some(Watch::new().map_err(cannot)?);
            continue;
        };
        end.into_iter().for_each(|end| watch.at(end));
        if let Some(view) = &mut view {
            let lines = std::mem::take(&mut view.lines);
            if !lines.is_empty() && view.screen.paper().moves && view.screen.draw(lines).is_ok() {
                watch.at(Instant::now() + BLINK);
            }
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

/// What a person's terminal shows meanwhile: a line for each live job, and one that stays for each that has ended.
struct View {
    screen: Screen<io::Stderr>,
    lines: Vec<Line>,
    alone: bool,
    /// How wide the names are.
    label: usize,
    told: HashSet<String>,
}

impl View {
    fn new(jobs: &[(Root, Job)]) -> Option<View> {
        let screen = Screen::new(io::stderr())?;
        let what = match jobs {
            [(_, job)] => format!("job {} goes on", job.id),
            _ => "the jobs go on".to_owned(),
        };
        on_interrupt(&format!("jobdir: stopped waiting; {what}"));
        Some(View { screen, lines: Vec::new(), alone: jobs.len() == 1, label: 0, told: HashSet::new() })
    }

    /// Counts on a job that was found alive.
    fn live(&mut self, job: &Job, live: &Live) {
        let paper = self.screen.paper();
        // A narrow window has no room for the bars' scale, and a very narrow one none for bars.
        let (cells, scale) = match paper.columns {
            ..50 => (0, 0),
            50..99 => (6, 0),
            _ => (10, 3),
        };
        let name = live.meta.name.as_deref().map(|name| fitting(&clean(name), 16).to_owned() + " ").unwrap_or_default();
        // The end of an id tells one from another, where there is another.
        let id = match job.id.len() {
            _ if self.alone && !name.is_empty() => String::new(),
            ..17 => job.id.clone(),
            long => format!("..{}", &job.id[long - 6..]),
        };
        // All lines are as the widest: the first look draws nothing.
        self.label = self.label.max(columns(&name) + id.len());
        let mut line = paper.line().put(Style::Bold, &name).cell(Style::Faint, &id, self.label - columns(&name));
        if live.overdue {
            line = line.put(Style::Red, "overdue  ");
        }
        let spent = |line: Line, what: &str, spent, window: Option<Duration>| {
            let line = line.put(Style::Plain, &format!("{what}{:>6} ", moment::span(spent)));
            let Some((style, bar)) = bar(spent, window, cells) else { return line.put(Style::Plain, " ") };
            let window = window.map(limit).filter(|_| scale > 0).unwrap_or_default();
            line.put(style, &format!("{bar} ")).cell(Style::Plain, &window, scale.max(window.len()))
        };
        let windows = &live.meta.windows;
        if live.owner.is_none() {
            line = spent(line, "not started", live.age, windows.start);
        } else {
            line = spent(line, "", live.age, windows.hard);
            line = spent(line, "silent", live.silent, windows.idle);
            let bytes = job.log_bytes().ok().flatten().unwrap_or(0);
            let said = job.progress().or_else(|| show::last_lines(job, 1).pop()).unwrap_or_default();
            line = line.put(Style::Plain, &format!("{:>8}  {said}", size(bytes)));
        }
        self.lines.push(line);
    }

    /// Says once how a job has ended, and where its log is.
    fn ended(&mut self, root: &Root, job: &Job) {
        let Ok(Some(record)) = job.record() else { return };
        if !self.told.insert(job.path.display().to_string()) {
            return;
        }
        // It may have been delivered meanwhile.
        let path = root.job(&job.id).ok().flatten().map_or_else(|| job.path.clone(), |job| job.path);
        let bytes = size(job.log_bytes().ok().flatten().unwrap_or(0));
        let ran = show::ran(&record).map(|ran| format!(", ran for {}", moment::span(ran))).unwrap_or_default();
        let paper = Paper { columns: usize::MAX, ..self.screen.paper() };
        let line =
            paper.line().put(Style::Plain, &format!("{} ", job.id)).put(record.word.into(), &show::verdict(&record));
        let line = line.put(Style::Plain, &format!("{ran}, log {bytes}: {}", path.join(files::LOG).display()));
        let _ = self.screen.say(&line);
    }
}
