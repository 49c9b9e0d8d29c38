//! A result as one JSON line: the record as it came, and what helps a reader who has nothing but the line.

use std::borrow::Cow;

use jobdir::job::Job;
use jobdir::json::Object;
use jobdir::meta::Meta;
use jobdir::moment;
use jobdir::record::{Reason, Record};
use jobdir::word::Word;

/// The most of a log that goes with a line, in bytes.
const TAIL: u64 = 2048;

/// The line of a record, with the tail of the log unless it is done, and the number of the attempt where a handler
/// is tried. Without its line end.
pub fn of_record<'a>(job: &Job, record: &'a Record, attempt: Option<u64>) -> Cow<'a, str> {
    if record.word == Word::Done && attempt.is_none() {
        return Cow::Borrowed(&record.text);
    }
    let mut object = Object::extending(&record.text);
    if record.word != Word::Done {
        object = object.text("log_tail", &log_tail(job));
    }
    Cow::Owned(counted(object, attempt))
}

fn counted(object: Object, attempt: Option<u64>) -> String {
    match attempt {
        Some(attempt) => object.value("attempt", Some(attempt)).end(),
        None => object.end(),
    }
}

/// The line of a job whose end cannot be read.
pub fn of_damage(job: &Job, meta: Option<&Meta>, why: &str, attempt: Option<u64>) -> String {
    let claimed_at = meta.map(|meta| moment::rfc3339(meta.claimed_at));
    let object = Object::new()
        .value("version", Some(1))
        .text("job", &job.id)
        .maybe_text("claim", meta.map(|meta| meta.claim.as_str()))
        .maybe_text("name", meta.and_then(|meta| meta.name.as_deref()))
        .text("status", Word::Unknown.as_str())
        .text("reason", Reason::Damaged.as_str())
        .text("error", why)
        .maybe_text("claimed_at", claimed_at.as_deref())
        .raw("meta", meta.map_or("{}", |meta| &meta.meta))
        .text("log_tail", &log_tail(job));
    counted(object, attempt)
}

/// The last bytes of the log, from the start of a character; bytes that are not UTF-8 become U+FFFD, and so does NUL,
/// which shells and databases cannot hold.
fn log_tail(job: &Job) -> String {
    let bytes = job.log_tail(TAIL);
    // What fills the bound may begin in the middle of a character.
    let full = bytes.len() as u64 == TAIL;
    let cut = if full { bytes.iter().take(3).take_while(|&&b| b & 0xc0 == 0x80).count() } else { 0 };
    let mut tail = String::from_utf8_lossy(&bytes[cut..]).replace('\0', "\u{fffd}");
    // A replacement character is longer than the byte that it stands for.
    let most = usize::try_from(TAIL).unwrap_or(usize::MAX);
    let start = (tail.len().saturating_sub(most)..tail.len()).find(|&at| tail.is_char_boundary(at));
    tail.split_off(start.unwrap_or(0))
}
