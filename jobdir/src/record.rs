//! The terminal record: all facts of a job's end, in one file, and nowhere else.

use std::borrow::Cow;
use std::time::Duration;

use reap::duration;

use crate::files;
use crate::json::{self, Object};
use crate::meta::Meta;
use crate::moment;
use crate::owner::Owner;
use crate::word::Word;

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The command ended by itself.
    Exited,
    /// A signal that nobody of ours sent.
    Signaled,
    /// No sign of life for the idle limit.
    Idle,
    /// The hard limit.
    Hard,
    /// Somebody asked for it.
    Cancelled,
    /// The command could not be started.
    SpawnFailed,
    /// Exit 0, and no valid output.
    InvalidOutput,
    /// The log grew past what it may hold, where its middle cannot be released.
    LogLimit,
    /// Claimed, and no owner within the start window.
    NeverStarted,
    /// Its owner died.
    WorkerDied,
    /// Its owner lives and does not answer.
    Wedged,
    /// Recorded by hand.
    Finished,
    /// Its end cannot be read.
    Damaged,
}

impl Reason {
    /// As it stands in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Exited => "exited",
            Reason::Signaled => "signaled",
            Reason::Idle => "idle",
            Reason::Hard => "hard",
            Reason::Cancelled => "cancelled",
            Reason::SpawnFailed => "spawn-failed",
            Reason::InvalidOutput => "invalid-output",
            Reason::LogLimit => "log-limit",
            Reason::NeverStarted => "never-started",
            Reason::WorkerDied => "worker-died",
            Reason::Wedged => "wedged",
            Reason::Finished => "finished",
            Reason::Damaged => "damaged",
        }
    }
}

/// The end of a job, before it is written down.
#[derive(Clone, Debug)]
pub struct End {
    /// The terminal word.
    pub word: Word,
    /// Why.
    pub reason: Reason,
    /// The command's exit status.
    pub exit_code: Option<i32>,
    /// The signal that the command died of.
    pub signal: Option<i32>,
    /// One line for people.
    pub error: Option<String>,
    /// By the wall clock.
    pub ended_at: Duration,
    /// How long it ran, where somebody watched.
    pub ran: Option<Duration>,
    /// The last sign of life, by the wall clock.
    pub progress_at: Option<Duration>,
    /// Processor time of the job in seconds.
    pub cpu: Option<Duration>,
    /// The largest member's memory.
    pub max_rss_kib: Option<u64>,
    /// The log's length.
    pub log_bytes: Option<u64>,
    /// What went wrong beside the verdict.
    pub warnings: Vec<String>,
    /// The output: a JSON document on one line.
    pub output: Option<String>,
}

impl End {
    /// An end of which nothing more is known than this.
    pub fn new(word: Word, reason: Reason, error: impl Into<Option<String>>) -> End {
        End {
            word,
            reason,
            exit_code: None,
            signal: None,
            error: error.into(),
            ended_at: reap::here::wall(),
            ran: None,
            progress_at: None,
            cpu: None,
            max_rss_kib: None,
            log_bytes: None,
            warnings: Vec::new(),
            output: None,
        }
    }

