//! The verbs: from what is meant to what is said.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jobdir::args::{self, Verb};
use jobdir::cancel::cancel;
use jobdir::claim::{self, Claimed, Order, claim, meta_of};
use jobdir::files;
use jobdir::finish::{Verdict, finish};
use jobdir::id;
use jobdir::job::Job;
use jobdir::list::{self, Filter};
use jobdir::output;
use jobdir::progress;
use jobdir::prune;
use jobdir::root::{Named, Root, chosen};
use jobdir::screen::Paper;
use jobdir::settle::{self, State};
use jobdir::show;
use jobdir::wait;
use jobdir::windows::{Limits, Windows, outer_deadline};
use jobdir::word::Word;
use nix::errno::Errno;
use reap::exit::{Fail, Status, complain, say};
use reap::here;
use reap::process::{MoreDescriptors, side_by_side};

/// The directory of the job that we are part of.
pub fn own_job() -> Option<OsString> {
    std::env::var_os("JOB_DIR").filter(|dir| !dir.is_empty())
}

pub fn run(root: Option<PathBuf>, verb: Verb) -> Result<Status, Fail> {
    let open = |job: &OsStr| Named::parse(job)?.open(root.as_deref());
    let job_or_own = |job: Option<OsString>| open(&job.or_else(own_job).unwrap_or_default());
    match verb {
        Verb::Claim(order) => claim_one(&chosen(root)?, *order),
        Verb::Put(job, file) => put(&job_or_own(job)?.1, file.as_deref()),
        Verb::Touch(job, text) => progress::stamp(&job_or_own(job)?.1, &text).map(|()| Status::Done),
        Verb::Finish { job, word, exit_code, error } => {
            finish(&open(&job)?.1, Verdict { word, exit_code, error }).map(|()| Status::Done)
        }
        Verb::Status(jobs) => status(&jobs, open),
        Verb::Wait { slice, any, jobs } => {
            let _descriptors = MoreDescriptors::allow();
            let jobs = jobs.iter().map(|job| open(job)).collect::<Result<Vec<_>, Fail>>()?;
            wait::wait(&jobs, &wait::Order { slice, any })
        }
        Verb::Show(job) => {
            let (root, job) = open(&job)?;
            show::show(&root, &job)
        }
        Verb::Result(job) => result(&open(&job)?.1),
        Verb::Cancel { name: Some(name), .. } => cancel_named(&chosen(root)?, name),
        Verb::Cancel { jobs, .. } => cancel_each(jobs.iter().map(|job| open(job))),
        Verb::List { name, words, all, limit, json, watch } => {
            let filter = Filter { name, words, all, limit };
            if watch { list::watch(&chosen(root)?, &filter) } else { list_all(&chosen(root)?, &filter, json) }
        }
        Verb::Path(job) => say(line_of(&open(&job)?.1.path)).map(|()| Status::Done),
        Verb::Prune { older_than, undelivered, dry_run } => {
            prune_all(&chosen(root)?, &prune::Order { older_than, undelivered, dry_run })
        }
    }
}

type Opened = Result<(Root, Job), Fail>;

fn warn(text: &str) {
    complain("jobdir", &format!("warning: {text}"));
}

/// Everything is read before anything is made: a wrong call leaves no trace.
fn claim_one(root: &Path, order: args::Claim) -> Result<Status, Fail> {
    let usage = |why: String| Fail::usage("jobdir", why);
    let id = order.id.map(OsString::into_string).transpose().ok().filter(|id| id.as_deref().is_none_or(id::is_valid));
    let id =
        id.ok_or_else(|| usage("--id: takes 1 to 128 of A-Z a-z 0-9 . _ -, the first a letter or digit".into()))?;
    let file = order.meta_file.as_deref().map(meta_file).transpose()?;
    let meta = meta_of(file.as_deref(), &order.pairs).map_err(|why| {
        let option = if file.is_some() { "--meta-file" } else { "--meta" };
        usage(format!("{option}: {why}"))
    })?;
    let environment = |name: &str| std::env::var_os(name);
    let mut say_warning = |text: String| warn(&text);
    let limits = Limits::choose(&order.flags, &environment, &mut say_warning);
    let windows = Windows::from(limits.clamped(outer_deadline(&environment, here::wall(), &mut say_warning)));
    let mut from = order.input.as_deref().map(|path| Ok::<_, Fail>((reader(path)?, path))).transpose()?;
    let input = from.as_mut().map(|(from, path)| (from.as_mut() as &mut dyn Read, *path));
    let root = &Root::create(root)?;
    let job = match claim(root, Order { id, name: order.name, meta, windows, input })? {
        Claimed::Ours(job) => job,
        Claimed::Taken(job, state) => {
            say(format!("{}\n", word_of(&job, state)?)).or_else(Fail::unless_quiet)?;
            return Err(Fail::new(Status::Taken, format!("cannot claim job {}: it is claimed already", job.id)));
        }
    };
    let told = say(if order.path { line_of(&job.path) } else { format!("{}\n", job.id).into_bytes() });
    if let Err(untold) = told {
        // Nobody knows the id, so nobody could ever start or look for this job.
        claim::withdraw(root, &job).map_err(|e| Fail::cannot("withdraw job", &job.id, &e))?;
        return Err(Fail { status: Status::Broken as u8, ..untold });
    }
    Ok(Status::Done)
}

fn meta_file(path: &Path) -> Result<String, Fail> {
    let mut text = String::new();
    let read = reader(path)?.take(files::SMALL + 1).read_to_string(&mut text);
    let read = read.and_then(|bytes| if bytes as u64 > files::SMALL { Err(Errno::EFBIG.into()) } else { Ok(text) });
    read.map_err(|e| Fail::cannot("read", path.display(), &e))
}

