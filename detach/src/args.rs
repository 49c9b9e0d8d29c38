//! What was typed becomes what is meant.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::refusal::{Refusal, shown};

/// What one call asks for.
#[derive(Debug)]
pub enum Ask {
    /// The help text.
    Help,
    /// The version line.
    Version,
    /// A command to be started.
    Run(Args),
}

/// A command and how to start it.
#[derive(Debug, Default)]
pub struct Args {
    /// `-C`: where the command runs.
    pub chdir: Option<PathBuf>,
    /// `-i`: its standard input instead of /dev/null.
    pub input: Option<PathBuf>,
    /// `-o`: where its standard output, and without `-e` its standard error, is appended.
    pub output: Option<PathBuf>,
    /// `-e`: where its standard error is appended.
    pub error: Option<PathBuf>,
    /// `-p`: print the worker's pid.
    pub pid: bool,
    /// `-r`: wait until the command says that it is ready.
    pub ready: bool,
    /// `--keep-fd`: descriptors that stay open, sorted.
    pub keep: Vec<RawFd>,
    /// The command and its arguments, never empty.
    pub command: Vec<OsString>,
}

/// Reads one call. Options stop at the command, whose words are its own.
pub fn parse(mut parser: lexopt::Parser) -> Result<Ask, Refusal> {
    let wrong = |error: lexopt::Error| Refusal::usage(error.to_string());
    let mut args = Args::default();
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Short('C') | Long("chdir") => args.chdir = Some(parser.value().map_err(wrong)?.into()),
            Short('i') | Long("input") => args.input = Some(parser.value().map_err(wrong)?.into()),
            Short('o') | Long("output") => args.output = Some(parser.value().map_err(wrong)?.into()),
            Short('e') | Long("error") => args.error = Some(parser.value().map_err(wrong)?.into()),
            Short('p') | Long("pid") => args.pid = true,
            Short('r') | Long("ready") => args.ready = true,
            Long("keep-fd") => args.keep.push(descriptor(parser.value().map_err(wrong)?)?),
            Short('h') | Long("help") => return Ok(Ask::Help),
            Short('V') | Long("version") => return Ok(Ask::Version),
            Value(name) => {
                args.command.push(name);
                args.command.extend(parser.raw_args().map_err(wrong)?);
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    if args.command.is_empty() {
        return Err(Refusal::usage("no command given"));
    }
    args.keep.sort_unstable();
    args.keep.dedup();
    Ok(Ask::Run(args))
}

fn descriptor(value: OsString) -> Result<RawFd, Refusal> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(0..=2) => Err(Refusal::usage("--keep-fd wants 3 or more: 0, 1 and 2 have -i, -o and -e")),
        Some(fd) if fd >= 3 => Ok(fd),
        _ => Err(Refusal::usage(format!("--keep-fd wants a descriptor, not '{}'", shown(value)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<Args, String> {
        match parse(lexopt::Parser::from_args(words)) {
            Ok(Ask::Run(args)) => Ok(args),
            Ok(other) => Err(format!("{other:?}")),
            Err(refusal) => Err(refusal.text),
        }
    }

    #[test]
    fn options_stop_at_the_command() {
        let args = run(&["-rp", "-C", "d", "cmd", "-p", "--", "--help"]).unwrap_or_default();
        assert_eq!(args.command, ["cmd", "-p", "--", "--help"]);
        assert!(args.ready && args.pid && args.chdir == Some("d".into()));
    }

    #[test]
    fn every_word_after_two_dashes_is_the_command() {
        assert_eq!(run(&["--", "-p", "--", "x"]).unwrap_or_default().command, ["-p", "--", "x"]);
    }

    #[test]
    fn long_names_mean_the_same() {
        let line = "--chdir=d --input i --output o --error e --pid --ready --keep-fd 9 --keep-fd 4 --keep-fd 9 c";
        let args = run(&line.split(' ').collect::<Vec<_>>()).unwrap_or_default();
        assert_eq!([args.chdir, args.input, args.output, args.error], ["d", "i", "o", "e"].map(|p| Some(p.into())));
        assert!(args.pid && args.ready && args.keep == [4, 9] && args.command == ["c"]);
    }

    #[test]
    fn a_wrong_call_points_to_the_help() {
        for words in [&[][..], &["-x", "c"], &["--nope", "c"], &["-C"], &["--keep-fd", "x", "c"], &["--pid=1", "c"]] {
            let text = run(words).err().unwrap_or_default();
            assert!(text.ends_with(" (try 'detach --help')"), "{words:?}: {text}");
        }
        assert!(run(&["--keep-fd", "1", "c"]).err().unwrap_or_default().contains("have -i, -o and -e"));
        assert!(run(&["--keep-fd", "-1", "c"]).is_err());
    }
}
