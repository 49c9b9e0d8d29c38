//! One point of the walk: a fresh folder, the command line with one fault in it, and everything that must be true then,
//! at once and after a sweep.
//!
//! After a power cut "at once" is after the next boot, and what is outside of the root stands for the world, which
//! remembers what it was told.

pub mod disk;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::invariant::{self, Ledger, Violation};
use crate::scenario::{Scenario, Stage, lines, tools};
use crate::trace::{self, Fault, Plan, Traced};
use crate::{Ran, until};

use self::disk::Disk;

/// How long a command line may take: none of them has anything to wait for that is longer than a few seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// How long a job may take to come to its end after the fault: windows are fractions of a second.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// What a visit has shown.
#[derive(Debug, Default)]
pub struct Visit {
    /// The call that was hit; `None`: the command ended untouched.
    pub struck: Option<String>,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// How often each fault could have struck.
    pub counts: std::collections::HashMap<String, usize>,
}

/// Runs the scenario with the fault at its n-th eligible call, or untouched, and checks everything. The disk is the one
/// that holds `$TMPDIR`, where its power can be cut.
pub fn visit(scenario: &Scenario, fault: Option<(Fault, usize)>, disk: Option<&Disk>) -> Visit {
    let stage = Stage::new();
    let scene = (scenario.set)(&stage);
    let before: Vec<String> = stage.jobs().into_iter().map(|(id, _)| id).collect();
    let mut ledger = Ledger::default();
    ledger.printed = scene.printed;
    ledger.emit(scene.emitted);
    ledger.look(&stage);
    let (traced, ran) = run(scenario, &stage, fault, disk, &mut ledger);
    let rebooted = traced.struck.is_some() && matches!(fault, Some((Fault::Power { .. }, _)));
    let mut visit = Visit { struck: traced.struck.clone(), counts: traced.counts.clone(), ..Visit::default() };
    let mut check = |found: Vec<Violation>| {
        for violation in found {
            // What stays broken is told once.
            if !visit.violations.contains(&violation) {
                visit.violations.push(violation);
            }
        }
    };

    let claims = scenario.line.contains("jobdir claim");
    if claims {
        // The word of a job that has the id already is no id.
        ledger.printed.extend(ran.out.strip_suffix('\n').filter(|word| *word != "claimed").map(str::to_owned));
        // What lasts is in the way of taking it back, too.
        if let Some((Fault::Fail { lasting: false, .. }, _)) = fault {
            check(invariant::no_half_claim(&stage, &before, &ran, &traced));
        }
    } else {
        ledger.emit(lines(&ran.out));
        ledger.emit(lines(&fs::read_to_string(stage.path("got")).unwrap_or_default()));
    }
    let done = (scenario.done)(&stage, &ran);
    let spares = ["sweep", "prune"].iter().any(|tool| scenario.line.contains(tool));
    check(match fault {
        Some((fault, _)) => invariant::says_so(&ran, &traced, done, spares, fault),
        None if !done => vec![Violation { invariant: "I0 untouched", what: format!("{ran:?}") }],
        None => Vec::new(),
    });
    check(invariant::order(&traced.steps));
    check(invariant::locks(&traced.steps, scenario.ends.contains(&"unknown/wedged")));
    check(now(&stage, &mut ledger));
    // A cut may cost a view, which is not synced; the next sweep has another one for it.
    if !rebooted {
        check(invariant::view_is_whole(&stage));
    }

    // A sweep, whatever there is; then everything is brought to its end, and swept again.
    check(sweep(&stage, &mut ledger, rebooted));
    check(now(&stage, &mut ledger));
    check(end(&stage, scenario.ends));
    let limit = Instant::now() + SETTLED_WITHIN;
    while stage.jobs().iter().any(|(id, _)| ["claimed", "running"].contains(&stage.word(id).as_str())) {
        check(sweep(&stage, &mut ledger, rebooted));
        if Instant::now() > limit {
            let what = format!("{:?} are not settled", stage.jobs());
            check(vec![Violation { invariant: "I7 the next sweep settles", what }]);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // An owner keeps its lock for a moment after its record, and one that has lost its claim has yet to find out.
    until("the watchdogs have ended", || stage.jobs().iter().all(|(id, _)| stage.watchdog(id).is_none()));
    check(sweep(&stage, &mut ledger, rebooted));
    check(now(&stage, &mut ledger));
    // Nobody lives through a power cut.
    let died: &[&str] = if rebooted { &["unknown/worker-died"] } else { &[] };
    check(invariant::tells_what_happened(&stage, &[scenario.ends, died].concat()));
    check(invariant::printed_is_delivered(&ledger));

    check(delivered(&stage, &ledger));
    check(now(&stage, &mut ledger));
    visit
}

/// The command line itself, and the boot after a power cut.
fn run(
    scenario: &Scenario,
    stage: &Stage,
    fault: Option<(Fault, usize)>,
    disk: Option<&Disk>,
    ledger: &mut Ledger,
) -> (Traced, Ran) {
    disk.iter().for_each(|disk| disk.sync());

    let mut command = stage.command("sh");
    command.stdout(File::create(stage.path("out")).unwrap()).stderr(File::create(stage.path("err")).unwrap());
    let base = stage.path("").canonicalize().unwrap();
    let mut look = || ledger.look(stage);
    let mut world = None;
    let mut cut = |log| {
        world = Some(World::of(stage));
        disk.expect("a disk whose power can be cut").cut(log);
    };
    let plan =
        Plan { tools: tools(), base: &base, mark: &stage.mark, fault, limit: LIMIT, look: &mut look, cut: &mut cut };
    let traced = trace::run(command, scenario.line, plan).expect("ptrace");
    if let (Some(world), Some(disk)) = (world, disk) {
        until("everybody is dead", || {
            let living = trace::carriers(&stage.mark);
            living.iter().for_each(|&pid| crate::kill(pid, libc::SIGKILL));
            living.is_empty()
        });
        disk.boot();
        world.files.iter().for_each(|(path, file)| fs::write(path, file).unwrap());
        ledger.forget_but(&world.ended);
    }
    let text = |name| String::from_utf8_lossy(&fs::read(stage.path(name)).unwrap_or_default()).into_owned();
    // A detached watchdog has a file of its own to complain to.
    let ran = Ran { status: traced.status, out: text("out"), err: text("err") + &text("dog") };
    (traced, ran)
}

/// What is known outside of the machine at the moment of a cut.
struct World {
    /// What was said and handed on: the files beside the root.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The jobs whose status told of an end.
    ended: Vec<String>,
}

impl World {
    fn of(stage: &Stage) -> World {
        let paths = fs::read_dir(stage.path("")).unwrap().map(|entry| entry.unwrap().path());
        let files = paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        let ids = stage.jobs().into_iter().map(|(id, _)| id);
        let ended = ids.filter(|id| invariant::is_terminal(&stage.word(id))).collect();
        World { files, ended }
    }
}

/// What must be true at any moment.
fn now(stage: &Stage, ledger: &mut Ledger) -> Vec<Violation> {
    ledger.look(stage);
    let mut found = ledger.found();
    found.extend(invariant::view_agrees(stage));
    found.extend(invariant::acknowledged_was_emitted(stage, ledger));
    found.extend(invariant::emissions_agree(ledger));
    found.extend(invariant::nobody_is_left(stage));
    found.extend(invariant::nobody_alive_is_dead(stage));
    found.extend(invariant::runs_once(stage));
    found
}

/// One sweep, which has to settle whatever had died before it began: after a boot, everything.
fn sweep(stage: &Stage, ledger: &mut Ledger, rebooted: bool) -> Vec<Violation> {
    let ids = stage.jobs().into_iter().map(|(id, _)| id);
    let dead: Vec<String> = ids.filter(|id| rebooted || is_over(stage, id)).collect();
    let ran = stage.sh("exec sweep");
    ledger.emit(lines(&ran.out));
    [invariant::is_settled(stage, &dead, &ran), invariant::view_is_whole(stage)].concat()
}

/// Whether a job has lost its owner, or was never started in time: a settling that may begin now must end it.
fn is_over(stage: &Stage, id: &str) -> bool {
    match stage.word(id).as_str() {
        "running" => stage.watchdog(id).is_none(),
        "claimed" => {
            let meta: serde_json::Value = serde_json::from_str(&stage.text(id, "meta.json")).unwrap_or_default();
            let window = meta["limits"]["start_s"].as_f64().unwrap_or(f64::INFINITY);
            let made = fs::metadata(stage.file(id, "meta.json")).and_then(|meta| meta.modified());
            let age = made.ok().and_then(|made| made.elapsed().ok()).unwrap_or_default();
            // File times run behind by a tick of the kernel.
            stage.watchdog(id).is_none() && age.as_secs_f64() > window + 0.02
        }
        _ => false,
    }
}

/// Ends the jobs that would wait, or be watched, for ever, and wakes those that were stopped.
fn end(stage: &Stage, ends: &[&str]) -> Vec<Violation> {
    let mut found = Vec::new();
    trace::carriers(&stage.mark).into_iter().for_each(|pid| crate::kill(pid, libc::SIGCONT));
    for (id, _) in stage.jobs().into_iter().filter(|_| ends.contains(&"failed/cancelled")) {
        let word = stage.word(&id);
        if word == "claimed" || (word == "running" && stage.watchdog(&id).is_some()) {
            let ran = stage.sh(&format!("exec jobdir cancel {id}"));
            if ran.status != 0 {
                found.push(Violation { invariant: "I7 the next sweep settles", what: format!("cancel: {ran:?}") });
            }
        }
    }
    found
}

/// Everything is acknowledged and pruned: nothing hidden is left, neither of the ended nor of the half-made.
fn delivered(stage: &Stage, ledger: &Ledger) -> Vec<Violation> {
    let wrong = |ran: &Ran| ran.status != 0 || !ran.err.is_empty();
    let ids: Vec<&str> =
        ledger.emitted.keys().map(String::as_str).filter(|id| stage.file(id, "status").exists()).collect();
    fs::write(stage.path("ids"), ids.join("\n")).unwrap();
    let ack = stage.sh("exec sweep --ack <ids");
    let mut found = Vec::new();
    if wrong(&ack) || stage.jobs().iter().any(|(_, dir)| dir.parent().is_some_and(|dir| dir.ends_with("jobs"))) {
        found.push(Violation {
            invariant: "I3 printed is delivered",
            what: format!("ack: {ack:?}, {:?}", stage.jobs()),
        });
    }
    // First only what is hidden goes, then the rest.
    for age in ["1d", "0"] {
        let prune = stage.sh(&format!("exec jobdir prune --older-than {age}"));
        if wrong(&prune) {
            found.push(Violation { invariant: "I9 nothing hidden", what: format!("prune: {prune:?}") });
        }
        found.extend(invariant::nothing_hidden(stage));
    }
    if !stage.jobs().is_empty() {
        found.push(Violation { invariant: "I9 nothing hidden", what: format!("prune left {:?}", stage.jobs()) });
    }
    found
}
