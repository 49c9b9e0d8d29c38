//! Round after round until the time is over, and their totals.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::round::Round;

/// How long a round goes on. Short enough that a violation is soon told, and that a root does not fill up.
const ROUND: Duration = Duration::from_secs(20);

/// Whether somebody has asked us to stop: what was started is brought to its end first.
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOPPED.store(true, Ordering::Relaxed);
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// MINUTES and SEED.
fn args() -> Option<(Duration, u64)> {
    let mut words = std::env::args().skip(1);
    let time = Duration::try_from_secs_f64(words.next()?.parse::<f64>().ok()? * 60.0).ok()?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = words.next().map_or_else(|| Some(now()), |word| word.parse().ok())?;
    words.next().is_none().then_some((time, seed))
}

pub fn main() -> ExitCode {
    let Some((time, seed)) = args() else {
        let _ = writeln!(std::io::stderr(), "Usage: soak MINUTES [SEED]");
        return ExitCode::from(2);
    };
    for one in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler stores to an atomic, and nothing else.
        let _ = unsafe { signal(one, SigHandler::Handler(stop)) };
    }
    let end = Instant::now() + time;
    let (mut kills, mut ends, mut violations) = (BTreeMap::new(), BTreeMap::new(), 0);
    for seed in seed.. {
        let mut round = Round::new(seed);
        let until = end.min(Instant::now() + ROUND);
        while Instant::now() < until && !STOPPED.load(Ordering::Relaxed) {
            round.play();
        }
        let outcome = round.finish();
        outcome.violations.iter().for_each(|what| say(&format!("violation: seed {seed}: {what}")));
        let killed: usize = outcome.kills.values().sum();
        let jobs: usize = outcome.ends.values().sum();
        say(&format!("seed {seed}: {killed} kills, {jobs} jobs, {} violations", outcome.violations.len()));
        violations += outcome.violations.len();
        outcome.kills.into_iter().for_each(|(role, n)| *kills.entry(role).or_insert(0) += n);
        outcome.ends.into_iter().for_each(|(end, n)| *ends.entry(end).or_insert(0) += n);
        if Instant::now() >= end || STOPPED.load(Ordering::Relaxed) {
            break;
        }
    }
    kills.iter().for_each(|(role, n)| say(&format!("killed   {role:<24}{n:>8}")));
    ends.iter().for_each(|(end, n)| say(&format!("ended    {end:<24}{n:>8}")));
    let (killed, jobs): (usize, usize) = (kills.values().sum(), ends.values().sum());
    say(&format!("from seed {seed} on: {killed} kills, {jobs} jobs, {violations} violations"));
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
