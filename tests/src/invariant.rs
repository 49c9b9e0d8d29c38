//! What must be true after any fault: each promise is one small function that tells how it is broken.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use serde_json::Value;

use crate::scenario::{Stage, claim, record};
use crate::trace::{Fault, Step, Traced, Whom};
use crate::{Ran, comes_within};

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// How.
    pub what: String,
}

fn broken(invariant: &'static str, what: impl Into<String>) -> Violation {
    Violation { invariant, what: what.into() }
}

/// What was seen so far: promises are about what one saw before, too.
#[derive(Default)]
pub struct Ledger {
    /// Ids that were printed.
    pub printed: Vec<String>,
    /// Every line that was emitted, by the job that it names.
    pub emitted: BTreeMap<String, Vec<Value>>,
    /// Records as they were first seen, by the claim and the job.
    records: HashMap<(String, String), Vec<u8>>,
    /// What was found while nobody but this looked.
    found: Vec<Violation>,
}

/// How long something that was killed may take to be gone.
const GOING: Duration = Duration::from_millis(500);

/// Whether a word of a status tells of an end.
pub fn is_terminal(word: &str) -> bool {
    ["done", "failed", "timeout", "unknown"].contains(&word)
}

impl Ledger {
    /// Takes in lines that were emitted.
    pub fn emit(&mut self, lines: Vec<Value>) {
        for line in lines {
            self.emitted.entry(line["job"].as_str().unwrap_or_default().to_owned()).or_default().push(line);
        }
    }

    /// I1, looked at whenever a name has changed: at most one record, whole, valid, never changed once it was seen.
    pub fn look(&mut self, stage: &Stage) {
        for (id, dir) in stage.jobs() {
            let key = (claim(stage, &id), id.clone());
            match (fs::read(dir.join("result.json")), self.records.get(&key)) {
                (Ok(now), Some(first)) if now == *first => {}
                (Ok(_), Some(_)) => self.found.push(broken("I1 one record", format!("the record of {id} has changed"))),
                (Ok(now), None) => {
                    self.found.extend(invalid(&id, &now).map(|why| broken("I1 one record", format!("{id}: {why}"))));
                    self.records.insert(key, now);
                }
                // A prune takes its files one by one, under a hidden name; a job that is still there keeps its record.
                (Err(_), Some(_)) if dir.exists() => {
                    self.found.push(broken("I1 one record", format!("the record of {id} is gone")));
                }
                (Err(_), _) => {}
            }
        }
    }

    /// A power cut takes back every record that nobody was told of: by its line, or by a status that told of an end.
    pub fn forget_but(&mut self, ended: &[String]) {
        let Ledger { records, emitted, .. } = self;
        records.retain(|(claim, id), _| {
            let said = emitted.get(id).into_iter().flatten().any(|line| line["claim"] == claim.as_str());
            said || ended.contains(id)
        });
    }

    /// What was found by looking, once.
    pub fn found(&mut self) -> Vec<Violation> {
        let mut found = std::mem::take(&mut self.found);
        found.dedup();
        found
    }
}

/// Why a file is no record of the job; `None` where it is one.
fn invalid(id: &str, file: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(file) else { return Some("its record is no text".into()) };
    let Some(line) = text.strip_suffix('\n').filter(|line| !line.contains('\n')) else {
        return Some(format!("its record is not one whole line: '{text}'"));
    };
    let Ok(record) = serde_json::from_str::<Value>(line) else { return Some("its record is no JSON".into()) };
    let word = record["status"].as_str().unwrap_or_default();
    let names = record["job"] == id && record["claim"].is_string() && record["reason"].is_string();
    (!names || !is_terminal(word)).then(|| format!("its record names no end of it: {line}"))
}

/// I2: a status that is terminal has a readable record that agrees.
pub fn view_agrees(stage: &Stage) -> Vec<Violation> {
    let disagrees = |id: &String| {
        let word = stage.word(id);
        is_terminal(&word) && record(stage, id).is_none_or(|record| record["status"] != word.as_str())
    };
    let ids = stage.jobs().into_iter().map(|(id, _)| id).filter(disagrees);
    let what = |id: String| format!("{id} is {}, and its record says otherwise", stage.word(&id));
    ids.map(what).map(|what| broken("I2 view agrees", what)).collect()
}

