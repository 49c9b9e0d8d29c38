//! Where /proc is hidden there is no process table either: what needs none goes on, and what does says so.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::process::Command;

use tests::{Folder, Kid, Ran, is_alive, is_root, kill, run, skip, until};

/// Runs a line of sh that sees an empty /proc.
fn hidden(folder: &Folder, line: &str) -> Ran {
    run(&mut hiding(folder, line))
}

fn hiding(folder: &Folder, line: &str) -> Command {
    let mut command = folder.command("unshare");
    command.args(["-m", "sh", "-c", "mount -t tmpfs none /proc && eval \"$0\"", line]).current_dir(folder.path(""));
    command
}

fn is_possible() -> bool {
    let possible = is_root() && hidden(&Folder::new(), "true").status == 0;
    if !possible {
        skip("only root hides a /proc");
    }
    possible
}

/// What is missing, in one line.
fn names_what_is_missing(ran: &Ran) {
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.contains("ps gives no process table: "), "{ran:?}");
    assert!(cfg!(portable) || ran.err.contains("/proc does not show us, and "), "{ran:?}");
}

#[test]
fn what_needs_no_process_table_works() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line = "detach -o ran -- echo up; until grep -q up ran; do sleep .01; done
        id=$(jobdir claim --id a); jobdir status a; jobdir finish a done; jobdir status a; jobdir list --all | wc -l
        sweep | jq -r .reason; sweep | sweep --ack";
    let ran = hidden(&folder, line);
    assert_eq!(ran, Ran { status: 0, out: "claimed\ndone\n2\nfinished\n".into(), err: String::new() });
}

#[test]
fn what_needs_one_says_what_is_missing_and_touches_nobody() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let bystander = Kid::quiet(folder.command("sleep").arg("60"));
    let ran = hidden(&folder, &format!("reap --grace 0 {}", bystander.pid()));
    assert_eq!(ran.status, 125, "{ran:?}");
    names_what_is_missing(&ran);
    assert!(is_alive(bystander.pid()));
    let id = hidden(&folder, "jobdir claim").out.trim_end().to_owned();
    let ran = hidden(&folder, &format!("watchdog --job {id} -- touch ran"));
    assert_eq!((ran.status, folder.path("ran").exists()), (125, false), "{ran:?}");
    names_what_is_missing(&ran);
    // Claimed where the boot had another name, it may be of an earlier one.
    let id = folder.claim(&[]);
    let ran = hidden(&folder, &format!("watchdog --job {id} -- touch ran"));
    assert_eq!((ran.status, folder.path("ran").exists()), (125, false), "{ran:?}");
    assert!(cfg!(portable) || ran.err.contains("cannot be told: /proc is hidden, or "), "{ran:?}");
    assert_eq!(folder.word(&id), "claimed", "somebody else may run it");
}

#[test]
fn a_limit_still_ends_the_command() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let ran = hidden(
        &folder,
        "watchdog --hard 200ms --grace 100ms -- sh -c 'trap : TERM; echo $$ >pid; while :; do :; done'",
    );
    assert_eq!((ran.status, folder.living()), (124, vec![]), "{ran:?}");
    // Without a child left, the kernel's word is enough.
    assert!(cfg!(portable) || ran.err.is_empty(), "{ran:?}");
    let ran = hidden(
        &folder,
        "watchdog --hard 200ms --grace 100ms -- sh -c 'setsid sleep 60 >/dev/null 2>&1 & echo $! >left; wait'",
    );
    assert_eq!(ran.status, 124, "{ran:?}");
    assert!(ran.err.starts_with("watchdog: warning: whatever the command left behind may go on: "), "{ran:?}");
    names_what_is_missing(&ran);
    let left = std::fs::read_to_string(folder.path("left")).unwrap();
    kill(left.trim().parse().unwrap(), libc::SIGKILL);
}

#[test]
fn strangers_of_another_pid_namespace_are_not_taken_for_us() {
    if cfg!(portable) || !is_possible() {
        return skip("a ps shows whatever /proc it finds");
    }
    let folder = Folder::new();
    let within = |line: &str| run(folder.command("unshare").args(["--pid", "--fork", "sh", "-c", line]));
    // By our number, 2, the machine's /proc shows a thread of the kernel.
    let ran = within("watchdog --hard 200ms --grace 100ms -- sh -c 'trap : TERM; while :; do :; done'; exit $?");
    assert_eq!((ran.status, folder.living()), (124, vec![]), "{ran:?}");
    let ran = within("reap --grace 0 1; exit $?");
    assert_eq!(ran.status, 125, "{ran:?}");
    assert!(ran.err.contains(": /proc is that of another pid namespace"), "{ran:?}");
}

#[test]
fn the_lock_tells_the_living_from_the_dead() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let mut dog = Kid::quiet(&mut folder.watchdog(&id, &[], "until [ -e go ]; do sleep .02; done"));
    until("it runs", || folder.word(&id) == "running");
    let ran = hidden(&folder, &format!("jobdir status {id}; jobdir wait --slice 200ms {id}"));
    assert_eq!((ran.status, ran.out.as_str()), (75, "running\n"), "{ran:?}");
    // The wait has no events there, and ends all the same.
    let mut wait = Kid::quiet(&mut hiding(&folder, &format!("jobdir wait {id}")));
    tests::touch(&folder, "go");
    assert_eq!((dog.end(), wait.end()), (0, 0));

    let id = folder.claim(&[]);
    let mut dog = Kid::quiet(&mut folder.watchdog(&id, &[], "sleep 60"));
    until("it runs", || folder.word(&id) == "running");
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    assert_eq!(hidden(&folder, &format!("jobdir status {id}")).out, "unknown\n");
    let record = folder.record(&id);
    assert_eq!(record["reason"], "worker-died");
    let warning = record["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("whatever it left behind may go on: "), "{record}");
}
