//! What was typed becomes what is meant.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;

use lexopt::prelude::*;
use reap::exit::Fail;
use reap::words::Words;

/// What the caller asks for.
pub enum Ask {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// The work itself.
    Run(Args),
}

/// What to do with which jobs.
pub struct Args {
    /// The roots; empty: the chosen one.
    pub roots: Vec<PathBuf>,
    /// Jobs of this name alone.
    pub name: Option<String>,
    /// At most so many results.
    pub limit: usize,
    /// What to do.
    pub mode: Mode,
}

/// What a sweep does with the results.
#[derive(Debug, PartialEq, Eq)]
pub enum Mode {
    /// Prints them.
    Print,
    /// Takes acknowledgements instead.
    Ack,
    /// Prints what is in flight instead.
    InFlight,
    /// Stays, and prints each as it ends.
    Follow,
    /// Runs this for each; the flag: stays.
    Handle(Vec<OsString>, bool),
}

/// Reads the command line.
pub fn parse(parser: lexopt::Parser) -> Result<Ask, Fail> {
    let mut words = Words::new("sweep", parser);
    let mut args = Args { roots: Vec::new(), name: None, limit: usize::MAX, mode: Mode::Print };
    let mut modes = Vec::new();
    let mut handler = Vec::new();
    while let Some(word) = words.parser.next().map_err(usage)? {
        match word {
            Short('h') | Long("help") => return Ok(Ask::Help),
            Short('V') | Long("version") => return Ok(Ask::Version),
            Short('r') | Long("root") => args.roots.push(words.value()?.into()),
            Short('n') | Long("name") => args.name = Some(words.text("name")?),
            Long("limit") => args.limit = words.number("limit", usize::MAX)?,
            Short('a') | Long("ack") => modes.push(Mode::Ack),
            Short('f') | Long("follow") => modes.push(Mode::Follow),
            Short('i') | Long("in-flight") => modes.push(Mode::InFlight),
            Value(command) => {
                handler = words.command(command)?;
                break;
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    if modes.len() > 1 {
        return Err(usage("--ack, --follow and --in-flight do not go together"));
    }
    args.mode = match (modes.pop(), handler.is_empty()) {
        (mode, true) => mode.unwrap_or(Mode::Print),
        (None, false) => Mode::Handle(handler, false),
        (Some(Mode::Follow), false) => Mode::Handle(handler, true),
        (Some(_), false) => return Err(usage("a HANDLER does not go with --ack or --in-flight")),
    };
    Ok(Ask::Run(args))
}

fn usage(why: impl Display) -> Fail {
    Fail::usage("sweep", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(line: &[&str]) -> Option<Mode> {
        match parse(lexopt::Parser::from_args(line)) {
            Ok(Ask::Run(args)) => Some(args.mode),
            _ => None,
        }
    }

    #[test]
    fn one_mode_at_a_time() {
        assert_eq!(mode(&[]), Some(Mode::Print));
        assert_eq!(mode(&["--ack"]), Some(Mode::Ack));
        assert_eq!(mode(&["--", "cmd", "--ack"]), Some(Mode::Handle(vec!["cmd".into(), "--ack".into()], false)));
        assert_eq!(mode(&["-f", "cmd"]), Some(Mode::Handle(vec!["cmd".into()], true)));
        for wrong in [&["--ack", "--follow"][..], &["--ack", "cmd"], &["--limit", "-1"], &["--limit"], &["-x"]] {
            assert_eq!(mode(wrong), None, "{wrong:?}");
        }
    }
}
