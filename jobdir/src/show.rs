//! One job for people: what it is, how it stands, and what to type next.

use std::io;
use std::path::Path;
use std::time::Duration;

use reap::exit::{Fail, Status, say};
use reap::here;
use reap::process::{self, StartedWith, Stat};
use reap::tree::Table;

use crate::files;
use crate::job::Job;
use crate::json;
use crate::meta::{Meta, Origin, Relation};
use crate::moment;
use crate::owner::{self, Hold, Owner};
use crate::record::Record;
use crate::root::{Root, chosen};
use crate::screen::{Line, Paper, Style, limit, size};
use crate::settle::{self, State, TOKEN};
use crate::windows::Windows;
use crate::word::Word;

/// How much of the end of a log is read, and how many lines of it are shown.
const TAIL: u64 = 8 << 10;
const LINES: usize = 10;

/// The last lines of the log that are not empty, oldest first. A carriage return ends a line too, as a progress bar
/// means it.
pub fn last_lines(job: &Job, most: usize) -> Vec<String> {
    let bytes = job.log_tail(TAIL);
    let tail = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<String> =
        tail.split(['\n', '\r']).rev().filter(|l| !l.trim().is_empty()).take(most).map(str::to_owned).collect();
    lines.reverse();
    lines
}

/// How it ended, in a few words.
pub fn verdict(record: &Record) -> String {
    let error = json::fields(&record.text).ok().and_then(|fields| json::text(&fields, "error"));
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    match (record.word, record.reason.as_str()) {
        (Word::Done, "exited") => format!("done{error}"),
        (word, reason) => format!("{word} ({reason}){error}"),
    }
}

/// How long it ran.
pub fn ran(record: &Record) -> Option<Duration> {
    let fields = json::fields(&record.text).ok()?;
    reap::duration::read(fields.get("duration_s")?.get()).ok()
}

/// Prints what is said of a job, line by line. A damaged one is shown as far as it can be read.
pub fn show(root: &Root, job: &Job) -> Result<Status, Fail> {
    let state = settle::settle_one(job);
    if let State::Unclear(_) | State::Foreign = state {
        return state.failure("show", job).map_or(Ok(Status::Done), Err);
    }
    let here = Origin::here().map_err(|e| Fail::cannot("show job", &job.id, &e))?;
    let (meta, owner, record) = (job.meta().ok(), job.owner().ok().flatten(), job.record().ok().flatten());
    let life = owner.as_ref().map(|owner| life(job, owner, &here));
    let mut sheet = Sheet { paper: Paper::of(&io::stdout()), lines: Vec::new() };
    sheet.say("job", &job.id);
    sheet.may("name", meta.as_ref().and_then(|meta| meta.name.clone()));
    sheet.state(&state, record.as_ref());
    sheet.say("directory", &job.path.to_string_lossy());
    sheet.may("command", owner.as_ref().and_then(|owner| command(&owner.command)));
    sheet.may("claimed", meta.as_ref().map(|meta| ago(meta.claimed_at)));
    sheet.may("started", owner.as_ref().map(|owner| ago(owner.started_at)));
    sheet.may("ended", record.as_ref().and_then(|record| record.ended_at).map(ago));
    sheet.may("limits", meta.as_ref().map(limits));
    if let Some((owner, life)) = owner.as_ref().zip(life) {
        let life = match life {
            Hold::Held => "lives",
            Hold::Free => "is gone",
            Hold::Unclear => "cannot be judged from here",
        };
        sheet.say("owner", &format!("pid {} on {}, which {life}", owner.proc.pid, owner.origin.host));
    }
    if let State::Live(live) = &state
        && owner.is_some()
    {
        let of = live.meta.windows.idle.map(|idle| format!(" of {}", limit(idle))).unwrap_or_default();
        sheet.say("silent", &format!("{}{of}", moment::span(live.silent)));
    }
    sheet.may("progress", job.progress());
    sheet.may("meta", meta.as_ref().map(|meta| meta.meta.clone()).filter(|meta| meta != "{}"));
    record.iter().for_each(|record| sheet.record(record));
    let log = job.path.join(files::LOG);
    sheet.say("log", &format!("{}, {}", size(job.log_bytes().ok().flatten().unwrap_or(0)), log.display()));
    sheet.quote(&last_lines(job, LINES));
    // An id names the job wherever its root is the one that is meant without a word.
    let usual = chosen(None).is_ok_and(|path| path == root.path);
    let name = if usual { job.id.clone() } else { quoted(&job.path) };
    sheet.lines.push(sheet.paper.line());
    if !matches!(state, State::Live(_)) {
        sheet.say("record", &format!("jobdir result {name}"));
        sheet.left_over(meta.as_ref());
    } else if let Some(owner) = owner {
        if life == Some(Hold::Held) && owner.is_comparable(&here) {
            sheet.say("follow", &format!("tail -n 20 -f --pid={} {}", owner.proc.pid, quoted(&log)));
        }
        sheet.say("wait", &format!("jobdir wait {name}"));
        match life {
            Some(Hold::Held) => sheet.say("cancel", &format!("jobdir cancel {name}")),
            _ => sheet.say("give up", &format!("jobdir finish {name} unknown")),
        }
    } else {
        sheet.say("start", &format!("detach --ready watchdog --job {name} -- COMMAND"));
        sheet.say("wait", &format!("jobdir wait {name}"));
        sheet.say("cancel", &format!("jobdir cancel {name}"));
    }
    say(sheet.lines.iter().map(|line| format!("{}\n", line.text())).collect::<String>()).map(|()| Status::Done)
}