/// I2 as well: a status is one word.
pub fn view_is_whole(stage: &Stage) -> Vec<Violation> {
    let torn = |(id, _): &(String, _)| !["claimed\n", "running\n"].contains(&stage.text(id, "status").as_str());
    let torn = stage.jobs().into_iter().filter(torn).filter(|(id, _)| !is_terminal(&stage.word(id)));
    torn.map(|(id, _)| broken("I2 view agrees", format!("the status of {id} is '{}'", stage.text(&id, "status"))))
        .collect()
}

/// I3: every id that was printed is delivered. To be asked once everything was swept.
pub fn printed_is_delivered(ledger: &Ledger) -> Vec<Violation> {
    let lost = ledger.printed.iter().filter(|id| !ledger.emitted.contains_key(*id));
    lost.map(|id| broken("I3 printed is delivered", format!("{id} was printed, and never emitted"))).collect()
}

/// I4: what is acknowledged was emitted, the same claim of it.
pub fn acknowledged_was_emitted(stage: &Stage, ledger: &Ledger) -> Vec<Violation> {
    let delivered =
        stage.jobs().into_iter().filter(|(_, dir)| dir.parent().is_some_and(|dir| dir.ends_with("delivered")));
    let unsaid = delivered.filter(|(id, dir)| {
        let text = fs::read(dir.join("meta.json")).unwrap_or_default();
        let meta: Value = serde_json::from_slice(&text).unwrap_or_default();
        !ledger.emitted.get(id).into_iter().flatten().any(|line| line["claim"] == meta["claim"])
    });
    unsaid.map(|(id, _)| broken("I4 acknowledged was emitted", format!("{id} was delivered unsaid"))).collect()
}

/// I5: all emissions of one claim of a job agree, but for what is told of the delivery itself.
pub fn emissions_agree(ledger: &Ledger) -> Vec<Violation> {
    let essence = |line: &Value| {
        let mut line = line.clone();
        ["attempt", "log_tail"].iter().for_each(|key| drop(line.as_object_mut().map(|line| line.remove(*key))));
        line
    };
    let torn = ledger.emitted.iter().filter(|(_, lines)| {
        let first = |line: &Value| lines.iter().find(|first| first["claim"] == line["claim"]).map(essence);
        lines.iter().any(|line| first(line) != Some(essence(line)))
    });
    torn.map(|(id, lines)| broken("I5 emissions agree", format!("{id}: {lines:?}"))).collect()
}

/// I6: no process carries the claim token of a job whose end is recorded; a wedged owner's tree excepted.
pub fn nobody_is_left(stage: &Stage) -> Vec<Violation> {
    let left = |(id, _): &(String, _)| {
        let record = record(stage, id)?;
        let token = record["claim"].as_str()?.to_owned();
        // Whoever may not be signalled is named: that is all that can be done.
        let named = |pid: &i32| record["warnings"].to_string().contains(&format!("process {pid} could not be ended"));
        let gone = || stage.members(&token).iter().all(named);
        let survives = record["reason"] != "wedged" && !comes_within(GOING, gone);
        survives.then(|| broken("I6 nobody is left", format!("{id} has ended, and {:?} live", stage.members(&token))))
    };
    stage.jobs().iter().filter_map(left).collect()
}

/// I7: whoever died, a sweep settles. `unsettled` are those whose owner had died, or whose start window was over, before
/// that sweep began.
pub fn is_settled(stage: &Stage, unsettled: &[String], ran: &Ran) -> Vec<Violation> {
    let mut found: Vec<Violation> = unsettled
        .iter()
        .filter(|id| !is_terminal(&stage.word(id)) || record(stage, id).is_none())
        .map(|id| {
            broken("I7 the next sweep settles", format!("{id} is {} after it: {}", stage.word(id), ran.err.trim_end()))
        })
        .collect();
    if ran.status != 0 || !ran.err.is_empty() {
        let what = format!("it ended with {}: {}", ran.status, ran.err.trim_end());
        found.push(broken("I7 the next sweep settles", what));
    }
    found
}

