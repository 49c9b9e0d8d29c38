//! What must hold for every text that somebody else wrote: a job, another tool, a newer version, a torn disk.
//!
//! Each function takes any bytes at all, and panics where a reader is fooled by them. The fuzzer calls one of them
//! per target; tests/tests/corpus.rs calls them with what the fuzzer has found worth keeping.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use jobdir::job::Job;
use jobdir::json::{self, Object};
use jobdir::meta::{Meta, Origin};
use jobdir::owner::Owner;
use jobdir::record::{End, Reason, Record};
use jobdir::root::Named;
use jobdir::windows::{self, Limits, Windows};
use jobdir::word::Word;
use jobdir::{delivery, files, id, moment};
use reap::duration;
use reap::process::{Proc, Stat};
use serde_json::Value;
use serde_json::value::RawValue;

/// A check, by the name of its target and of its folder in corpus/.
pub type Check = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Check; 13] = [
    ("acknowledgement", acknowledgement),
    ("delivery", delivery),
    ("document", document),
    ("duration", duration),
    ("id", id),
    ("meta", meta),
    ("moment", moment),
    ("owner", owner),
    ("pid", pid),
    ("record", record),
    ("stat", stat),
    ("status", status),
    ("windows", windows),
];

/// The id of the job that the texts are read as.
const ID: &str = "j";

/// `status`: one word and a newline, or damage.
pub fn status(data: &[u8]) {
    match Word::read(data) {
        Some(word) => assert_eq!(format!("{word}\n").as_bytes(), data),
        None => assert!(Word::ALL.iter().all(|word| format!("{word}\n").as_bytes() != data)),
    }
}

/// `pid`: empty, or somebody was here.
pub fn pid(data: &[u8]) {
    let (_folder, job) = job_with(files::PID, data);
    let text = std::str::from_utf8(data).map(str::trim_ascii);
    let empty = data.len() <= 64 && text.is_ok_and(str::is_empty);
    assert_eq!(job.is_signed(), Ok(!empty), "what is no number passes for an empty file");
}

/// `delivery.json`: how often a handler was tried, and once more.
pub fn delivery(data: &[u8]) {
    let (_folder, job) = job_with(files::DELIVERY, data);
    let attempts = delivery::attempts(&job);
    let read = std::str::from_utf8(data).ok().and_then(|text| json::fields(text).ok()?.get("attempts"));
    assert!(attempts == 0 || read.is_some_and(|number| number.get() == attempts.to_string()));
    let next = sweep::handler::attempt(&job);
    assert_eq!(next, attempts.saturating_add(1));
    assert_eq!(delivery::attempts(&job), next);
}

/// `owner.json`: a fingerprint that is read comes out as it went in, and fits into a record.
pub fn owner(data: &[u8]) {
    let Some(owner) = Owner::read(data) else { return };
    assert!(owner.proc.pid > 0 && owner.session.is_none_or(|leader| leader.pid > 0));
    let text = owner.to_json();
    assert!(is_line(text.trim_end_matches('\n')));
    let again = Owner::read(text.as_bytes()).unwrap();
    assert_eq!((again.proc, again.session, &again.origin), (owner.proc, owner.session, &owner.origin));
    assert_eq!((again.slept, &again.command), (owner.slept, &owner.command));
    assert_eq!(again.started_monotonic, owner.started_monotonic);
    assert_eq!(again.started_at.as_millis(), owner.started_at.as_millis());
    let here = Origin { host: "h".into(), machine_id: None, ..owner.origin.clone() };
    let _ = (owner.age(&here), owner.witness(&here));
    recorded(&plain(), Some(&owner));
}

/// `meta.json`: a claim that is read comes out as it went in, and fits into a record.
pub fn meta(data: &[u8]) {
    let Ok(meta) = Meta::read(data, ID) else { return };
    assert!(!meta.claim.is_empty());
    // Points in time are counted from these, and an overflow would end whoever looks at the job.
    let Windows { idle, hard, grace, start, deadline, silence, age } = meta.windows;
    for window in [idle, hard, Some(grace), start, deadline, silence, age].into_iter().flatten() {
        assert!(window.checked_add(duration::LONGEST).is_some(), "{window:?} overflows a clock");
    }
    let text = meta.to_json(ID);
    assert!(is_line(text.trim_end_matches('\n')));
    let again = Meta::read(text.as_bytes(), ID).unwrap();
    assert_eq!((&again.claim, &again.name, again.windows), (&meta.claim, &meta.name, meta.windows));
    assert_eq!((&again.origin, &again.meta), (&meta.origin, &meta.meta));
    assert_eq!(again.claimed_at.as_millis(), meta.claimed_at.as_millis());
    assert_eq!(again.claimed_monotonic, meta.claimed_monotonic);
    recorded(&meta, None);
}

