//! How the tools end: one table of statuses, one shape of message, standard output for data only.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use nix::errno::Errno;

/// What an exit status means, the same for every tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Done; yes.
    Done = 0,
    /// The plain no: failed or unknown, nothing matched, a process survived, a handler refused.
    No = 1,
    /// Called wrong: the same call can never work.
    Usage = 2,
    /// Already claimed; already owned or ended.
    Taken = 3,
    /// No such job.
    NoJob = 66,
    /// Not yet: the same call later may succeed.
    NotYet = 75,
    /// The root or the job is not safely ours.
    Refused = 77,
    /// A limit was hit.
    Limit = 124,
    /// The tool itself failed.
    Broken = 125,
}

/// Why a tool could not do its work, and the status that it ends with.
#[derive(Debug)]
pub struct Fail {
    /// The exit status.
    pub status: u8,
    /// One line for standard error, without the tool's name; empty for a closed pipe.
    pub text: String,
}

impl Display for Fail {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Fail {}

impl Fail {
    /// A failure of the given kind.
    pub fn new(status: Status, text: impl Into<String>) -> Fail {
        Fail { status: status as u8, text: text.into() }
    }

    /// A wrong call of `tool`.
    pub fn usage(tool: &str, text: impl Display) -> Fail {
        Fail::new(Status::Usage, format!("{text} (try '{tool} --help')"))
    }

    /// The system refused: `cannot VERB OBJECT: reason`.
    pub fn cannot(verb: &str, object: impl Display, error: &io::Error) -> Fail {
        Fail::new(Status::Broken, format!("cannot {verb} {object}: {}", reason(error)))
    }

    /// Nothing, for a closed pipe: where the status says more than the output, it stays.
    pub fn unless_quiet(self) -> Result<(), Fail> {
        if self.text.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Says it on standard error and gives the status to end with.
    pub fn report(&self, tool: &str) -> u8 {
        if !self.text.is_empty() {
            complain(tool, &self.text);
        }
        self.status
    }
}

/// The words of an error: lower case, without its number.
pub fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => uncapitalised(Errno::from_raw(number).desc()),
        None => error.to_string(),
    }
}

fn uncapitalised(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        // "I/O error" is no word with a capital.
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Writes `tool: text` to standard error as one line, whatever bytes a name in it may hold.
pub fn complain(tool: &str, text: &str) {
    let line = format!("{tool}: {}\n", printable(text));
    // A closed or full standard error must not change how the work ends.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// `text` with its control characters escaped, so that it stays one line and cannot drive a terminal.
pub fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
        line
    })
}

/// `text` as a JSON string (RFC 8259).
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // DEL and the C1 controls are legal in JSON, but a terminal acts on them.
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes data to standard output. A pipe that nobody reads any more ends the tool without a word.
pub fn say(data: impl AsRef<[u8]>) -> Result<(), Fail> {
    let mut out = io::stdout().lock();
    out.write_all(data.as_ref()).and_then(|()| out.flush()).map_err(|e| unsaid(&e))
}

/// The failure of a write to standard output.
pub fn unsaid(error: &io::Error) -> Fail {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Fail::new(Status::Done, ""),
        _ => Fail::cannot("write to", "standard output", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_lower_case_and_has_no_number() {
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOSPC)), "no space left on device");
    }

    #[test]
    fn a_quoted_text_is_one_json_string() {
        assert_eq!(quoted("a\"b\\c\n\u{1}\u{9b}é"), "\"a\\\"b\\\\c\\n\\u0001\\u009bé\"");
    }

    #[test]
    fn control_characters_stay_on_their_line() {
        assert_eq!(printable("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(printable("plain é"), "plain é");
    }
}