/// I8: nothing is called dead that is alive.
pub fn nobody_alive_is_dead(stage: &Stage) -> Vec<Violation> {
    let alive = |(id, _): &(String, _)| {
        let record = record(stage, id)?;
        let called = record["status"] == "unknown" && record["reason"] != "wedged";
        let lives = called && !comes_within(GOING, || stage.watchdog(id).is_none());
        lives.then(|| {
            broken("I8 nobody alive is called dead", format!("{id} is {}, and its watchdog lives", record["reason"]))
        })
    };
    stage.jobs().iter().filter_map(alive).collect()
}

/// I9: nothing in the making or on its way out is left after a prune: in neither place, nor in jobs that have ended.
pub fn nothing_hidden(stage: &Stage) -> Vec<Violation> {
    let places = ["jobs", "delivered"].map(|place| stage.root().join(place));
    let hidden = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names =
            entries.map(|entry| entry.path().strip_prefix(stage.root()).unwrap_or(&entry.path()).display().to_string());
        names.filter(|name| [".claim-", ".prune-", ".tmp-"].iter().any(|kind| name.contains(kind))).collect()
    };
    let ended = stage.jobs().into_iter().filter(|(id, _)| is_terminal(&stage.word(id))).map(|(_, dir)| dir);
    let names: Vec<String> = places.into_iter().chain(ended).flat_map(|dir| hidden(&dir)).collect();
    names.iter().map(|name| broken("I9 nothing hidden", format!("{name} is left after prune"))).collect()
}

/// I10: a tool that could not do its work says so, with the words of the error, and with a status that is not 0. One that
/// was not hindered, or that found another way, has done its work. `spares` are those that leave alone what is locked.
pub fn says_so(ran: &Ran, traced: &Traced, done: bool, spares: bool, fault: Fault) -> Vec<Violation> {
    if traced.stuck {
        return vec![broken("I10 says so", "it did not come to an end")];
    }
    let err = ran.err.to_lowercase();
    let told = match fault {
        _ if done || traced.killed => true,
        // Who had ended before has nothing to tell of it.
        Fault::Power { .. } => true,
        // Who lost his delegate before it began has the same to tell as one who lost it right after.
        Fault::Kill(whom) => whom == Whom::Delegate || (ran.status != 0 && !ran.err.is_empty()),
        Fault::Fail { errno: Errno::EAGAIN, .. } if spares && ran.status == 0 => true,
        Fault::Fail { errno, .. } => ran.status != 0 && words(errno).iter().any(|words| err.contains(words)),
    };
    let what = || format!("it ended with {}: {}{}", ran.status, ran.out, ran.err);
    if told { Vec::new() } else { vec![broken("I10 says so", what())] }
}

/// How an error may be told, in lower case: in our own words, or in those of the C library.
fn words(errno: Errno) -> Vec<String> {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let also = match errno {
        // Somebody else has the lock.
        Errno::EAGAIN => &["owner", "claimed already"][..],
        // A directory of PATH that cannot be searched holds no command.
        Errno::EACCES | Errno::ESTALE => &["no such command"],
        _ => &[],
    };
    [errno.desc().to_lowercase(), text.to_lowercase()]
        .into_iter()
        .chain(also.iter().map(|text| (*text).to_owned()))
        .collect()
}

/// I10 as well: a claim that failed has left nothing that could be found, so that its id can be claimed again.
pub fn no_half_claim(stage: &Stage, before: &[String], ran: &Ran, traced: &Traced) -> Vec<Violation> {
    if ran.status == 0 || traced.killed {
        return Vec::new();
    }
    let made = stage.jobs().into_iter().filter(|(id, _)| !before.contains(id));
    made.map(|(id, _)| broken("I10 says so", format!("the claim failed, and {id} is there: {}", ran.err))).collect()
}