/// `result.json`: what is believed is one line that says the same, and stays so when members are added.
pub fn record(data: &[u8]) {
    let Ok(record) = Record::read(data.to_vec(), ID) else { return };
    let written = std::str::from_utf8(data).unwrap();
    assert!(record.word.is_terminal());
    assert!(is_line(&record.text));
    assert!(is_same(written, &record.text));
    let again = Record::read(record.text.clone().into_bytes(), ID).unwrap();
    assert_eq!(again.text, record.text);
    assert_eq!((again.word, &again.claim, &again.name), (record.word, &record.claim, &record.name));
    assert_eq!((again.ended_at, &again.reason), (record.ended_at, &record.reason));
    grown(&record.text);
}

/// A line of sweep: the members that came, and those that were added.
pub fn grown(object: &str) {
    let line = Object::extending(object).text("log_tail", "a\n\"b\u{9b}").value("attempt", Some(3)).end();
    assert!(is_line(&line));
    let (before, after) = (json::fields(object).unwrap(), json::fields(&line).unwrap());
    assert_eq!(json::members(&line), json::members(object) + 2);
    assert_eq!(json::text(&after, "log_tail").as_deref(), Some("a\n\"b\u{9b}"));
    assert_eq!(json::whole(&after, "attempt"), Some(3));
    for name in before.names().iter().filter(|name| !["log_tail", "attempt"].contains(&name.as_str())) {
        assert_eq!(after.get(name).map(RawValue::get), before.get(name).map(RawValue::get));
    }
}

/// `output.json` and a captured standard output: one document, on one line, that says the same.
pub fn document(data: &[u8]) {
    let Ok(document) = json::document(data) else { return };
    let line = json::one_line(document);
    assert!(is_line(&line));
    assert!(is_same(document, &line));
    assert_eq!(json::document(line.as_bytes()).as_ref(), Ok(&line.as_ref()));
    assert_eq!(json::one_line(&line), line);
    if line.starts_with('{') {
        grown(&line);
    }
}

/// Lines on the standard input of `sweep --ack`. Without a root no line can count, and each is told of.
pub fn acknowledgement(data: &[u8]) {
    let mut input = data;
    let status = sweep::ack::take(&[], &mut input).unwrap_or_else(|fail| panic!("{}", fail.text));
    let said = data.split(|&b| b == b'\n').any(|line| !line.trim_ascii().is_empty());
    assert_eq!(status as u8, u8::from(said));
    assert!(input.is_empty());
}

/// /proc/PID/stat: any name at all, and any line at all.
pub fn stat(data: &[u8]) {
    let _ = Stat::parse(data).is_some_and(|stat| stat.is_dead());
    let mut line = b"42 (".to_vec();
    line.extend_from_slice(data);
    line.extend_from_slice(
        b") S 7 8 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 3 0 123456 2236416 241 18446744073709551615\n",
    );
    let stat = Stat::parse(&line).unwrap();
    assert_eq!(stat.proc, Proc { pid: 42, start: 123_456 });
    assert_eq!((stat.parent, stat.group, stat.session, stat.state, stat.threads), (7, 8, 9, b'S', 3));
    assert_eq!(stat.name, String::from_utf8_lossy(data));
}

/// A duration: read back from its seconds as it was, a number to JSON, no longer than a century.
pub fn duration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(length) = duration::parse(text) else { return };
    let seconds = duration::seconds(length);
    assert_eq!(duration::parse(&seconds), Ok(length));
    assert!(serde_json::from_str::<f64>(&seconds).is_ok_and(|number| number >= 0.0));
    assert!(length <= Duration::from_secs(36_525 * 86_400));
    assert!(text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b"dhms".contains(&b)));
}

/// An id: nothing that could leave the root, break a line or look like an option; and what a JOB names.
pub fn id(data: &[u8]) {
    let named = Named::parse(OsStr::from_bytes(data));
    let valid = std::str::from_utf8(data).is_ok_and(id::is_valid);
    let fits = (1..=128).contains(&data.len())
        && data[0].is_ascii_alphanumeric()
        && data.iter().all(|&b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    assert_eq!(valid, fits);
    match named {
        Ok(Named { root: None, id }) => assert!(valid && id.as_bytes() == data),
        Ok(Named { root: Some(root), id }) => {
            assert!(!valid && id::is_valid(&id) && root.is_absolute());
            assert!(data.windows(id.len()).any(|part| part == id.as_bytes()));
        }
        Err(_) => assert!(!valid),
    }
}

/// A moment: read back to the millisecond.
pub fn moment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(moment) = moment::parse(text) else { return };
    let written = moment::rfc3339(moment);
    assert_eq!((written.len(), moment::stamp(moment).len()), (24, 16));
    assert_eq!(moment::parse(&written).map(|again| again.as_millis()), Some(moment.as_millis()));
    assert!(moment::span(moment).is_ascii());
}

