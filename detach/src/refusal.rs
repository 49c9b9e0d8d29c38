//! Why nothing was started: a status and one line of words.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

/// Why the tool did not do its work: the status it ends with, and the words after `detach: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The exit status.
    pub status: u8,
    /// One line without the tool's name, lower case, without a final dot.
    pub text: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refusal {}

impl Refusal {
    /// The tool itself could not do its part: status 125.
    pub fn failed(text: impl Into<String>) -> Refusal {
        Refusal { status: 125, text: text.into() }
    }

    /// Called wrong: status 125 and a pointer to the help, since 2 may be COMMAND's own.
    pub fn usage(text: impl AsRef<str>) -> Refusal {
        Refusal::failed(format!("{} (try 'detach --help')", shown(text.as_ref())))
    }

    /// Writes the line to standard error, as far as there is one.
    pub fn report(&self, tool: &str) {
        // Nobody is left to be told when standard error fails; the status still speaks.
        let _ = writeln!(io::stderr(), "{tool}: {}", self.text);
    }
}

/// The reason alone, as messages end: lower case, without "(os error 13)".
pub fn reason(error: impl Into<io::Error>) -> String {
    let text = error.into().to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// A name as messages show it: on one line, whatever bytes it holds.
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let name = name.as_ref().to_string_lossy();
    if name.is_empty() {
        return "''".into();
    }
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_control() {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn a_reason_is_lower_case_and_has_no_number() {
        assert_eq!(reason(Errno::EACCES), "permission denied");
    }

    #[test]
    fn a_name_stays_on_one_line() {
        assert_eq!(shown("a\nb"), "a\\nb");
        assert_eq!(shown(""), "''");
        assert_eq!(shown("日本"), "日本");
    }
}
