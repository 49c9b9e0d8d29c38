//! What was typed becomes what is meant.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use jobdir::output;
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

/// The command and its limits.
pub struct Args {
    /// The job to own; `None`: only a `timeout` that measures silence.
    pub job: Option<OsString>,
    /// The job root.
    pub root: Option<PathBuf>,
    /// Where both outputs go without a job.
    pub log: Option<PathBuf>,
    /// Silence that ends the command, without a job.
    pub idle: Option<Duration>,
    /// Age that ends it, without a job.
    pub hard: Option<Duration>,
    /// TERM to KILL, without a job.
    pub grace: Duration,
    /// Further files whose change is a sign of life.
    pub watch: Vec<PathBuf>,
    /// Standard output is the job's output.
    pub capture: bool,
    /// Exit 0 without a valid output is a failure.
    pub require_output: bool,
    /// The largest output, in bytes.
    pub max_output: u64,
    /// What is kept of the log, in bytes: its head and its tail.
    pub max_log: Option<u64>,
    /// The command gets a pid namespace of its own, which ends with us.
    pub contain: bool,
    /// Children may outlive a normal end.
    pub keep_children: bool,
    /// The command alone first when the tree is ended.
    pub root_first: bool,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Reads the command line. Options stop at the command.
pub fn parse(parser: lexopt::Parser) -> Result<Ask, Fail> {
    let mut words = Words::new("watchdog", parser);
    let mut args = Args {
        job: None,
        root: None,
        log: None,
        idle: None,
        hard: None,
        grace: Duration::from_secs(5),
        watch: Vec::new(),
        capture: false,
        require_output: false,
        max_output: output::DEFAULT_LIMIT,
        max_log: None,
        contain: false,
        keep_children: false,
        root_first: false,
        command: Vec::new(),
    };
    let (mut of_claim, mut of_job) = (None, None);
    while let Some(word) = words.parser.next().map_err(usage)? {
        match word {
            Short('h') | Long("help") => return Ok(Ask::Help),
            Short('V') | Long("version") => return Ok(Ask::Version),
            Short('j') | Long("job") => args.job = Some(words.value()?),
            Short('r') | Long("root") => args.root = Some(words.value()?.into()),
            Short('l') | Long("log") => {
                of_claim = Some("--log");
                args.log = Some(words.value()?.into());
            }
            Long("idle") => {
                of_claim = Some("--idle");
                args.idle = Some(words.span("idle")?).filter(|d| !d.is_zero());
            }
            Long("hard") => {
                of_claim = Some("--hard");
                args.hard = Some(words.span("hard")?).filter(|d| !d.is_zero());
            }
            Short('g') | Long("grace") => {
                of_claim = Some("--grace");
                args.grace = words.span("grace")?;
            }
            Short('w') | Long("watch") => args.watch.push(words.value()?.into()),
            Long("capture") => {
                of_job = Some("--capture");
                args.capture = true;
            }
            Long("require-output") => {
                of_job = Some("--require-output");
                args.require_output = true;
            }
            Long("max-output") => {
                of_job = Some("--max-output");
                args.max_output = size("--max-output", &words.text("max-output")?, 1..=output::GREATEST_LIMIT)?;
            }
            Long("max-log") => {
                of_job = Some("--max-log");
                args.max_log = Some(size("--max-log", &words.text("max-log")?, LOG_SIZES)?);
            }
            Long("contain") => args.contain = true,
            Long("keep-children") => args.keep_children = true,
            Long("root-first") => args.root_first = true,
            Value(command) => {
                args.command = words.command(command)?;
                break;
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    match (&args.job, of_claim, of_job) {
        (Some(_), Some(option), _) => {
            return Err(usage(format!("{option} does not go with --job: it is in the claim")));
        }
        (None, _, Some(option)) => return Err(usage(format!("{option} needs --job"))),
        _ => {}
    }
    if args.job.is_none() && args.idle.is_some() && args.log.is_none() {
        return Err(usage("--idle needs --log: its silence is what is measured"));
    }
    if args.contain && args.keep_children {
        return Err(usage("--keep-children does not go with --contain: a namespace ends as a whole"));
    }
    if args.command.is_empty() {
        return Err(usage("no COMMAND given"));
    }
    Ok(Ask::Run(args))
}

fn usage(why: impl Display) -> Fail {
    Fail::usage("watchdog", why)
}

/// What may be kept of a log: no less than two tails that a sweep passes on, with room to look at them in time.
const LOG_SIZES: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// A size in bytes within the range: `4096`, `64k`, `16M`, `1G`.
fn size(option: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, Fail> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    number
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|bytes| range.contains(bytes))
        .ok_or_else(|| usage(format!("{option}: '{text}' is no size from {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Args, String> {
        match parse(lexopt::Parser::from_args(line)) {
            Ok(Ask::Run(args)) => Ok(args),
            Ok(_) => Err("no run".into()),
            Err(fail) => Err(fail.text),
        }
    }

    #[test]
    fn options_stop_at_the_command() {
        let args = parsed(&["--hard", "1m", "cmd", "--idle", "-V"]).unwrap();
        assert_eq!(args.command, ["cmd", "--idle", "-V"]);
        assert_eq!(args.hard, Some(Duration::from_secs(60)));
        assert_eq!(parsed(&["--", "--hard"]).unwrap().command, ["--hard"]);
        assert_eq!(parsed(&["cmd", "--", "x"]).unwrap().command, ["cmd", "--", "x"]);
    }

    #[test]
    fn what_belongs_to_the_claim_is_refused_with_a_job() {
        for wrong in [
            &["--job", "j", "--idle", "1", "x"][..],
            &["--job", "j", "--log", "f", "x"],
            &["--capture", "x"],
            &["--idle", "1", "x"],
            &["--max-log", "1M", "x"],
            &["--contain", "--keep-children", "x"],
            &["--hard", "-1", "x"],
            &["--hard"],
            &[],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert!(parsed(&["--idle", "0", "x"]).unwrap().idle.is_none());
    }

    #[test]
    fn sizes() {
        let size = |text: &str| size("--max-output", text, 1..=output::GREATEST_LIMIT);
        assert_eq!(size("4096").unwrap(), 4096);
        assert_eq!(size("64k").unwrap(), 65_536);
        assert_eq!(size("16M").unwrap(), 16 << 20);
        for wrong in ["", "0", "k", "-1", "1G", "99999999999999999999", "65M", "1.5M", "+1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        let size = |text: &str| super::size("--max-log", text, LOG_SIZES);
        assert_eq!(size("2G").unwrap(), 2 << 30);
        for wrong in ["0", "65535", "63k", "1025G", "17179869184G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