/// Windows, as `limits` in meta.json and as knobs in the environment.
pub fn windows(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(windows) = json::fields(text).ok().and_then(|fields| Windows::read(&fields)) {
        assert_eq!(json::fields(&windows.to_json()).ok().and_then(|fields| Windows::read(&fields)), Some(windows));
    }
    let environment = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(Into::into)
    };
    let mut said = 0;
    let limits = Limits::choose(&windows::Flags::default(), &environment, &mut |_| said += 1);
    let left = windows::outer_deadline(&environment, Duration::from_secs(1_000_000_000), &mut |_| said += 1);
    assert!(said <= 6);
    nested(limits);
    nested(limits.clamped(left));
    if let Some(left) = left {
        let inner = limits.clamped(Some(left));
        assert!(inner.hard.unwrap() + inner.grace <= left.max(Duration::from_millis(2)));
        assert!(limits.hard.is_none_or(|hard| inner.hard.unwrap() <= hard));
    }
}

/// Nested, never inverted: worker's hard limit, caller's deadline, supervisor's hard window; and silence likewise.
pub fn nested(limits: Limits) -> Windows {
    let all = Windows::from(limits);
    assert_eq!((all.idle, all.hard, all.grace, all.start), (limits.idle, limits.hard, limits.grace, limits.start));
    match (all.hard, all.deadline, all.age) {
        (Some(hard), Some(deadline), Some(age)) => {
            assert!(hard + all.grace < deadline && deadline <= age, "{all:?}");
            assert!(!hard.is_zero());
        }
        unlimited => assert_eq!(unlimited, (None, None, None)),
    }
    match (all.idle, all.silence) {
        (Some(idle), Some(silence)) => assert!(idle + all.grace < silence, "{all:?}"),
        unlimited => assert_eq!(unlimited, (None, None)),
    }
    let text = all.to_json();
    assert_eq!(json::fields(&text).ok().and_then(|fields| Windows::read(&fields)), Some(all));
    all
}

/// Whether a text has no end of a line in it.
pub fn is_line(text: &str) -> bool {
    !text.contains(['\n', '\r'])
}

/// Whether two documents are the same to any reader: the same values, and the same text but for the white space
/// between the tokens.
pub fn is_same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    squeezed(one) == squeezed(other) && value(one) == value(other)
}

/// A document without the white space between its tokens.
fn squeezed(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(quote) = rest.find('"') {
        out.extend(rest[..quote].split_ascii_whitespace());
        let string = &rest[quote..];
        let mut end = 1;
        while string.as_bytes()[end] != b'"' {
            end += if string.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        out.push_str(&string[..=end]);
        rest = &string[end + 1..];
    }
    out.extend(rest.split_ascii_whitespace());
    out
}

/// A record of this claim and this owner is believed.
fn recorded(meta: &Meta, owner: Option<&Owner>) {
    let mut end = End::new(Word::Unknown, Reason::WorkerDied, "a\n\u{1}b".to_owned());
    end.warnings = vec!["c\r\"".to_owned()];
    end.output = Some("[1.50]".to_owned());
    let text = end.to_json(ID, meta, owner);
    let record = Record::read(text.clone().into_bytes(), ID).unwrap();
    assert_eq!(record.text, text);
    assert_eq!((&record.claim, &record.name, record.word), (&meta.claim, &meta.name, Word::Unknown));
    assert!(is_line(&text));
    grown(&text);
}

/// A claim like any other.
pub fn plain() -> Meta {
    Meta {
        claim: "c".to_owned(),
        name: None,
        windows: Windows::from(Limits { idle: None, hard: None, grace: Duration::ZERO, start: None, supervisor: None }),
        origin: Origin { host: "h".to_owned(), machine_id: None, boot_id: None, pid_namespace: None },
        claimed_at: Duration::ZERO,
        claimed_monotonic: Duration::ZERO,
        meta: "{}".to_owned(),
    }
}

/// A job's directory with one file in it.
fn job_with(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Job) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), bytes).unwrap();
    let dir = std::fs::File::open(folder.path()).unwrap().into();
    let job = Job { id: ID.to_owned(), dir, path: folder.path().to_owned(), delivered: false };
    (folder, job)
}
