//! What was typed becomes what is meant.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;
use reap::exit::Fail;
use reap::words::Words;

use crate::windows::Flags;
use crate::word::Word;

/// What the caller asks for.
pub enum Ask {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// A verb, on the root that `--root` names.
    Run(Option<PathBuf>, Verb),
}

/// The verbs with what they take.
pub enum Verb {
    /// Claim a job.
    Claim(Box<Claim>),
    /// Publish the output: the job (`None`: the one that we are part of), and a file (`None`: standard input).
    Put(Option<OsString>, Option<PathBuf>),
    /// Stamp progress: the job, and a text.
    Touch(Option<OsString>, String),
    /// Record an end by hand.
    Finish {
        /// The job.
        job: OsString,
        /// The terminal word.
        word: Word,
        /// The command's exit status.
        exit_code: Option<i32>,
        /// One line for people.
        error: Option<String>,
    },
    /// Say the states.
    Status(Vec<OsString>),
    /// Wait for ends.
    Wait {
        /// At most so long.
        slice: Option<Duration>,
        /// For any of them.
        any: bool,
        /// The jobs.
        jobs: Vec<OsString>,
    },
    /// Show a job to people.
    Show(OsString),
    /// Print the record.
    Result(OsString),
    /// Ask owners to stop.
    Cancel {
        /// All live jobs of this name.
        name: Option<String>,
        /// The jobs.
        jobs: Vec<OsString>,
    },
    /// List jobs.
    List {
        /// Of this name.
        name: Option<String>,
        /// In these states.
        words: Vec<Word>,
        /// Delivered ones too.
        all: bool,
        /// At most so many.
        limit: Option<usize>,
        /// JSON lines.
        json: bool,
        /// Again whenever something happens.
        watch: bool,
    },
    /// Print the directory.
    Path(OsString),
    /// Remove old jobs.
    Prune {
        /// Whose end is older.
        older_than: Duration,
        /// Undelivered ones too.
        undelivered: bool,
        /// Only say which.
        dry_run: bool,
    },
}

/// What `claim` takes.
#[derive(Default)]
pub struct Claim {
    /// The caller's own id.
    pub id: Option<OsString>,
    /// The name.
    pub name: Option<String>,
    /// `--meta K=V`.
    pub pairs: Vec<(String, String)>,
    /// A file with a JSON object.
    pub meta_file: Option<PathBuf>,
    /// The windows as they were typed.
    pub flags: Flags,
    /// The request.
    pub input: Option<PathBuf>,
    /// Print the path, not the id.
    pub path: bool,
}

/// Every option, whatever verb it belongs to.
#[derive(Default)]
struct Given {
    seen: Vec<String>,
    root: Option<PathBuf>,
    claim: Claim,
    exit_code: Option<i32>,
    error: Option<String>,
    slice: Option<Duration>,
    any: bool,
    words: Vec<Word>,
    all: bool,
    limit: Option<usize>,
    json: bool,
    watch: bool,
    older_than: Option<Duration>,
    undelivered: bool,
    dry_run: bool,
    operands: Vec<OsString>,
}

/// The options that each verb has, beside `--root`.
const OPTIONS: [(&str, &[&str]); 12] = [
    (
        "claim",
        &["id", "name", "meta", "meta-file", "idle", "hard", "grace", "start-within", "supervisor", "input", "path"],
    ),
    ("put", &[]),
    ("touch", &[]),
    ("finish", &["exit-code", "error"]),
    ("status", &[]),
    ("show", &[]),
    ("wait", &["slice", "any"]),
    ("result", &[]),
    ("cancel", &["name"]),
    ("list", &["name", "status", "all", "limit", "json", "watch"]),
    ("path", &[]),
    ("prune", &["older-than", "undelivered", "dry-run"]),
];

/// Reads the command line. `inside` says whether we are part of a job: then the one operand of `put` and
/// `touch` is no job.
pub fn parse(parser: lexopt::Parser, inside: bool) -> Result<Ask, Fail> {
    let mut words = Words::new("jobdir", parser);
    let mut given = Given::default();
    while let Some(word) = words.parser.next().map_err(usage)? {
        let name = match &word {
            Short('h') | Long("help") => return Ok(Ask::Help),
            Short('V') | Long("version") => return Ok(Ask::Version),
            Short('r') | Long("root") => {
                given.root = Some(words.value()?.into());
                continue;
            }
            Value(operand) => {
                given.operands.push(operand.clone());
                continue;
            }
            Short('n') => "name".to_owned(),
            Short('i') => "id".to_owned(),
            Short('m') => "meta".to_owned(),
            Short('s') => "slice".to_owned(),
            Short('j') => "json".to_owned(),
            Short('a') => "all".to_owned(),
            Short('w') => "watch".to_owned(),
            Long(name) if OPTIONS.iter().any(|(_, options)| options.contains(name)) => (*name).to_owned(),
            _ => return Err(usage(word.unexpected())),
        };
        given.option(&name, &mut words)?;
        given.seen.push(name);
    }
    given.verb(inside)
}

