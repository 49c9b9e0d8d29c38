//! `examples/probe-harness`: it names the kill of a harness, and the launch that is enough.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use tests::{Folder, Kid, Ran, in_session, is_alive, json, kill, run, skip, text, until};

const SCOPE: usize = 8;

/// The probe, on a machine whose systemd-run is `scope`: a line of sh.
fn probe(folder: &Folder, words: &[&str], scope: &str) -> Command {
    let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/probe-harness");
    let line = r#"mkdir -p bin && printf '#!/bin/sh\n%s\n' "$1" >bin/systemd-run && chmod +x bin/systemd-run"#;
    assert_eq!(run(folder.command("sh").args(["-c", line, "sh", scope]).current_dir(folder.path(""))).err, "");
    let mut command = folder.command("sh");
    command.args(["-c", "PATH=$PWD/bin:$PATH; export PATH; \"$@\" dir; sleep 60", "call"]).arg(probe).args(words);
    command.current_dir(folder.path("")).stderr(Stdio::null());
    command
}

const NO_SCOPE: &str = "exit 1";
const SCOPE_HERE: &str = "shift 4; exec \"$@\"";

/// A call, in a session of its own as harnesses have it, that has launched what it launches.
fn call(folder: &Folder, words: &[&str], scope: &str) -> Kid {
    let mut command = probe(folder, words, scope);
    command.stdout(fs::File::create(folder.path("said")).unwrap());
    let call = Kid::start(in_session(&mut command));
    until("it has launched", || text(folder, "said").starts_with("started; in a later call: probe-harness report "));
    call
}

/// The report of a later call: its exit status, and what it says.
fn report(folder: &Folder) -> (i32, Value) {
    let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/probe-harness");
    let ran = run(folder.command(probe).args(["report", "--json"]).arg(folder.path("dir")));
    assert_eq!(ran.err, "");
    (ran.status, json(&ran.out))
}

/// Which launches live, by number.
fn lives(report: &Value) -> Vec<usize> {
    let launches = report["launches"].as_array().unwrap().iter();
    launches.enumerate().filter(|(_, one)| one["lives"] == true).map(|(at, _)| at + 1).collect()
}

/// The numbers of proc_pid_stat(5) that say whose a process is: parent, group, session.
fn stat(pid: i32) -> Option<[i32; 3]> {
    let line = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let fields: Vec<i32> = line.rsplit_once(')')?.1.split_whitespace().skip(1).take(3).flat_map(str::parse).collect();
    fields.try_into().ok()
}

fn pids() -> Vec<i32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(|&pid| is_alive(pid)).collect()
}

/// Kills whoever is found, until nobody is.
fn kill_all(mut find: impl FnMut() -> Vec<i32>) {
    until("nobody is left", || {
        let found = find();
        found.iter().for_each(|&pid| kill(pid, libc::SIGKILL));
        found.is_empty()
    });
}

fn by_group(_: &Folder, call: i32) {
    kill_all(|| pids().into_iter().filter(|&pid| stat(pid).is_some_and(|[_, group, _]| group == call)).collect());
}

fn by_session(_: &Folder, call: i32) {
    kill_all(|| pids().into_iter().filter(|&pid| stat(pid).is_some_and(|[.., session]| session == call)).collect());
}

fn by_environment(folder: &Folder, _: i32) {
    kill_all(|| folder.living());
}

/// Whoever has a chain of parents up to the call.
fn tree(call: i32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?[0]))).collect();
    let mut tree = vec![call];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        tree.extend(all.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    tree
}

/// One look, one kill, as the tree-killers do it.
fn by_tree(_: &Folder, call: i32) {
    tree(call).into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
}

fn by_tree_and_group(folder: &Folder, call: i32) {
    let tree = tree(call);
    by_group(folder, call);
    tree.into_iter().filter(|&pid| is_alive(pid)).for_each(|pid| kill(pid, libc::SIGKILL));
}

fn by_tree_and_session(folder: &Folder, call: i32) {
    let tree = tree(call);
    by_session(folder, call);
    tree.into_iter().filter(|&pid| is_alive(pid)).for_each(|pid| kill(pid, libc::SIGKILL));
}

