//! Jobs at a glance: a table for people, JSON lines for programs.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reap::duration::seconds;
use reap::exit::{Fail, Status, printable, unsaid};
use reap::here;
use reap::process::{MoreDescriptors, side_by_side};

use crate::delivery;
use crate::job::Job;
use crate::json::{self, Object};
use crate::meta::Meta;
use crate::moment;
use crate::root::{Root, ids};
use crate::screen::{Line, Paper, Screen, Style, clean, columns};
use crate::settle::{self, Live, State};
use crate::watch::Watch;
use crate::word::Word;

/// Which jobs.
#[derive(Default)]
pub struct Filter {
    /// Of this name alone.
    pub name: Option<String>,
    /// In one of these states; empty: any.
    pub words: Vec<Word>,
    /// Delivered ones too.
    pub all: bool,
    /// At most so many.
    pub limit: Option<usize>,
}

/// One row.
pub struct Row {
    /// The id.
    pub id: String,
    /// The settled state; `unknown` for a damaged one.
    pub word: Word,
    /// Why it ended, or what is wrong with it.
    pub reason: String,
    /// What was fixed at its claim.
    pub meta: Meta,
    /// When it started.
    pub started_at: Option<Duration>,
    /// When it ended.
    pub ended_at: Option<Duration>,
    /// How long nothing was heard of it, while it lives.
    pub silent: Option<Duration>,
    /// Whether it is past a supervisor window and could not be judged.
    pub overdue: bool,
    /// How often a handler was tried.
    pub attempt: u64,
    /// The text of the last progress stamp.
    pub progress: Option<String>,
    /// Whether its result was acknowledged.
    pub delivered: bool,
    /// Its directory.
    pub dir: PathBuf,
    /// Members of its record as they stand there, by their names.
    pub facts: Vec<(&'static str, String)>,
}

/// What a row takes from the record beside what all rows have.
const FACTS: [&str; 4] = ["error", "exit_code", "signal", "command"];

/// The rows, newest claim first; `trouble` is told of jobs that cannot be shown.
pub fn rows(root: &Root, filter: &Filter, trouble: &mut dyn FnMut(String)) -> Result<Vec<Row>, Fail> {
    rows_and(root, filter, &mut |_, _| (), trouble)
}

/// The same; `lives` is told of each row's job that lives, while it is open.
fn rows_and(
    root: &Root,
    filter: &Filter,
    lives: &mut dyn FnMut(&Job, &Live),
    trouble: &mut dyn FnMut(String),
) -> Result<Vec<Row>, Fail> {
    let cannot = |e: io::Error| Fail::cannot("list", root.path.display(), &e);
    let delivered = if filter.all { root.delivered().map_err(cannot)? } else { None };
    let pending = root.ids().map_err(cannot)?.into_iter().map(|id| (id, None));
    let archived = delivered.as_ref().map(|dir| ids(dir.as_fd())).transpose().map_err(cannot)?.unwrap_or_default();
    let names: Vec<_> = pending.chain(archived.into_iter().map(|id| (id, delivered.as_ref()))).collect();
    let mut rows = Vec::new();
    // Side by side, but never with more descriptors than a process may have.
    let _descriptors = MoreDescriptors::allow();
    for some in names.chunks(side_by_side()) {
        let mut jobs: Vec<Job> = Vec::with_capacity(some.len());
        for (id, delivered) in some {
            match delivered.map_or_else(|| root.pending(id), |dir| root.archived(dir.as_fd(), id)) {
                Ok(job) => jobs.extend(job.filter(|job| may_fit(job, filter))),
                Err(e) => trouble(format!("cannot open job {id}: {}", reap::exit::reason(&e))),
            }
        }
        let states = settle::settle(&jobs.iter().collect::<Vec<_>>());
        for (job, state) in jobs.iter().zip(states).filter(|(_, state)| is_asked_for(state, filter)) {
            if let State::Live(live) = &state {
                lives(job, live);
            }
            match row(job, state) {
                Ok(row) => rows.extend(row.filter(|row| filter.name.is_none() || row.meta.name == filter.name)),
                Err(why) => trouble(format!("cannot list job {}: {why}", job.id)),
            }
        }
    }
    rows.sort_by(|a, b| (b.meta.claimed_at, &b.id).cmp(&(a.meta.claimed_at, &a.id)));
    rows.truncate(filter.limit.unwrap_or(usize::MAX));
    Ok(rows)
}

/// A word that is terminal stays so: where only live jobs are asked for, it needs no further look.
fn may_fit(job: &Job, filter: &Filter) -> bool {
    filter.words.is_empty() || !job.word().is_ok_and(|word| word.is_terminal() && !filter.words.contains(&word))
}

/// What cannot be told now may be anything.
fn is_asked_for(state: &State, filter: &Filter) -> bool {
    let word = match state {
        State::Ended(word) => *word,
        State::Live(live) => live.word,
        State::Damaged(_) => Word::Unknown,
        State::Unclear(_) | State::Foreign => return true,
    };
    filter.words.is_empty() || filter.words.contains(&word)
}

fn row(job: &Job, state: State) -> Result<Option<Row>, String> {
    let owner = job.owner().map_err(|trouble| trouble.text().to_owned())?;
    let mut row = Row {
        id: job.id.clone(),
        word: Word::Unknown,
        reason: String::new(),
        meta: match &state {
            State::Foreign => return Ok(None),
            State::Live(live) => live.meta.clone(),
            _ => job.meta().map_err(|trouble| trouble.text().to_owned())?,
        },
        started_at: owner.as_ref().map(|owner| owner.started_at),
        ended_at: None,
        silent: None,
        overdue: false,
        attempt: delivery::attempts(job),
        progress: job.progress(),
        delivered: job.delivered,
        dir: job.path.clone(),
        facts: owner.map(|owner| ("command", owner.command)).into_iter().collect(),
    };
    match state {
        State::Foreign => return Ok(None),
        State::Unclear(why) => return Err(why),
        State::Damaged(why) => row.reason = format!("damaged: {why}"),
        State::Live(live) => {
            row.word = live.word;
            row.silent = Some(live.silent);
            row.overdue = live.overdue;
        }
        State::Ended(word) => {
            row.word = word;
            let record = job.record().map_err(|trouble| trouble.text().to_owned())?.ok_or("its record is gone")?;
            let fields = json::fields(&record.text)?;
            row.facts = FACTS.iter().filter_map(|&key| Some((key, fields.get(key)?.get().to_owned()))).collect();
            row.ended_at = record.ended_at;
            row.reason = record.reason;
        }
    }
    Ok(Some(row))
}

impl Row {
    /// One JSON line, without its end.
    pub fn to_json(&self) -> String {
        let time = |moment: Option<Duration>| moment.map(moment::rfc3339);
        let object = Object::new()
            .text("job", &self.id)
            .text("claim", &self.meta.claim)
            .maybe_text("name", self.meta.name.as_deref())
            .text("status", self.word.as_str())
            .maybe_text("reason", Some(self.reason.as_str()).filter(|reason| !reason.is_empty()))
            .text("claimed_at", &moment::rfc3339(self.meta.claimed_at))
            .maybe_text("started_at", time(self.started_at).as_deref())
            .maybe_text("ended_at", time(self.ended_at).as_deref())
            .value("age_s", Some(seconds(self.age())))
            .value("silent_s", self.silent.map(whole_millis).map(seconds))
            .value("overdue", Some(self.overdue))
            .value("attempt", Some(self.attempt))
            .maybe_text("progress", self.progress.as_deref())
            .value("delivered", Some(self.delivered))
            .raw("limits", &self.meta.windows.to_json())
            .raw("meta", &self.meta.meta)
            .text("dir", &self.dir.to_string_lossy());
        let fact = |key| self.facts.iter().find(|(name, _)| *name == key).map_or("null", |(_, value)| value);
        FACTS.iter().fold(object, |object, key| object.raw(key, fact(*key))).end()
    }

