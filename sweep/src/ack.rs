//! Takes acknowledgements: JSON lines as they were emitted, or bare ids.

use std::io::{self, BufRead, Read};

use jobdir::files;
use jobdir::id;
use jobdir::job::{Job, Trouble, undamaged};
use jobdir::json;
use jobdir::root::Root;
use jobdir::settle::{self, State};
use reap::exit::{Fail, Status, complain, reason};

/// Reads lines to the end of input and moves those jobs to delivered/. A line that acknowledges nothing is
/// reported, and the others count all the same.
pub fn take(roots: &[Root], input: &mut dyn BufRead) -> Result<Status, Fail> {
    let mut status = Status::Done;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = |line: &mut Vec<u8>, input: &mut dyn BufRead| {
            let read = input.take(files::LARGE).read_until(b'\n', line);
            read.map_err(|e| Fail::cannot("read", "standard input", &e))
        };
        if read(&mut line, input)? == 0 {
            return Ok(status);
        }
        if line.len() as u64 == files::LARGE {
            // No line of ours is that long; what is left of it is passed over.
            while line.last() != Some(&b'\n') && read(&mut line, input)? > 0 {
                line.drain(..line.len() - 1);
            }
            line = b"{".to_vec();
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if let Err(why) = Named::parse(text).and_then(|named| named.acknowledge(roots)) {
            complain("sweep", &format!("cannot acknowledge {why}"));
            status = Status::No;
        }
    }
}

/// What a line names.
struct Named {
    id: String,
    /// A line counts only for the claim that it names; a bare id for whatever goes by it.
    claim: Claim,
}

enum Claim {
    Any,
    Token(Option<String>),
}

impl Named {
    fn parse(line: &[u8]) -> Result<Named, String> {
        let text = std::str::from_utf8(line).map_err(|_| "a line that is not UTF-8".to_owned())?;
        let (id, claim) = if text.starts_with('{') {
            let fields = json::fields(text).map_err(|why| format!("a line that is not whole: {why}"))?;
            let id = json::text(&fields, "job").ok_or("a line that names no job")?;
            (id, Claim::Token(json::text(&fields, "claim")))
        } else {
            (text.to_owned(), Claim::Any)
        };
        if id::is_valid(&id) { Ok(Named { id, claim }) } else { Err(format!("'{id}': it is no id")) }
    }

    fn acknowledge(&self, roots: &[Root]) -> Result<(), String> {
        let wrong = |why: &str| format!("job {}: {why}", self.id);
        let failed = |e: io::Error| wrong(&reason(&e));
        let mut why = wrong("there is no such job");
        for root in roots {
            let Some(job) = root.job(&self.id).map_err(failed)? else { continue };
            if !self.means(&job).map_err(|trouble| wrong(trouble.text()))? {
                why = wrong("the line is of another claim of this id");
                continue;
            }
            if job.delivered {
                return Ok(());
            }
            if let Some(not_yet) = self.not_ended(&job) {
                why = wrong(&not_yet);
                continue;
            }
            // Where its name stands for another claim by now, nothing moves, and this one is gone.
            root.acknowledge(&job).map_err(failed)?;
            return Ok(());
        }
        Err(why)
    }

    fn means(&self, job: &Job) -> Result<bool, Trouble> {
        let Claim::Token(token) = &self.claim else { return Ok(true) };
        if token.is_some() && job.token()? == *token {
            return Ok(true);
        }
        // What was emitted is the claim of the record, or of meta.json where the record is damaged.
        let meta = undamaged(job.meta())?.map(|meta| meta.claim);
        Ok(meta == *token || undamaged(job.record())?.flatten().is_some_and(|record| Some(record.claim) == *token))
    }

    /// Why there is nothing to deliver; `None`: an end, or damage that was emitted as one.
    fn not_ended(&self, job: &Job) -> Option<String> {
        // A line of this very claim was emitted once its record was on the disk.
        let emitted = matches!(self.claim, Claim::Token(_));
        if emitted && matches!(files::look(job.fd(), files::RESULT), Ok(Some(_)))
            || job.word().is_ok_and(|word| word.is_terminal())
        {
            return None;
        }
        match settle::settle_one(job) {
            State::Ended(_) | State::Damaged(_) => None,
            State::Unclear(why) => Some(why),
            State::Live(_) | State::Foreign => Some("it has not ended".to_owned()),
        }
    }
}