fn nothing(_: &Folder, _: i32) {}

/// One harness: how it ends a call, who lives then, and what the probe has to say.
type Harness = (fn(&Folder, i32), &'static [usize], &'static [&'static str], &'static str);

const NOHUP: &str = "nohup COMMAND &";
const ORPHAN: &str = "(COMMAND &)";
const GROUP: &str = "bash -c 'set -m; nohup COMMAND & disown'";
const SETSID: &str = "setsid COMMAND &";
const ENVIRONMENT: &str = "env -i PATH=\"$PATH\" detach COMMAND";

#[test]
fn it_names_the_kill_at_a_time_limit_and_the_launch_that_is_enough() {
    let harnesses: [Harness; 7] = [
        (nothing, &[1, 2, 3, 4, 5, 6, 7], &[], "COMMAND &"),
        (by_group, &[4, 5, 6, 7], &["process group"], GROUP),
        (by_session, &[5, 6, 7], &["session"], SETSID),
        (by_tree, &[3, 4, 6, 7], &["tree"], ORPHAN),
        (by_tree_and_group, &[4, 6, 7], &["tree", "process group"], GROUP),
        (by_tree_and_session, &[6, 7], &["tree", "session"], "detach COMMAND"),
        (by_environment, &[7], &["environment variable"], ENVIRONMENT),
    ];
    let judge = |(end, lived, kills, enough): Harness| {
        let folder = Folder::new();
        let call = call(&folder, &["start", "--hold"], NO_SCOPE);
        end(&folder, call.pid());
        let (status, report) = report(&folder);
        assert_eq!((status, lives(&report).as_slice()), (0, lived), "{kills:?}: {report}");
        assert_eq!((&report["kills"], &report["enough"]), (&json!(kills), &json!(enough)));
        assert_eq!(report["launches"][SCOPE - 1]["lives"], Value::Null, "no systemd-run that works here");
    };
    thread::scope(|scope| harnesses.into_iter().for_each(|harness| drop(scope.spawn(move || judge(harness)))));
}

#[test]
fn at_the_end_of_a_call_there_is_no_tree_left_to_follow() {
    let judge = |end: fn(&Folder, i32), kills: &[&str]| {
        let folder = Folder::new();
        let call = call(&folder, &["start"], NO_SCOPE);
        until("the probe has returned", || tree(call.pid()).len() == 2 && !text(&folder, "said").is_empty());
        end(&folder, call.pid());
        assert_eq!(report(&folder).1["kills"], json!(kills));
    };
    thread::scope(|scope| {
        scope.spawn(|| judge(by_tree, &[]));
        scope.spawn(|| judge(by_group, &["process group"]));
    });
}

/// A directory of the unified control groups that we may make groups in.
fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?.to_owned();
    let dir = Path::new(&mount).join(format!("outlive-probe-{}", std::process::id()));
    fs::create_dir(&dir).ok()?;
    let writable = fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs")).is_ok();
    if !writable {
        let _ = fs::remove_dir(&dir);
    }
    writable.then_some(dir)
}

#[test]
fn it_names_the_kill_of_a_control_group() {
    let Some(outside) = cgroups() else { return skip("no control group may be made here") };
    let inside = outside.join("call");
    fs::create_dir(&inside).unwrap();
    let members = |dir: &Path| -> Vec<i32> {
        fs::read_to_string(dir.join("cgroup.procs")).unwrap().lines().map(|pid| pid.parse().unwrap()).collect()
    };
    let folder = Folder::new();
    // The call is born in a group of its own; the manager starts scopes outside.
    let scope = format!("shift 4; echo $$ >{}/cgroup.procs; exec \"$@\"", outside.display());
    let inner = probe(&folder, &["start", "--hold"], &scope);
    let mut command = folder.command("sh");
    command.args(["-c", &format!("echo $$ >{}/cgroup.procs; exec \"$@\"", inside.display()), "enter"]);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(folder.path("")).stderr(Stdio::null());
    command.stdout(fs::File::create(folder.path("said")).unwrap());
    let call = Kid::start(in_session(&mut command));
    until("it has launched", || !text(&folder, "said").is_empty());
    kill_all(|| members(&inside));
    drop(call);
    let (status, report) = report(&folder);
    assert_eq!((status, lives(&report)), (0, vec![SCOPE]));
    assert_eq!(report["kills"], json!(["control group"]));
    assert!(report["enough"].as_str().unwrap().starts_with("systemd-run --user --scope --collect "));
    kill_all(|| members(&outside));
    until("the groups are gone", || fs::remove_dir(&inside).is_ok() || !inside.exists());
    until("the groups are gone", || fs::remove_dir(&outside).is_ok());
}

