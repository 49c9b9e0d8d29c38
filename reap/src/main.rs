//! reap: end whole process trees, deepest first, and name what survived.
//!
//! - The tree is read before the first signal: its links vanish with the parents.
//! - TERM, CONT for whoever is stopped, a grace, then list and KILL until nothing is left.
//! - Each target is held before it is signalled: a reused pid never is.
//! - Itself, its ancestors, pid 1 and bystanders in a shared group feel nothing.

#![no_main]

use lexopt::Parser;
use reap::args::{self, Args, Ask, Target};
use reap::exit::{Fail, Status, say};
use reap::hunt::{self, Fate, Member, Plan};
use reap::process::{self, Stat};
use reap::tree::Table;

reap::main!(start);

fn start(words: Parser) -> u8 {
    match run(words) {
        Ok(status) => status as u8,
        Err(fail) => fail.report("reap"),
    }
}

fn run(words: Parser) -> Result<Status, Fail> {
    match args::parse(words)? {
        Ask::Help => say(include_str!("help.txt")).map(|()| Status::Done),
        Ask::Version => say(concat!("reap ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| Status::Done),
        Ask::Run(args) => reap(&args),
    }
}

fn reap(args: &Args) -> Result<Status, Fail> {
    let unreadable = |e: std::io::Error| Fail::cannot("read", "the process table", &e);
    let above = process::ancestors().map_err(unreadable)?;
    if let Some(target) = args.targets.iter().find(|target| target.pid == 1 || above.contains(&target.pid)) {
        let whose = if target.pid == 1 { "it is the system's first process" } else { "reap itself is part of it" };
        return Err(Fail::new(Status::No, format!("cannot end process {}: {whose}", target.pid)));
    }
    // Pinned by start time now: a number that changes hands during the hunt is nobody's target.
    let targets: Vec<Target> = args.targets.iter().filter_map(living).collect();
    let mut seeds = |table: &Table| {
        let same = |target: &&Target| table.get(target.pid).is_some_and(|stat| Some(stat.proc.start) == target.start);
        targets.iter().filter(same).map(|target| target.pid).collect()
    };
    if args.dry_run {
        let table = Table::read().map_err(unreadable)?;
        let roots: Vec<i32> = seeds(&table);
        let below = table.below(&roots).into_iter().filter(|stat| !stat.is_dead());
        return say(below.map(|stat| line(stat, "alive", args.json)).collect::<String>()).map(|()| Status::Done);
    }
    let mut plan = Plan { signal: args.signal, root_first: args.root_first, ..Plan::after(args.grace) };
    let members = hunt::end(&mut seeds, &mut plan).map_err(unreadable)?;
    let survived = |member: &&Member| member.fate == Fate::Survived;
    let shown = members.iter().filter(|member| args.json || survived(member));
    // A reader that has gone does not make a survivor less of one.
    say(shown.map(|member| line(&member.stat, fate(member), args.json)).collect::<String>())
        .or_else(Fail::unless_quiet)?;
    Ok(if members.iter().any(|member| survived(&member)) { Status::No } else { Status::Done })
}

/// The target with the start time to know it by; `None` where it has ended already.
fn living(target: &Target) -> Option<Target> {
    let now = process::stat(target.pid).ok()?.proc.start;
    (target.start.unwrap_or(now) == now).then_some(Target { start: Some(now), ..*target })
}

fn fate(member: &Member) -> &'static str {
    match member.fate {
        Fate::Ended => "ended",
        Fate::Killed => "killed",
        Fate::Survived => "survived",
    }
}

fn line(stat: &Stat, fate: &str, json: bool) -> String {
    let Stat { proc, name, .. } = stat;
    if !json {
        return format!("{}\n", proc.pid);
    }
    let name = reap::exit::quoted(name);
    format!("{{\"pid\":{},\"start\":{},\"name\":{name},\"fate\":\"{fate}\"}}\n", proc.pid, proc.start)
}
