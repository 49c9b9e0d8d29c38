//! A budget of system calls: what a launch, a claim, a poll and a sweep ask of the kernel, counted with our own ptrace
//! engine, and a watchdog that asks nothing while nothing happens. Nothing is timed here; `tests/bench/run` does that.
//!
//! The counted calls are those that anybody outside of the process could notice, from `main` on (see [`tests::calls`]):
//! memory, the process's own state and the start-up of the C library are not ours, and differ between builds. So
//! the numbers are the same for a debug and a release build.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::{self, File};
use std::time::Duration;

use serde_json::json;
use tests::scenario::{Stage, tools};
use tests::trace::{self, Plan};
use tests::until;

/// What a command line may ask of the kernel after `before`, and what it asks for.
struct Budget {
    line: &'static str,
    before: fn(&Stage),
    most: usize,
    why: &'static str,
}

const BUDGETS: &[Budget] = &[
    Budget {
        line: "detach true",
        before: |_| {},
        most: 25,
        why: "two opens of /dev/null and their flags, a pipe; two clones, setsid, three dup2, two close_range, the pid; \
            two execves, since the first directory of this PATH has no true; reading the pipe, a wait, the closes",
    },
    Budget {
        line: "jobdir claim --id new",
        before: |stage| drop(stage.must("jobdir claim --id first")),
        most: 47,
        why: "nine to open and judge the root; a hidden directory with four files, each opened, written and closed; three \
            fsyncs (meta.json, its directory, jobs/: what a power cut must not take); a lock on delivered/ over a look and one rename; the \
            machine's and the boot's ids; the id said",
    },
    Budget {
        line: "jobdir status held",
        before: held,
        most: 41,
        why: "the root, the status and four more files to tell who owns the job and until when; the lock on pid; the \
            owner's stat; this machine's and this boot's ids, to know that the owner is of here",
    },
    Budget {
        line: "jobdir status ended-0",
        before: |stage| ended(stage, 1),
        most: 22,
        why: "the root, the status, and the record that must stand beside it",
    },
    Budget {
        line: "sweep",
        before: |stage| ended(stage, 100),
        most: 821,
        why: "eight a result: its directory, its status and its record, each opened and closed, the files read at once",
    },
];

/// A job that runs.
fn held(stage: &Stage) {
    stage.must("jobdir claim --id held && detach --ready watchdog --job held -- sleep 600");
}

/// Results that nobody has acknowledged.
fn ended(stage: &Stage, n: usize) {
    stage.must("jobdir claim --id other && rm -r \"$JOBDIR_ROOT/jobs/other\"");
    for i in 0..n {
        let id = format!("ended-{i}");
        fs::create_dir(stage.root().join("jobs").join(&id)).unwrap();
        let record = json!({"version": 1, "job": id, "claim": "c", "name": null, "status": "done", "reason": "exited"});
        fs::write(stage.file(&id, "result.json"), format!("{record}\n")).unwrap();
        fs::write(stage.file(&id, "status"), "done\n").unwrap();
    }
}

/// How many calls a line makes.
fn calls(stage: &Stage, line: &str) -> usize {
    let mut command = stage.command("sh");
    let said = stage.path("said");
    command.stdout(File::create(&said).unwrap()).stderr(File::options().append(true).open(&said).unwrap());
    let base = stage.path("").canonicalize().unwrap();
    let limit = Duration::from_secs(20);
    let plan =
        Plan { tools: tools(), base: &base, mark: &stage.mark, fault: None, limit, look: &mut || {}, cut: &mut |_| {} };
    let traced = trace::run(command, &format!("exec {line}"), plan).unwrap();
    assert_eq!((traced.status, traced.stuck), (0, false), "{line}: {}", fs::read_to_string(said).unwrap());
    // A kill of everybody could strike at every call there is.
    traced.counts["kill-all"]
}

#[test]
fn nothing_asks_more_of_the_kernel_than_its_budget() {
    if tests::is_portable("system calls are counted") {
        return;
    }
    for budget in BUDGETS {
        let stage = Stage::new();
        (budget.before)(&stage);
        let n = calls(&stage, budget.line);
        let Budget { line, most, why, .. } = budget;
        // Each directory above the root is looked at; below /tmp/FOLDER/root there are three.
        let most = *most + stage.path("").canonicalize().unwrap().ancestors().count().saturating_sub(3);
        assert!(n <= most, "{line}: {n} calls, and {most} were enough for {why}; strace -f shows which");
    }
}

#[test]
fn a_watchdog_asks_nothing_while_nothing_happens() {
    if tests::is_portable("system calls are counted") {
        return;
    }
    let stage = Stage::new();
    held(&stage);
    let dog = stage.watchdog("held").unwrap();
    until("it waits", || waits(dog));
    let before = turns(dog);
    // A second in which nothing may happen is what is measured.
    std::thread::sleep(Duration::from_secs(1));
    assert!(waits(dog));
    assert_eq!(turns(dog), before, "no call without a turn on a processor");
}

/// Whether a process is in ppoll(2).
fn waits(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    call.starts_with(&format!("{} ", libc::SYS_ppoll))
}

/// How often a process has given up a processor, or lost it.
fn turns(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}
