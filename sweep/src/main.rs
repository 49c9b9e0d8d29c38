//! sweep: turn jobs that have ended into JSON lines, delivered at least once.
//!
//! - What has died is settled first: silence never looks like success.
//! - A line in a pipe is not delivered; an acknowledgement is a rename, and counts for the claim that it names.
//! - One damaged job never stops the others.
//! - History costs nothing: what is delivered lies elsewhere.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use jobdir::list::{self, Filter};
use jobdir::root::{Root, chosen};
use jobdir::word::Word;
use reap::exit::{Fail, Status, complain, reason, say, unsaid};
use sweep::ack;
use sweep::args::{self, Args, Ask, Mode};
use sweep::follow::follow;
use sweep::handler::{self, Turn};
use sweep::pass::{Offer, Order, pass};

fn main() -> ExitCode {
    match run() {
        Ok(status) => status.into(),
        Err(fail) => fail.report("sweep"),
    }
}

fn run() -> Result<Status, Fail> {
    match args::parse(lexopt::Parser::from_env())? {
        Ask::Help => say(include_str!("help.txt")).map(|()| Status::Done),
        Ask::Version => say(concat!("sweep ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| Status::Done),
        Ask::Run(args) => sweep(&args),
    }
}

fn sweep(args: &Args) -> Result<Status, Fail> {
    let paths = if args.roots.is_empty() { vec![chosen(None)?] } else { args.roots.clone() };
    match &args.mode {
        Mode::Ack => ack::take(&existing(&paths)?, &mut io::stdin().lock()),
        Mode::InFlight => in_flight(args, &existing(&paths)?),
        Mode::Print => print(args, &existing(&paths)?),
        Mode::Handle(handler, false) => handle(args, &existing(&paths)?, handler),
        Mode::Follow => stay(args, &paths, None),
        Mode::Handle(handler, true) => stay(args, &paths, Some(handler)),
    }
}

/// A root that does not exist yet holds nothing.
fn existing(paths: &[PathBuf]) -> Result<Vec<Root>, Fail> {
    paths.iter().filter_map(|path| Root::open(path).transpose()).collect()
}

fn order(args: &Args, counted: bool) -> Order<'_> {
    Order { name: args.name.as_deref(), limit: args.limit, counted }
}

fn print(args: &Args, roots: &[Root]) -> Result<Status, Fail> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut order = order(args, false);
    let mut trouble = false;
    for root in roots {
        let mut take = |offer: &Offer<'_>| {
            offer.report();
            writeln!(out, "{}", (offer.line)()).map_err(|e| unsaid(&e))
        };
        let outcome = pass(root, &order, &mut take, &mut |_, _| Ok(()))?;
        order.limit -= outcome.offered;
        trouble |= outcome.trouble;
    }
    out.flush().map_err(|e| unsaid(&e))?;
    Ok(if trouble { Status::No } else { Status::Done })
}

fn handle(args: &Args, roots: &[Root], command: &[std::ffi::OsString]) -> Result<Status, Fail> {
    let mut order = order(args, true);
    let mut trouble = false;
    for root in roots {
        let _turn = Turn::take(root)?;
        let mut refused = false;
        let mut take = |offer: &Offer<'_>| {
            refused |= !offer_to(root, command, offer)?;
            Ok(())
        };
        let outcome = pass(root, &order, &mut take, &mut |_, _| Ok(()))?;
        order.limit -= outcome.offered;
        trouble |= outcome.trouble | refused;
    }
    Ok(if trouble { Status::No } else { Status::Done })
}

/// Offers a result to the handler, and acknowledges it for one that has taken it.
fn offer_to(root: &Root, command: &[std::ffi::OsString], offer: &Offer<'_>) -> Result<bool, Fail> {
    offer.report();
    if !handler::offer(command, &(offer.line)())? {
        complain("sweep", &format!("job {}: the handler refused its result, which stays pending", offer.job.id));
        return Ok(false);
    }
    if let Err(e) = root.acknowledge(offer.job) {
        complain("sweep", &format!("cannot acknowledge job {}: {}", offer.job.id, reason(&e)));
        return Ok(false);
    }
    Ok(true)
}

fn stay(args: &Args, paths: &[PathBuf], command: Option<&Vec<std::ffi::OsString>>) -> Result<Status, Fail> {
    // To be watched, a root has to exist.
    let roots = paths.iter().map(|path| Root::create(path)).collect::<Result<Vec<_>, Fail>>()?;
    let mut before = |root: &Root| command.map(|_| Turn::take(root)).transpose();
    let mut take = |root: &Root, offer: &Offer<'_>| match command {
        Some(command) => offer_to(root, command, offer),
        None => {
            offer.report();
            say((offer.line)() + "\n").map(|()| true)
        }
    };
    follow(&roots, &order(args, command.is_some()), &mut before, &mut take)
}

fn in_flight(args: &Args, roots: &[Root]) -> Result<Status, Fail> {
    let filter = Filter { name: args.name.clone(), words: vec![Word::Claimed, Word::Running], ..Filter::default() };
    let mut found = false;
    let mut trouble = false;
    for root in roots {
        let rows = list::rows(root, &filter, &mut |why| {
            complain("sweep", &why);
            trouble = true;
        })?;
        found |= !rows.is_empty();
        say(rows.iter().take(args.limit).map(|row| row.to_json() + "\n").collect::<String>())?;
    }
    // What cannot be told may be in flight: the guard that asks must not take it for a no.
    Ok(if found || trouble { Status::Done } else { Status::No })
}