/// Ends these tickers, by number, however that came about.
fn kill_tickers(folder: &Folder, numbers: &[usize]) {
    let dir = folder.path("dir").canonicalize().unwrap();
    kill_all(|| {
        let ours =
            pids().into_iter().filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir));
        let doomed = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            numbers.iter().any(|number| words == format!("sh\0ticker\0{number}\0").into_bytes())
        };
        ours.filter(doomed).collect()
    });
}

#[test]
fn it_says_so_where_nothing_is_enough_and_where_no_kill_explains_it() {
    let judge = |scope: &str, dead: &[usize], kills: &str, enough: Option<&str>| {
        let folder = Folder::new();
        let _call = call(&folder, &["start"], scope);
        kill_tickers(&folder, dead);
        let (status, report) = report(&folder);
        assert_eq!((&report["kills"], &report["enough"]), (&json!([kills]), &json!(enough)), "{report}");
        assert_eq!(status, i32::from(enough.is_none()));
        kill_tickers(&folder, &[SCOPE]);
    };
    thread::scope(|scope| {
        let all = &[1, 2, 3, 4, 5, 6, 7, 8];
        scope.spawn(|| judge(SCOPE_HERE, all, "container or machine", None));
        scope.spawn(|| judge(NO_SCOPE, all, "control group, container or machine", None));
        scope.spawn(|| judge(SCOPE_HERE, &[1, 2, 3, 4, 5, 6, 7], "control group", Some(SYSTEMD)));
        scope.spawn(|| judge(NO_SCOPE, &[1, 3], "hangup", Some(NOHUP)));
        scope.spawn(|| judge(NO_SCOPE, &[6], "something else", Some("COMMAND &")));
    });
}

const SYSTEMD: &str = "systemd-run --user --scope --collect --quiet env -i PATH=\"$PATH\" detach COMMAND";

#[test]
fn the_table_is_for_people_and_an_end_by_itself_is_no_death() {
    let folder = Folder::new();
    let _call = call(&folder, &["start"], NO_SCOPE);
    kill_tickers(&folder, &[1, 2, 3]);
    // As if its hour were over.
    fs::write(folder.path("dir/2"), "tick\nover\n").unwrap();
    let report = |words: &[&str]| {
        let probe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/probe-harness");
        run(folder.command(probe).args(words).current_dir(folder.path("")))
    };
    let table = format!(
        "dies       COMMAND &\nlives      nohup COMMAND &\ndies       (COMMAND &)\nlives      {GROUP}\n\
         lives      {SETSID}\nlives      detach COMMAND\nlives      {ENVIRONMENT}\nnot here   {SYSTEMD}\n\n\
         kills by   hangup\nenough     {NOHUP}\n"
    );
    assert_eq!(report(&["report", "dir"]), Ran { status: 0, out: table, err: String::new() });
    // A second probe does not mix with the first.
    assert_eq!(report(&["start", "dir"]).status, 1);
    fs::remove_dir_all(folder.path("dir")).unwrap();
    until("the tickers have ended", || {
        pids().into_iter().all(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).map_or(true, |cwd| !cwd.starts_with(folder.path("dir")))
        })
    });
    let ran = report(&["report", "dir"]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.starts_with("probe-harness: cannot find dir: nothing was started"), "{}", ran.err);
    for words in [&[][..], &["start", "--json"], &["report", "a", "b"], &["stop"]] {
        let usage = "usage: probe-harness start [--hold] [DIR] | report [--json] [DIR]\n";
        assert_eq!(report(words), Ran { status: 2, out: String::new(), err: usage.to_owned() });
    }
}