impl Given {
    fn option(&mut self, name: &str, words: &mut Words) -> Result<(), Fail> {
        let claim = &mut self.claim;
        match name {
            "id" => claim.id = Some(words.value()?),
            "name" => claim.name = Some(words.text(name)?),
            "meta" => {
                let pair = words.text(name)?;
                let (key, value) = pair.split_once('=').ok_or_else(|| usage("--meta: takes K=V"))?;
                claim.pairs.push((key.to_owned(), value.to_owned()));
            }
            "meta-file" => claim.meta_file = Some(words.value()?.into()),
            "idle" => claim.flags.idle = Some(words.span(name)?),
            "hard" => claim.flags.hard = Some(words.span(name)?),
            "grace" => claim.flags.grace = Some(words.span(name)?),
            "start-within" => claim.flags.start = Some(words.span(name)?),
            "supervisor" => claim.flags.supervisor = Some(words.span(name)?),
            "input" => claim.input = Some(words.value()?.into()),
            "path" => claim.path = true,
            "exit-code" => self.exit_code = i32::try_from(words.number(name, 255)?).ok(),
            "error" => self.error = Some(words.text(name)?),
            "slice" => self.slice = Some(words.span(name)?),
            "any" => self.any = true,
            "status" => {
                for word in words.text(name)?.split(',') {
                    let word = Word::parse(word).ok_or_else(|| usage(format!("--status: '{word}' is no state")))?;
                    self.words.push(word);
                }
            }
            "all" => self.all = true,
            "limit" => self.limit = Some(words.number(name, usize::MAX)?),
            "json" => self.json = true,
            "watch" => self.watch = true,
            "older-than" => self.older_than = Some(words.span(name)?),
            "undelivered" => self.undelivered = true,
            "dry-run" => self.dry_run = true,
            _ => return Err(usage(format!("unknown option '--{name}'"))),
        }
        Ok(())
    }

    fn verb(mut self, inside: bool) -> Result<Ask, Fail> {
        if self.operands.is_empty() {
            return Err(usage("no verb given"));
        }
        let verb = self.operands.remove(0).to_string_lossy().into_owned();
        let Some((_, options)) = OPTIONS.iter().find(|(name, _)| *name == verb) else {
            return Err(usage(format!("unknown verb '{verb}'")));
        };
        if let Some(foreign) = self.seen.iter().find(|seen| !options.contains(&seen.as_str())) {
            return Err(usage(format!("{verb} has no option '--{foreign}'")));
        }
        let jobs = self.operands;
        let verb = match verb.as_str() {
            "claim" => {
                let [] = exactly(&verb, "no operand", jobs)?;
                Verb::Claim(Box::new(self.claim))
            }
            "put" => {
                let (job, file) = job_and(&verb, jobs, inside)?;
                Verb::Put(job, file.map(PathBuf::from))
            }
            "touch" => {
                let (job, words) = job_and(&verb, jobs, inside)?;
                // Bytes that are no text become U+FFFD: a stamp is for people.
                Verb::Touch(job, words.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
            }
            "finish" => {
                let [job, word] = exactly(&verb, "a JOB and a state", jobs)?;
                let word = word.to_str().and_then(Word::parse).filter(|word| word.is_terminal());
                let word = word.ok_or_else(|| usage("finish takes done, failed, timeout or unknown"))?;
                Verb::Finish { job, word, exit_code: self.exit_code, error: self.error }
            }
            "status" => Verb::Status(some(&verb, jobs)?),
            "wait" => Verb::Wait { slice: self.slice, any: self.any, jobs: some(&verb, jobs)? },
            "show" | "result" | "path" => {
                let [job] = exactly(&verb, "one JOB", jobs)?;
                match verb.as_str() {
                    "show" => Verb::Show(job),
                    "path" => Verb::Path(job),
                    _ => Verb::Result(job),
                }
            }
            "cancel" => match (self.claim.name, jobs) {
                (Some(_), jobs) if !jobs.is_empty() => return Err(usage("cancel takes JOBs or --name, not both")),
                (None, jobs) => Verb::Cancel { name: None, jobs: some(&verb, jobs)? },
                (name, jobs) => Verb::Cancel { name, jobs },
            },
            "list" => {
                let [] = exactly(&verb, "no operand", jobs)?;
                let Given { words, all, limit, json, watch, .. } = self;
                if json && watch {
                    return Err(usage("list takes --json or --watch, not both"));
                }
                Verb::List { name: self.claim.name, words, all, limit, json, watch }
            }
            _ => {
                let [] = exactly(&verb, "no operand", jobs)?;
                let older_than = self.older_than.ok_or_else(|| usage("prune needs --older-than D"))?;
                Verb::Prune { older_than, undelivered: self.undelivered, dry_run: self.dry_run }
            }
        };
        Ok(Ask::Run(self.root, verb))
    }
}

fn usage(why: impl Display) -> Fail {
    Fail::usage("jobdir", why)
}

fn exactly<const N: usize>(verb: &str, what: &str, operands: Vec<OsString>) -> Result<[OsString; N], Fail> {
    operands.try_into().map_err(|_| usage(format!("{verb} takes {what}")))
}

fn some(verb: &str, operands: Vec<OsString>) -> Result<Vec<OsString>, Fail> {
    if operands.is_empty() { Err(usage(format!("{verb} takes at least one JOB"))) } else { Ok(operands) }
}

/// `[JOB] [THING]`: one operand is the job outside of a job, and the thing inside of one.
fn job_and(verb: &str, operands: Vec<OsString>, inside: bool) -> Result<(Option<OsString>, Option<OsString>), Fail> {
    let mut operands = operands.into_iter();
    match (operands.next(), operands.next(), operands.next()) {
        (_, _, Some(_)) => Err(usage(format!("{verb} takes at most two operands"))),
        (Some(job), Some(thing), None) => Ok((Some(job), Some(thing))),
        (Some(thing), None, None) if inside => Ok((None, Some(thing))),
        (None, ..) if inside => Ok((None, None)),
        (None, ..) => Err(usage(format!("{verb} takes a JOB outside of a job"))),
        (job, None, None) => Ok((job, None)),
    }
}