/// I11: what is told was on the disk before. A record: its file, its name, its directory, and only then the view. A claim:
/// its files, its directory, its name, jobs/, and only then the id.
pub fn order(steps: &[Step]) -> Vec<Violation> {
    let last = |upto: usize, is: &dyn Fn(&Step) -> bool| steps[..upto].iter().rposition(is);
    let synced_since = |from: usize, upto: usize, path: &Path| {
        steps[from..upto].iter().any(|step| matches!(step, Step::Synced(synced) if synced == path))
    };
    let unsynced = |upto: usize, path: &Path| {
        let wrote = last(upto, &|step| matches!(step, Step::Wrote(wrote) if wrote == path));
        !synced_since(wrote.unwrap_or(0), upto, path)
    };
    let mut found = Vec::new();
    let mut early = |what: String| found.push(broken("I11 order", what));
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Named(from, to, _) if to.ends_with("result.json") && unsynced(at, from) => {
                early("a record got its name before it was on the disk".into());
            }
            Step::Named(_, to, word) if to.ends_with("status") && is_terminal(word.trim_end()) => {
                let dir = to.parent().unwrap_or(to);
                let named =
                    last(at, &|step| matches!(step, Step::Named(_, name, _) if name == &dir.join("result.json")));
                if !synced_since(named.unwrap_or(0), at, dir) {
                    early(format!("the status said {} before the record's directory was on the disk", word.trim_end()));
                }
            }
            Step::Named(from, to, _) if is_claim(from) && !is_claim(to) => {
                let inside = |path: &Path| {
                    path.parent() == Some(from)
                        && path.file_name().is_some_and(|name| name != "pid" && name != "status")
                };
                let wrote = steps[..at].iter().filter_map(|step| match step {
                    Step::Wrote(path) if inside(path) => Some(path.as_path()),
                    _ => None,
                });
                for path in wrote.chain([from.as_path()]).filter(|path| unsynced(at, path)) {
                    early(format!("a claim got its name before {} was on the disk", path.display()));
                }
            }
            Step::Said => {
                let named =
                    last(at, &|step| matches!(step, Step::Named(from, to, _) if is_claim(from) && !is_claim(to)));
                if let Some(named) = named
                    && let Step::Named(_, to, _) = &steps[named]
                    && !synced_since(named, at, to.parent().unwrap_or(to))
                {
                    early("an id was told before its name was on the disk".into());
                }
            }
            _ => {}
        }
    }
    found
}

/// I13: a command is started once: never again for a job that was begun, or that has ended. Commands that can be counted
/// leave a line in `ran`.
pub fn runs_once(stage: &Stage) -> Vec<Violation> {
    let ran = fs::read_to_string(stage.path("ran")).unwrap_or_default().lines().count();
    if ran > 1 { vec![broken("I13 runs once", format!("its command was started {ran} times"))] } else { Vec::new() }
}

/// I14: an end is recorded under the exclusive lock, and who only asks takes a shared one: exclusive probes would take each
/// other for the owner. The record of a wedged owner's end is the exception: he has the lock.
pub fn locks(steps: &[Step], wedged: bool) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Locked(path, true, false) if path.ends_with("pid") => {
                found.push(broken("I14 locks", "an exclusive lock was taken by one who only asks"));
            }
            Step::Named(_, to, _) if to.ends_with("result.json") && !wedged => {
                let lock = to.with_file_name("pid");
                if !steps[..at].iter().any(|step| matches!(step, Step::Locked(path, true, _) if *path == lock)) {
                    found.push(broken("I14 locks", "an end was recorded without the lock"));
                }
            }
            _ => {}
        }
    }
    found
}

fn is_claim(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".claim-"))
}

/// I12: a record tells what happened: nothing but what this command line may come to.
pub fn tells_what_happened(stage: &Stage, ends: &[&str]) -> Vec<Violation> {
    let ended = stage.jobs().into_iter().map(|(id, _)| (crate::scenario::end(stage, &id), id));
    let wrong = ended.filter(|(end, _)| !end.is_empty() && !ends.contains(&end.as_str()));
    wrong.map(|(end, id)| broken("I12 tells what happened", format!("{id} is said to be {end}"))).collect()
}