    /// From its start (its claim before that) to its end, or to now.
    pub fn age(&self) -> Duration {
        let from = self.started_at.unwrap_or(self.meta.claimed_at);
        whole_millis(self.ended_at.unwrap_or_else(here::wall).saturating_sub(from))
    }
}

fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// A table for people, with a head; empty where there is nothing.
pub fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = ["ID", "NAME", "STATUS", "REASON", "AGE", "SILENT", "ATTEMPT", "PROGRESS"].map(str::to_owned);
    let cells: Vec<[String; 8]> = std::iter::once(head).chain(rows.iter().map(|row| cells(row, printable))).collect();
    let widths: Vec<usize> =
        (0..8).map(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let mut table = String::new();
    for row in &cells {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        table.push_str(line.join("  ").trim_end());
        table.push('\n');
    }
    table
}

/// The cells of a row, all text of others made `harmless`.
fn cells(row: &Row, harmless: fn(&str) -> String) -> [String; 8] {
    let dash = |text: Option<String>| text.filter(|t| !t.is_empty()).map_or_else(|| "-".to_owned(), |t| harmless(&t));
    let status = if row.overdue { format!("{} (overdue)", row.word) } else { row.word.to_string() };
    [
        row.id.clone(),
        dash(row.meta.name.clone()),
        status,
        dash(Some(row.reason.clone())),
        moment::span(row.age()),
        dash(row.silent.map(moment::span)),
        row.attempt.to_string(),
        dash(row.progress.clone()),
    ]
}

/// The same for a terminal: what matters most comes first, since the window cuts off what does not fit.
pub fn lines(rows: &[Row], paper: Paper) -> Vec<Line> {
    let head = ["STATUS", "ID", "NAME", "AGE", "LAST", "REASON", "PROGRESS"].map(str::to_owned);
    // The id is there to be copied, the last one takes what is left, and no other may push it out.
    let most = [24, usize::MAX, 20, 24, 24, 24, 0];
    let cells: Vec<[String; 7]> = std::iter::once(head).chain(rows.iter().map(cells_for_people)).collect();
    let width = |at: usize| cells.iter().map(|row| columns(&row[at])).max().unwrap_or(0).min(most[at]);
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |(at, row): (usize, &[String; 7])| {
        let (style, rest) = match at.checked_sub(1).and_then(|at| rows.get(at)) {
            None => (Style::Bold, Style::Bold),
            Some(row) if row.overdue => (Style::Red, Style::Plain),
            Some(row) => (row.word.into(), Style::Plain),
        };
        let first = paper.line().cell(style, &row[0], widths[0]);
        let line = (1..6).fold(first, |line, at| line.cell(rest, &row[at], widths[at]));
        line.put(rest, &row[6])
    };
    if rows.is_empty() { Vec::new() } else { cells.iter().enumerate().map(line).collect() }
}

/// The last that was heard of it is its end, once it has ended.
fn cells_for_people(row: &Row) -> [String; 7] {
    let [id, name, status, reason, age, _, _, progress] = cells(row, clean);
    let last = row.silent.or(row.ended_at.map(|ended| here::wall().saturating_sub(ended)));
    let last = last.map_or_else(|| "-".to_owned(), |last| format!("{} ago", moment::span(last)));
    [status, id, name, age, last, reason, progress]
}

/// How many jobs are waited for by themselves; nobody sees more of them, and the others are looked at in time.
const HELD: usize = 200;

/// The least between two looks of a watch, however much happens: nobody reads faster.
const BREATH: Duration = Duration::from_millis(100);

/// The most, though nothing happens: the table tells how long ago things were.
const SECOND: Duration = Duration::from_secs(1);

/// Shows the table until we are interrupted, anew whenever something has happened to the jobs, and once a second; less
/// often where a look takes long.
pub fn watch(path: &Path, filter: &Filter) -> Result<Status, Fail> {
    let not_there = || Fail::usage("jobdir", "--watch takes a terminal that can move its cursor");
    let mut screen = Screen::new(io::stdout()).filter(|screen| screen.paper().moves).ok_or_else(not_there)?;
    let cannot = |e: io::Error| Fail::cannot("watch", path.display(), &e);
    let mut watch = Watch::new().map_err(cannot)?;
    let mut root = None;
    let mut archive = false;
    loop {
        let begun = Instant::now();
        watch.clear();
        if root.is_none() {
            root = Root::open(path)?;
            root.iter().try_for_each(|root| watch.root(root.jobs.as_fd())).map_err(cannot)?;
        }
        let mut troubles = Vec::new();
        let mut rows = Vec::new();
        if let Some(root) = &root {
            if !archive && let Some(dir) = root.delivered().map_err(cannot)? {
                watch.root(dir.as_fd()).map_err(cannot)?;
                archive = true;
            }
            let mut held = 0..HELD;
            // One that cannot be waited for is looked at in time, too.
            let mut lives = |job: &Job, live: &Live| drop(held.next().map(|_| watch.job(job, live)));
            rows = rows_and(root, filter, &mut lives, &mut |why| troubles.push(why))?;
        }
        let paper = screen.paper();
        let mut all = lines(&rows, paper);
        if all.is_empty() {
            all.push(paper.line().put(Style::Faint, "no jobs"));
        }
        all.extend(troubles.iter().map(|why| paper.line().put(Style::Red, why)));
        screen.draw(all).map_err(|e| unsaid(&e))?;
        let took = begun.elapsed();
        std::thread::sleep(took.clamp(BREATH, SECOND));
        watch.at(begun + SECOND.max(10 * took));
        watch.wait().map_err(cannot)?;
    }
}
