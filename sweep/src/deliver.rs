//! The forms of a sweep: lines on standard output, a handler, and what is in flight.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use jobdir::list::{self, Filter};
use jobdir::root::{Root, chosen};
use jobdir::word::Word;
use reap::exit::{Fail, Status, complain, reason, say, unsaid};

use crate::ack;
use crate::args::{Args, Mode};
use crate::follow::follow;
use crate::handler::{self, Turn};
use crate::pass::{Offer, Order, pass, report_overdue};

/// Does what was asked.
pub fn sweep(args: &Args) -> Result<Status, Fail> {
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
    let mut take = |_: &Root, offer: &Offer<'_>| {
        offer.report();
        writeln!(out, "{}", (offer.line)()).map_err(|e| unsaid(&e))?;
        Ok(true)
    };
    let status = each(args, roots, false, &mut take)?;
    out.flush().map_err(|e| unsaid(&e))?;
    Ok(status)
}

fn handle(args: &Args, roots: &[Root], command: &[OsString]) -> Result<Status, Fail> {
    each(args, roots, true, &mut |root, offer| offer_to(root, command, offer))
}

/// One pass over each root.
fn each(
    args: &Args,
    roots: &[Root],
    handled: bool,
    take: &mut dyn FnMut(&Root, &Offer<'_>) -> Result<bool, Fail>,
) -> Result<Status, Fail> {
    let mut order = order(args, handled);
    let mut well = true;
    for root in roots {
        let _turn = handled.then(|| Turn::take(root)).transpose()?;
        let mut all_taken = true;
        let mut take = |offer: &Offer<'_>| {
            all_taken &= take(root, offer)?;
            Ok(())
        };
        let mut alive = |job: &_, live: &_| {
            report_overdue(job, live);
            Ok(())
        };
        let outcome = pass(root, &order, &mut take, &mut alive)?;
        order.limit -= outcome.offered;
        well &= all_taken && !outcome.trouble;
    }
    Ok(if well { Status::Done } else { Status::No })
}

/// Offers a result to the handler, and acknowledges it for one that has taken it.
fn offer_to(root: &Root, command: &[OsString], offer: &Offer<'_>) -> Result<bool, Fail> {
    offer.report();
    let id = &offer.job.id;
    if !handler::offer(command, &(offer.line)())? {
        complain("sweep", &format!("cannot deliver job {id}: the handler refused its result, which stays pending"));
        return Ok(false);
    }
    if let Err(e) = root.acknowledge(offer.job) {
        complain("sweep", &format!("cannot acknowledge job {id}: {}", reason(&e)));
        return Ok(false);
    }
    Ok(true)
}

fn stay(args: &Args, paths: &[PathBuf], command: Option<&Vec<OsString>>) -> Result<Status, Fail> {
    // To be watched, a root has to exist.
    let roots = paths.iter().map(|path| Root::create(path)).collect::<Result<Vec<_>, Fail>>()?;
    let mut before = |root: &Root| command.map(|_| Turn::take(root)).transpose();
    let mut take = |root: &Root, offer: &Offer<'_>| match command {
        Some(command) => match offer_to(root, command, offer) {
            // One that stays has time.
            Err(fail) if fail.status == Status::NotYet as u8 => {
                complain("sweep", &fail.text);
                Ok(false)
            }
            taken => taken,
        },
        None => {
            offer.report();
            say(format!("{}\n", (offer.line)())).map(|()| true)
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
