//! What was typed becomes what is meant.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::prelude::*;
use nix::sys::signal::Signal;

use crate::exit::Fail;
use crate::words::Words;

/// What the caller asks for.
pub enum Ask {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// The work itself.
    Run(Args),
}

/// The targets and how to end them.
pub struct Args {
    /// TERM to KILL.
    pub grace: Duration,
    /// The first signal.
    pub signal: i32,
    /// The targets alone first.
    pub root_first: bool,
    /// Only say whom it would end.
    pub dry_run: bool,
    /// JSON lines, one a process.
    pub json: bool,
    /// Pids, with the start time that the caller remembers, if any.
    pub targets: Vec<Target>,
}

/// `PID` or `PID@START`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number.
    pub pid: i32,
    /// The start time in clock ticks since boot.
    pub start: Option<u64>,
}

/// Reads the command line.
pub fn parse(parser: lexopt::Parser) -> Result<Ask, Fail> {
    let mut words = Words::new("reap", parser);
    let mut args = Args {
        grace: Duration::from_secs(5),
        signal: libc::SIGTERM,
        root_first: false,
        dry_run: false,
        json: false,
        targets: Vec::new(),
    };
    while let Some(word) = words.parser.next().map_err(usage)? {
        match word {
            Short('h') | Long("help") => return Ok(Ask::Help),
            Short('V') | Long("version") => return Ok(Ask::Version),
            Short('g') | Long("grace") => args.grace = words.span("grace")?,
            Short('s') | Long("signal") => args.signal = signal(&words.text("signal")?)?,
            Long("root-first") => args.root_first = true,
            Short('n') | Long("dry-run") => args.dry_run = true,
            Short('j') | Long("json") => args.json = true,
            Value(word) => args.targets.push(target(&word)?),
            other => return Err(usage(other.unexpected())),
        }
    }
    if args.targets.is_empty() {
        return Err(usage("no PID given"));
    }
    Ok(Ask::Run(args))
}

fn usage(why: impl std::fmt::Display) -> Fail {
    Fail::usage("reap", why)
}

/// `TERM`, `SIGTERM`, `term` or `15`.
fn signal(word: &str) -> Result<i32, Fail> {
    let upper = word.to_ascii_uppercase();
    let named = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    named
        .parse::<Signal>()
        .or_else(|_| word.parse().ok().and_then(|n: i32| Signal::try_from(n).ok()).ok_or(()))
        .map(|signal| signal as i32)
        .map_err(|()| usage(format!("--signal: '{word}' is no signal")))
}

/// A pid is decimal digits alone, from 1 to 2^31 - 1; so is a start time.
fn target(word: &OsString) -> Result<Target, Fail> {
    let wrong = || usage(format!("'{}' is no PID or PID@START", word.display()));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = word.to_str().ok_or_else(wrong)?;
    let (pid, start) = match text.split_once('@') {
        Some((pid, start)) if digits(start) => (pid, Some(start.parse().map_err(|_| wrong())?)),
        Some(_) => return Err(wrong()),
        None => (text, None),
    };
    if !digits(pid) {
        return Err(wrong());
    }
    match pid.parse() {
        Ok(pid) if pid > 0 => Ok(Target { pid, start }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_possible_pid_is_refused() {
        for word in ["", "0", "-1", "+3", "1e3", "2147483648", "1.0", " 1", "1@", "@1", "1@-1", "0x1", "١", "1@2@3"] {
            assert!(target(&OsString::from(word)).is_err(), "{word:?} was accepted");
        }
        assert_eq!(target(&"7@8".into()).unwrap(), Target { pid: 7, start: Some(8) });
        assert_eq!(target(&"2147483647".into()).unwrap(), Target { pid: i32::MAX, start: None });
    }

    #[test]
    fn a_signal_goes_by_any_of_its_names() {
        for word in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(word).unwrap(), libc::SIGTERM);
        }
        assert!(signal("0").is_err() && signal("TERMINATE").is_err() && signal("99").is_err());
    }
}