fn line_of(path: &Path) -> Vec<u8> {
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(b'\n');
    line
}

/// A file, or standard input for `-`. A FIFO waits for its writer, as it does for `cat`.
fn reader(path: &Path) -> Result<Box<dyn Read>, Fail> {
    if path == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::options().read(true).custom_flags(libc::O_NOCTTY).open(path);
    Ok(Box::new(file.map_err(|e| Fail::cannot("open", path.display(), &e))?))
}

fn put(job: &Job, file: Option<&Path>) -> Result<Status, Fail> {
    let path = file.unwrap_or(Path::new("-"));
    let what = if path == "-" { "standard input".into() } else { path.display().to_string() };
    output::put(job, reader(path)?.as_mut(), &what).map(|()| Status::Done)
}

/// The settled word. A job whose end cannot be read is `unknown`, and says why on standard error.
fn settled(job: &Job) -> Result<Word, Fail> {
    word_of(job, settle::settle_one(job))
}

fn word_of(job: &Job, state: State) -> Result<Word, Fail> {
    match state {
        State::Ended(word) => Ok(word),
        State::Live(live) => Ok(live.word),
        State::Damaged(why) => {
            complain("jobdir", &format!("cannot read the end of job {}: {why}", job.id));
            Ok(Word::Unknown)
        }
        state => state.failure("tell the state of", job).map_or(Ok(Word::Unknown), Err),
    }
}

fn status(jobs: &[OsString], open: impl Fn(&OsStr) -> Opened) -> Result<Status, Fail> {
    if let [job] = jobs {
        return say(format!("{}\n", settled(&open(job)?.1)?)).map(|()| Status::Done);
    }
    let _descriptors = MoreDescriptors::allow();
    let mut last = Ok(Status::Done);
    for some in jobs.chunks(side_by_side()) {
        // One that gives no answer does not keep the others from theirs.
        let mut opened = Vec::with_capacity(some.len());
        for job in some {
            match open(job) {
                Ok((_, job)) => opened.push(job),
                Err(fail) => fail_on(&mut last, fail),
            }
        }
        let states = settle::settle(&opened.iter().collect::<Vec<_>>());
        for (job, state) in opened.iter().zip(states) {
            match word_of(job, state) {
                Ok(word) => say(format!("{}\t{word}\n", job.id))?,
                Err(fail) => fail_on(&mut last, fail),
            }
        }
    }
    last
}

/// Keeps the last failure to end with, and says the one before.
fn fail_on(last: &mut Result<Status, Fail>, fail: Fail) {
    if let Err(earlier) = std::mem::replace(last, Err(fail)) {
        let _ = earlier.report("jobdir");
    }
}

fn result(job: &Job) -> Result<Status, Fail> {
    let verb = "print the record of";
    match settle::settle_one(job) {
        State::Ended(_) => {}
        State::Live(live) => {
            return Err(Fail::new(Status::NotYet, format!("cannot {verb} job {}: it is {}", job.id, live.word)));
        }
        state => return state.failure(verb, job).map_or(Ok(Status::Done), Err),
    }
    let record = job.record().map_err(|trouble| State::Damaged(trouble.text().to_owned()));
    match record {
        Ok(Some(record)) => say(record.text + "\n").map(|()| Status::Done),
        Ok(None) => Err(Fail::new(Status::NoJob, format!("cannot {verb} job {}: it is gone", job.id))),
        Err(state) => state.failure(verb, job).map_or(Ok(Status::Done), Err),
    }
}

fn cancel_each(jobs: impl Iterator<Item = Opened>) -> Result<Status, Fail> {
    let mut last = Ok(Status::Done);
    for opened in jobs {
        if let Err(fail) = opened.and_then(|(_, job)| cancel(&job)) {
            fail_on(&mut last, fail);
        }
    }
    last
}

fn cancel_named(root: &Path, name: String) -> Result<Status, Fail> {
    let words = vec![Word::Claimed, Word::Running];
    let Some(root) = Root::open(root)? else { return Ok(Status::No) };
    let rows = list::rows(&root, &Filter { name: Some(name), words, ..Filter::default() }, &mut |why| warn(&why))?;
    let mut last = Ok(if rows.is_empty() { Status::No } else { Status::Done });
    for row in rows {
        // One that has ended and was delivered since the listing needs no cancel.
        if let Ok(Some(job)) = root.job(&row.id)
            && let Err(fail) = cancel(&job)
        {
            fail_on(&mut last, fail);
        }
    }
    last
}

fn list_all(root: &Path, filter: &Filter, json: bool) -> Result<Status, Fail> {
    let Some(root) = Root::open(root)? else { return Ok(Status::Done) };
    let mut status = Status::Done;
    let rows = list::rows(&root, filter, &mut |why| {
        complain("jobdir", &why);
        status = Status::No;
    })?;
    let paper = || Some(Paper::of(&io::stdout())).filter(Paper::is_window);
    say(if json {
        rows.iter().map(|row| row.to_json() + "\n").collect()
    } else if let Some(paper) = paper() {
        list::lines(&rows, paper).iter().map(|line| format!("{}\n", line.text())).collect()
    } else {
        list::table(&rows)
    })?;
    Ok(status)
}

fn prune_all(root: &Path, order: &prune::Order) -> Result<Status, Fail> {
    let Some(root) = Root::open(root)? else { return Ok(Status::Done) };
    let mut status = Status::Done;
    let mut gone = |id: &str| say(format!("{id}\n"));
    prune::prune(&root, order, &mut gone, &mut |why| {
        complain("jobdir", &why);
        status = Status::No;
    })?;
    Ok(status)
}
