//! The walker's own tests. The walk itself, in which every system call of the tools goes wrong once, is a command:
//! `cargo run -p tests --bin faults`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tests::invariant::order;
use tests::point::visit;
use tests::scenario::{Stage, named, tools};
use tests::trace::{self, Fault, Plan, Step, Traced, Whom};

/// Runs a line under the engine; what it said on both streams, too.
fn traced(stage: &Stage, line: &str, fault: Option<(Fault, usize)>) -> (Traced, String) {
    let mut command = stage.command("sh");
    let said = File::create(stage.path("said")).unwrap();
    command.stdout(said.try_clone().unwrap()).stderr(said);
    let base = stage.path("").canonicalize().unwrap();
    let limit = Duration::from_secs(10);
    let plan =
        Plan { tools: tools(), base: &base, mark: &stage.mark, fault, limit, look: &mut || {}, cut: &mut |_| {} };
    let traced = trace::run(command, line, plan).unwrap();
    (traced, fs::read_to_string(stage.path("said")).unwrap())
}

fn once(errno: Errno) -> Fault {
    Fault::Fail { errno, lasting: false }
}

#[test]
fn an_error_is_given_to_the_call_that_was_counted_and_to_no_other() {
    if tests::is_portable("a rename refuses to replace, where there are no links") {
        return;
    }
    let stage = Stage::new();
    let (whole, said) = traced(&stage, "exec jobdir claim --id job", None);
    assert_eq!((whole.status, said.as_str(), whole.struck), (0, "job\n", None));
    let syncs = whole.counts["EDQUOT"];
    for n in 1..=syncs {
        let stage = Stage::new();
        let (broken, said) = traced(&stage, "exec jobdir claim --id job", Some((once(Errno::EDQUOT), n)));
        assert_ne!(broken.status, 0, "{:?}", broken.struck);
        assert!(said.contains("quota exceeded"), "{said}");
    }
    let stage = Stage::new();
    let (beyond, _) = traced(&stage, "exec jobdir claim --id job", Some((once(Errno::EDQUOT), syncs + 1)));
    assert_eq!((beyond.status, beyond.struck), (0, None));
}

#[test]
fn a_kill_comes_before_the_call_and_not_after_it() {
    let stage = Stage::new();
    // The file system is changed first by the root, so nothing is there when the first call does not happen.
    let (killed, _) = traced(&stage, "exec jobdir claim", Some((Fault::Kill(Whom::Caller), 1)));
    assert_eq!((killed.status, killed.killed), (137, true));
    assert!(!stage.root().exists());
}

#[test]
fn the_whole_tree_is_followed_the_detached_ones_too() {
    let stage = Stage::new();
    stage.must("jobdir claim --id job");
    let line = "detach --ready watchdog --job job -- sh -c 'sleep .05; exit 7'";
    let (whole, _) = traced(&stage, line, None);
    assert_eq!(stage.word("job"), "failed", "it was seen to its end, long after the caller's");
    let counts: HashMap<String, usize> = whole.counts;
    assert!(counts["kill-watchdog"] > counts["kill-delegate"] && counts["kill-delegate"] > 0, "{counts:?}");
    assert!(counts["kill-all"] > counts["kill-caller"], "{counts:?}");
}

#[test]
fn what_is_no_tool_is_let_go_alive_when_the_last_tool_has_ended() {
    let stage = Stage::new();
    let (whole, said) = traced(&stage, "sleep 60 & exec jobdir claim --id job", None);
    assert_eq!((whole.status, said.as_str(), whole.stuck), (0, "job\n", false));
    let left = trace::carriers(&stage.mark);
    assert_eq!(left.len(), 1, "{left:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", left[0])).unwrap();
    assert!(status.contains("\nTracerPid:\t0\n"), "{status}");
}