/// The lines in the making: a label, and what there is to say.
struct Sheet {
    paper: Paper,
    lines: Vec<Line>,
}

impl Sheet {
    fn add(&mut self, label: &str, style: Style, text: &str) {
        // Commands and paths are there to be copied: they go on in the next line of a narrow window.
        let line = Paper { columns: usize::MAX, ..self.paper }.line().cell(Style::Bold, label, 9);
        self.lines.push(line.put(style, text));
    }

    fn say(&mut self, label: &str, text: &str) {
        self.add(label, Style::Plain, text);
    }

    fn may(&mut self, label: &str, text: Option<String>) {
        text.into_iter().for_each(|text| self.say(label, &text));
    }

    fn quote(&mut self, lines: &[String]) {
        let line = |text: &String| self.paper.line().put(Style::Faint, "  | ").put(Style::Plain, text);
        self.lines.extend(lines.iter().map(line));
    }

    fn state(&mut self, state: &State, record: Option<&Record>) {
        match (state, record) {
            (State::Live(live), _) => {
                let overdue = if live.overdue { ", overdue" } else { "" };
                let style = if live.overdue { Style::Red } else { live.word.into() };
                self.add("state", style, &format!("{} for {}{overdue}", live.word, moment::span(live.age)));
            }
            (State::Damaged(why), _) => self.add("state", Style::Magenta, &format!("unknown (damaged): {why}")),
            (_, Some(record)) => self.add("state", record.word.into(), &verdict(record)),
            _ => {}
        }
    }

    /// What the record says beside the verdict.
    fn record(&mut self, record: &Record) {
        let Ok(fields) = json::fields(&record.text) else { return };
        let raw = |key: &str| fields.get(key).map(|value| value.get()).filter(|value| *value != "null");
        let ran = ran(record).map(|ran| format!("ran for {}", moment::span(ran)));
        let cpu = raw("cpu_s").map(|s| format!("{s} s of processor"));
        let memory = json::whole(&fields, "max_rss_kib").map(|kib| size(kib.saturating_mul(1024)) + " of memory");
        let used: Vec<String> = [ran, cpu, memory].into_iter().flatten().collect();
        self.may("used", Some(used.join(", ")).filter(|used| !used.is_empty()));
        let warnings: Vec<String> = raw("warnings").and_then(|all| serde_json::from_str(all).ok()).unwrap_or_default();
        warnings.iter().for_each(|warning| self.add("warning", Style::Yellow, warning));
        // The record itself is for programs, and may be long.
        let brief = |text: &str| match text.char_indices().nth(400) {
            Some((end, _)) => format!("{}... ({} in all)", &text[..end], size(text.len() as u64)),
            None => text.to_owned(),
        };
        self.may("output", raw("output").map(brief));
    }

    /// Who lives though the job has ended: whoever was started as a part of it.
    fn left_over(&mut self, meta: Option<&Meta>) {
        let (table, above) = (Table::read().unwrap_or_default(), process::ancestors().unwrap_or_default());
        let started = StartedWith::new(TOKEN);
        let is_left = |one: &&Stat| !one.is_dead() && !above.contains(&one.proc.pid);
        let is_its = |one: &&Stat| meta.is_some_and(|m| started.of(one.proc.pid).contains(&m.claim));
        let left: Vec<&Stat> = table.iter().filter(is_left).filter(is_its).collect();
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|one| format!("{} ({})", one.proc.pid, one.name)).collect();
            self.add("left over", Style::Yellow, &names.join(", "));
            let targets: Vec<String> = left.iter().map(|one| format!("{}@{}", one.proc.pid, one.proc.start)).collect();
            self.say("reap", &format!("reap {}", targets.join(" ")));
        }
    }
}

/// How long ago something was, and when.
fn ago(moment: Duration) -> String {
    format!("{} ago, {}", moment::span(here::wall().saturating_sub(moment)), moment::rfc3339(moment))
}

fn limits(meta: &Meta) -> String {
    let Windows { idle, hard, start, grace, .. } = meta.windows;
    let [idle, hard, start] = [idle, hard, start].map(|window| window.map_or_else(|| "none".to_owned(), limit));
    format!("idle {idle}, hard {hard}, grace {}, start within {start}", limit(grace))
}

/// The words of a command, as a shell takes them.
fn command(words: &str) -> Option<String> {
    let words: Vec<String> = serde_json::from_str(words).ok()?;
    Some(words.iter().map(|word| quoted(Path::new(word))).collect::<Vec<_>>().join(" "))
}

/// A word for a shell.
fn quoted(word: &Path) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=@,+%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Whether its owner lives.
fn life(job: &Job, owner: &Owner, here: &Origin) -> Hold {
    match owner.origin.seen_from(here) {
        Relation::Elsewhere => Hold::Unclear,
        Relation::EarlierBoot => Hold::Free,
        Relation::SameBoot | Relation::SomeBoot => owner::probe(job, Some(owner), here).unwrap_or(Hold::Unclear),
    }
}