    /// The record of job `id`, one line.
    pub fn to_json(&self, id: &str, meta: &Meta, owner: Option<&Owner>) -> String {
        let time = |moment: Option<Duration>| moment.map(moment::rfc3339);
        let started = owner.map(|owner| owner.started_at);
        let ran = self.ran.or_else(|| started.map(|started| self.ended_at.saturating_sub(started)));
        let host = owner.map_or(&meta.origin.host, |owner| &owner.origin.host);
        let seconds = |d: Option<Duration>| d.map(|d| duration::seconds(Duration::from_millis(millis(d))));
        Object::new()
            .value("version", Some(1))
            .text("job", id)
            .text("claim", &meta.claim)
            .maybe_text("name", meta.name.as_deref())
            .text("status", self.word.as_str())
            .text("reason", self.reason.as_str())
            .value("exit_code", self.exit_code)
            .value("signal", self.signal)
            .maybe_text("error", self.error.as_deref())
            .text("claimed_at", &moment::rfc3339(meta.claimed_at))
            .maybe_text("started_at", time(started).as_deref())
            .text("ended_at", &moment::rfc3339(self.ended_at))
            .maybe_text("progress_at", time(self.progress_at).as_deref())
            .value("duration_s", seconds(ran))
            .text("host", host)
            .value("pid", owner.map(|owner| owner.proc.pid))
            .raw("command", owner.map_or("null", |owner| &owner.command))
            .value("cpu_s", seconds(self.cpu))
            .value("max_rss_kib", self.max_rss_kib)
            .text("log", files::LOG)
            .value("log_bytes", self.log_bytes)
            .raw("warnings", &json::texts(self.warnings.iter().map(String::as_str)))
            .raw("output", self.output.as_deref().unwrap_or("null"))
            .raw("meta", &meta.meta)
            .end()
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Record {
    /// The whole document on one line, otherwise as it came.
    pub text: String,
    /// Its terminal word.
    pub word: Word,
    /// Why.
    pub reason: String,
    /// The claim that it belongs to.
    pub claim: String,
    /// What the caller called this kind of job.
    pub name: Option<String>,
    /// When it ended; `None` where that cannot be read.
    pub ended_at: Option<Duration>,
}

impl Record {
    /// Checks a record of job `id`: one JSON object that names the job, its claim and a terminal word. What else
    /// it holds is kept and passed on: it may come from a newer tool.
    pub fn read(file: Vec<u8>, id: &str) -> Result<Record, String> {
        let mut text = String::from_utf8(file).map_err(|_| "it is not UTF-8")?;
        text.truncate(text.trim_ascii_end().len());
        let fields = json::fields(&text)?;
        if json::text(&fields, "job").as_deref() != Some(id) {
            return Err("it does not name this job".to_owned());
        }
        let word = json::text(&fields, "status")
            .and_then(|word| Word::parse(&word))
            .filter(|word| word.is_terminal())
            .ok_or("it has no terminal status")?;
        let claim = json::text(&fields, "claim").ok_or("it names no claim")?;
        let reason = json::text(&fields, "reason").unwrap_or_default();
        let name = json::text(&fields, "name");
        let ended_at = json::text(&fields, "ended_at").and_then(|time| moment::parse(&time));
        let line = match json::one_line(&text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(line) => Some(line),
        };
        let text = line.unwrap_or(text);
        Ok(Record { text, word, reason, claim, name, ended_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_a_newer_tool_come_through_unharmed() {
        let file = "{\"version\":2,\"new\":{\"n\":1.50,\"a\":[]},\n\"status\":\"done\",\"job\":\"j\",\"claim\":\"c\",\"z\":1e400}\n";
        let record = Record::read(file.into(), "j").unwrap();
        assert_eq!(
            record.text,
            "{\"version\":2,\"new\":{\"n\":1.50,\"a\":[]},\"status\":\"done\",\"job\":\"j\",\"claim\":\"c\",\"z\":1e400}"
        );
        assert_eq!((record.word, record.claim.as_str(), record.ended_at), (Word::Done, "c", None));
    }

    #[test]
    fn what_is_no_record_is_not_believed() {
        for bad in [
            "",
            "42",
            "[]",
            "{}",
            "{\"job\":\"j\",\"claim\":\"c\",\"status\":\"running\"}",
            "{\"job\":\"other\",\"claim\":\"c\",\"status\":\"done\"}",
            "{\"job\":\"j\",\"status\":\"done\"}",
            "{\"job\":\"j\",\"claim\":\"c\",\"status\":\"done\"",
            "{\"job\":\"j\",\"claim\":\"c\",\"status\":\"done\"}{}",
            "{\"job\":7,\"claim\":\"c\",\"status\":\"done\"}",
        ] {
            assert!(Record::read(bad.into(), "j").is_err(), "{bad}");
        }
        assert!(Record::read(b"\xff\xfe\n".to_vec(), "j").is_err());
    }
}