#[test]
fn a_line_that_never_ends_is_ended() {
    let stage = Stage::new();
    stage.must("jobdir claim --id job");
    let mut command = stage.command("sh");
    command.stdout(File::create(stage.path("said")).unwrap());
    let base = stage.path("");
    let limit = Duration::from_millis(300);
    let plan =
        Plan { tools: tools(), base: &base, mark: &stage.mark, fault: None, limit, look: &mut || {}, cut: &mut |_| {} };
    let traced = trace::run(command, "exec watchdog --job job -- sleep 60", plan).unwrap();
    assert!(traced.stuck);
    assert_eq!(trace::carriers(&stage.mark), [0; 0]);
}

#[test]
fn every_fault_has_a_name_that_is_read_back() {
    for fault in Fault::all() {
        assert_eq!(fault.to_string().parse(), Ok(fault));
    }
    assert!("EINTR+".parse::<Fault>().is_err(), "an EINTR that lasts is a loop for ever");
}

#[test]
fn a_scenario_that_is_left_alone_breaks_nothing() {
    for name in ["claim", "handler"] {
        let visit = visit(named(name).unwrap(), None, None);
        assert_eq!((visit.struck, visit.violations), (None, vec![]), "{name}");
    }
}

#[test]
fn an_order_that_a_power_cut_could_tear_is_seen() {
    let path = |name: &str| PathBuf::from(name);
    let synced = |name: &str| Step::Synced(path(name));
    let wrote = |name: &str| Step::Wrote(path(name));
    let named = |from: &str, to: &str, text: &str| Step::Named(path(from), path(to), text.into());
    let record = [wrote("j/.tmp-1"), synced("j/.tmp-1"), named("j/.tmp-1", "j/result.json", ""), synced("j")];
    let view = named("j/.tmp-2", "j/status", "done\n");
    let whole: Vec<Step> = record.iter().cloned().chain([view.clone()]).collect();
    assert_eq!(order(&whole), []);
    for (left_out, what) in [(1, "before it was on the disk"), (3, "before the record's directory")] {
        let mut torn = whole.clone();
        torn.remove(left_out);
        assert!(order(&torn)[0].what.contains(what), "{:?}", order(&torn));
    }
    let dir = Path::new("jobs/.claim-1");
    let claim = [
        wrote("jobs/.claim-1/meta.json"),
        synced("jobs/.claim-1/meta.json"),
        Step::Synced(dir.into()),
        named("jobs/.claim-1", "jobs/a", ""),
        synced("jobs"),
        Step::Said,
    ];
    assert_eq!(order(&claim), []);
    for left_out in [1, 2, 4] {
        let mut torn = claim.to_vec();
        torn.remove(left_out);
        assert_eq!(order(&torn).len(), 1, "{left_out}");
    }
}

#[test]
fn what_is_published_and_what_is_recorded_is_on_the_disk_before_anybody_is_told() {
    let stage = Stage::new();
    stage.must("jobdir claim --id job; echo [1] >document");
    let (put, said) = traced(&stage, "exec jobdir put job document", None);
    assert_eq!((put.status, said.as_str()), (0, ""));
    let at = |what: &str, is: &dyn Fn(&Step) -> bool| {
        put.steps.iter().position(is).unwrap_or_else(|| panic!("{what}: {:?}", put.steps))
    };
    let named = at("named", &|step| matches!(step, Step::Named(_, to, _) if to.ends_with("output.json")));
    let Step::Named(from, to, _) = &put.steps[named] else { unreachable!() };
    assert_eq!(from.parent(), to.parent(), "made where it will be");
    let wrote = at("wrote", &|step| matches!(step, Step::Wrote(path) if path == from));
    let synced = at("synced", &|step| matches!(step, Step::Synced(path) if path == from));
    let told = at("its directory", &|step| matches!(step, Step::Synced(path) if Some(path.as_path()) == to.parent()));
    assert!(wrote < synced && synced < named && named < told, "{:?}", put.steps);
    let (run, _) = traced(&stage, "exec watchdog --job job -- true", None);
    assert_eq!((run.status, stage.word("job").as_str()), (0, "done"));
    assert!(run.steps.iter().any(|step| matches!(step, Step::Named(_, to, _) if to.ends_with("result.json"))));
    assert_eq!(order(&run.steps), []);
}
