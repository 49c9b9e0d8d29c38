//! `examples/fleet`: forty jobs on two nodes of a real Slurm, one of which dies; and, where there is no Slurm, what the
//! script makes of its answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tests::{Folder, Kid, Ran, is_root, json, kill, run, said, skip, text, touch, until, until_within};

const QUIET: Ran = Ran { status: 0, out: String::new(), err: String::new() };

/// What a busy machine may need for what takes a second or two on an idle one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs its arguments as host `$0`: with a name, a boot id and a machine id of its own, by which the tools tell hosts
/// apart. It stays as their parent, since it may be the first process of a namespace, which has orphans to bury.
const HOST: &str = r#"set -e
    hostname "$0"
    mount --bind "$0.boot" /proc/sys/kernel/random/boot_id
    [ ! -e /etc/machine-id ] || mount --bind "$0.machine" /etc/machine-id
    "$@" & wait $!"#;

/// A pid namespace too is what dies in one moment with its first process, as a machine does.
const MORTAL: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// These words on a host; with `unshare`, inside of more namespaces.
fn host<'a>(name: &'a str, unshare: &[&'a str], words: &[&'a str]) -> Vec<&'a str> {
    [&["unshare", "--uts", "--mount"], unshare, &["sh", "-c", HOST, name], words].concat()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet").canonicalize().unwrap()
}

/// A command of the one who submits, in the folder; it finds the script, and Slurm where there is one.
fn here(folder: &Folder, words: &[&str]) -> Command {
    let mut command = folder.command(words[0]);
    let old = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let dirs = [folder.path("instead"), script().parent().unwrap().to_owned()].into_iter();
    command.env("PATH", std::env::join_paths(dirs.chain(std::env::split_paths(&old))).unwrap());
    for name in ["JOB_IDLE_SECS", "JOB_HARD_SECS", "JOB_GRACE_SECS", "JOB_START_SECS", "JOB_SUPERVISOR_SECS"] {
        command.env_remove(name);
    }
    command.args(&words[1..]).current_dir(folder.path("")).env("SLURM_CONF", folder.path("slurm.conf"));
    command
}

/// What must succeed in silence on standard error; what it prints.
fn done(command: &mut Command) -> String {
    let ran = run(command);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{command:?}");
    ran.out.trim_end().to_owned()
}

fn sh(folder: &Folder, line: &str) -> String {
    done(&mut here(folder, &["sh", "-c", line]))
}

/// Two nodes and their head, on loopback ports, without anything of the system's own Slurm.
struct Slurm {
    nodes: BTreeMap<&'static str, Kid>,
    _others: Vec<Kid>,
    folder: Folder, // the last to go
}

impl Slurm {
    /// `None` where that cannot be had: it has said why.
    fn start() -> Option<Slurm> {
        let folder = Folder::new();
        if !is_root() {
            skip("a slurmd that runs jobs needs root");
            return None;
        }
        let needed =
            ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "jq", "unshare", "setpriv"];
        if let Some(missing) =
            needed.iter().find(|name| run(folder.command("sh").args(["-c", "command -v $0", name])).status != 0)
        {
            skip(&format!("there is no {missing} here"));
            return None;
        }
        for name in ["head", "node1", "node2"] {
            let line = "cat /proc/sys/kernel/random/uuid >$0.boot; tr -d - </proc/sys/kernel/random/uuid >$0.machine";
            done(&mut here(&folder, &["sh", "-c", line, name]));
        }
        let probe = run(&mut on(&folder, "node1", &["cat", "/proc/sys/kernel/random/boot_id"]));
        if probe.status != 0 {
            skip(&format!("no host can be made here: {}", probe.err.trim_end()));
            return None;
        }
        assert_eq!(probe.out, text(&folder, "node1.boot"));

        configure(&folder);
        let munged = "exec munged --foreground --force --key-file=munge.key --socket=\"$PWD/munge.sock\" \
            --pid-file=\"$PWD/munged.pid\" --log-file=\"$PWD/munged.log\" --seed-file=\"$PWD/munged.seed\"";
        let mut others = vec![daemon(&folder, "munged", &["sh", "-c", munged])];
        until("munge answers", || folder.path("munge.sock").exists());
        others.push(daemon(&folder, "slurmctld", &host("head", &MORTAL, &["slurmctld", "-D"])));
        let mut slurm = Slurm { nodes: BTreeMap::new(), _others: others, folder };
        for name in ["node1", "node2"] {
            let words = host(name, &MORTAL, &["slurmd", "-D", "-N", name]);
            slurm.nodes.insert(name, daemon(&slurm.folder, name, &words));
        }
        until_within(PATIENCE, "both nodes are idle", || {
            run(&mut here(&slurm.folder, &["sinfo", "-h", "-o", "%T %D"])).out == "idle 2\n"
        });
        Some(slurm)
    }

    /// The power of a node goes: its daemon, the steps, the watchdogs and their commands are gone in the same moment.
    fn dies(&mut self, name: &str) {
        let mut node = self.nodes.remove(name).unwrap();
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", node.pid())).unwrap();
        kill(children.trim().parse().expect("the first process of the node"), libc::SIGKILL);
        node.end(); // unshare follows, once the kernel has buried the namespace
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["slurmctld", "node1", "node2"] {
                let log = text(&self.folder, &format!("{name}.out"));
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{name}: {}", lines[lines.len().saturating_sub(12)..].join("\n    "));
            }
        }
    }
}

/// A command on one of the hosts, as somebody who logs in there would run it.
fn on(folder: &Folder, name: &str, words: &[&str]) -> Command {
    here(folder, &host(name, &[], words))
}

/// Starts one that is killed with this test, whatever happens to it.
fn daemon(folder: &Folder, name: &str, words: &[&str]) -> Kid {
    let out = fs::File::create(folder.path(format!("{name}.out"))).unwrap();
    let mut command = here(folder, &[&["setpriv", "--pdeathsig", "KILL"], words].concat());
    Kid::start(command.stdout(out.try_clone().unwrap()).stderr(out))
}

fn configure(folder: &Folder) {
    let dir = folder.root().parent().unwrap().display().to_string();
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |index: usize| listeners[index].local_addr().unwrap().port();
    done(&mut here(folder, &["sh", "-c", "umask 077; head -c 1024 /dev/urandom >munge.key; mkdir state spool"]));
    let lines = [
        "ClusterName=fleet".to_owned(),
        "SlurmctldHost=head(127.0.0.1)".to_owned(),
        format!("SlurmctldPort={}", port(0)),
        "SlurmUser=root".to_owned(),
        format!("AuthInfo=socket={dir}/munge.sock"),
        format!("StateSaveLocation={dir}/state"),
        format!("SlurmdSpoolDir={dir}/spool/%n"),
        format!("SlurmctldPidFile={dir}/slurmctld.pid"),
        format!("SlurmdPidFile={dir}/%n.pid"),
        // Signals reach every process of a task, as with control groups, which a machine in CI may not have.
        "ProctrackType=proctrack/linuxproc".to_owned(),
        "TaskPlugin=task/none".to_owned(),
        "SelectType=select/cons_tres".to_owned(),
        "SelectTypeParameters=CR_CPU".to_owned(),
        "SlurmdParameters=config_overrides".to_owned(),
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1".to_owned(),
        // A node that says nothing for so long is down, and its tasks are lost.
        "SlurmdTimeout=10".to_owned(),
        "TCPTimeout=1".to_owned(),
        format!("NodeName=node1 NodeAddr=127.0.0.1 Port={} CPUs=32", port(1)),
        format!("NodeName=node2 NodeAddr=127.0.0.1 Port={} CPUs=32", port(2)),
        "PartitionName=all Nodes=node1,node2 Default=YES MaxTime=INFINITE".to_owned(),
    ];
    fs::write(folder.path("slurm.conf"), lines.join("\n") + "\n").unwrap();
}

/// Submits a line of sh under this id, which must succeed.
fn submit(folder: &Folder, id: &str, options: &[&str], line: &str) {
    let words = [&["fleet", "submit", "--id", id], options, &["--", "sh", "-c", line]].concat();
    assert_eq!(done(&mut here(folder, &words)), id);
}

/// Lets a job have been claimed long ago.
fn long_ago(folder: &Folder, id: &str) {
    let line = r#"sed -i 's/"claimed_at":"..../"claimed_at":"2001/' "$(jobdir path "$0")/meta.json""#;
    done(&mut here(folder, &["sh", "-c", line, id]));
}

/// What the handler was told, by id.
fn told(folder: &Folder) -> BTreeMap<String, Vec<Value>> {
    let mut told: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text(folder, "told").lines().map(json) {
        told.entry(line["job"].as_str().unwrap().to_owned()).or_default().push(line);
    }
    told
}

/// Sweeps with a handler on one of the hosts, and here, at the same time: ticks overlap.
fn ticks(folder: &Folder, other: &str) {
    let sweep = ["fleet", "sweep", "--", "sh", "-c", "cat >>told"];
    let there = Kid::heard(&mut on(folder, other, &sweep));
    assert_eq!(run(&mut here(folder, &sweep)), QUIET);
    assert_eq!(there.ran(), QUIET);
}

#[test]
fn forty_jobs_on_two_nodes_of_which_one_dies_are_each_told_of_once() {
    let Some(mut slurm) = Slurm::start() else { return };
    let folder = &slurm.folder;
    let ids = |kind: &str, count: usize| (1..=count).map(|n| format!("{kind}-{n}")).collect::<Vec<_>>();
    let (well, bad, silent, long) = (ids("well", 14), ids("bad", 3), ids("silent", 2), ids("long", 2));
    let (stopped, tidy, early, swept) = (ids("stopped", 3), ids("tidy", 3), ids("early", 3), ids("swept", 1));
    let (lost, left) = (ids("lost", 5), ids("left", 4));

    // Those that are there when the node dies, on both nodes, and those that are cancelled at work.
    const UP: &str = ": >up-$JOB_ID; until [ -e go ]; do sleep .1; done";
    for (kind, node) in [(&lost, "node2"), (&left, "node1"), (&stopped, "node1")] {
        kind.iter().for_each(|id| submit(folder, id, &[&format!("--sbatch=--nodelist={node}")], UP));
    }
    // Whoever needs his grace gets it: that of the watchdog, while Slurm waits.
    let slow = format!("trap 'sleep 1; : >tidied-$JOB_ID; exit' TERM; {UP}");
    tidy.iter().for_each(|id| submit(folder, id, &[], &slow));
    for id in early.iter().chain(&swept) {
        submit(folder, id, &["--sbatch=--begin=now+1hour"], "echo run >>runs");
    }
    for id in &well {
        fs::write(folder.path("asked"), format!("{{\"asked\":\"{id}\"}}")).unwrap();
        submit(folder, id, &["--input", "asked", "--meta", "a=b"], "jobdir put");
    }
    bad.iter().for_each(|id| submit(folder, id, &[], "exit 7"));
    silent.iter().for_each(|id| submit(folder, id, &["--idle", "1s"], "sleep 600"));
    long.iter().for_each(|id| submit(folder, id, &["--hard", "1s"], "while :; do echo; sleep .1; done"));
    assert_eq!(
        [&well, &bad, &silent, &long, &stopped, &tidy, &early, &swept, &lost, &left]
            .map(Vec::len)
            .iter()
            .sum::<usize>(),
        40
    );

    // The id is the idempotency key.
    let again = run(&mut here(folder, &["fleet", "submit", "--id", &lost[0], "--", "true"]));
    assert_eq!(again.status, 3);
    assert!(["claimed\n", "running\n"].contains(&again.out.as_str()), "{again:?}");

    // Cancelled: at work, in the queue, and in the queue together with the clean-up.
    let is_up = |id: &String| folder.path(format!("up-{id}")).exists();
    until_within(PATIENCE, "those are at work", || stopped.iter().chain(&tidy).chain(&lost).chain(&left).all(is_up));
    for id in stopped.iter().chain(&tidy).chain(&early) {
        assert_eq!(sh(folder, &format!("scancel --name {id}")), "");
    }
    assert_eq!(sh(folder, &format!("scancel --name {0}.end && scancel --name {0}", swept[0])), "");
    for id in stopped.iter().chain(&tidy).chain(&early).chain(&well).chain(&bad).chain(&silent).chain(&long) {
        until_within(PATIENCE, &format!("{id} has ended"), || {
            !["claimed", "running"].contains(&folder.word(id).as_str())
        });
    }
    ticks(folder, "node1");
    assert_eq!(folder.word(&swept[0]), "claimed", "so young a job may be on its way into the queue");

    // A node dies. No other host judges its jobs, though no lock is held any more.
    slurm.dies("node2");
    let folder = &slurm.folder;
    let look = ["jobdir", "status", &lost[0], &lost[1]];
    let running = format!("{}\trunning\n{}\trunning", lost[0], lost[1]);
    assert_eq!(done(&mut here(folder, &look)), running);
    assert_eq!(done(&mut on(folder, "node1", &look)), running);
    ticks(folder, "node1");
    assert!(lost.iter().all(|id| folder.word(id) == "running"));
    // That is for want of knowledge, not of a proof: the host itself, had it lived, sees at once that the owner is dead.
    assert_eq!(done(&mut on(folder, "node2", &["jobdir", "status", &lost[0]])), "unknown");
    assert_eq!(folder.record(&lost[0])["reason"], "worker-died");
    // Slurm knows too, after a while, and the clean-up of each job says so, from the other node.
    for id in &lost {
        until_within(PATIENCE, &format!("the end of {id} is recorded"), || folder.word(id) == "unknown");
    }

    // The one whose clean-up is gone too was claimed long ago, by now; any host's sweep asks Slurm for it.
    long_ago(folder, &swept[0]);
    touch(folder, "go");
    for id in &left {
        until_within(PATIENCE, &format!("{id} has ended"), || folder.word(id) == "done");
    }
    // Two sweeps that both ask might both find it: one of them, then, and in the other form.
    let line = "set -o pipefail; fleet sweep | tee -a told | sweep --ack";
    assert_eq!(run(&mut on(folder, "node1", &["bash", "-c", line])), QUIET);
    assert_eq!(sh(folder, "fleet sweep; jobdir list --json"), "", "nothing is left to tell");

    let told = told(folder);
    assert_eq!(told.len(), 40);
    let is = |ids: &[String], word: &str, what: &dyn Fn(&Value) -> bool| {
        for id in ids {
            let lines = &told[id];
            assert_eq!(lines.len(), 1, "{id} is told once: {lines:?}");
            assert!(lines[0]["status"] == word && what(&lines[0]), "{}", lines[0]);
        }
    };
    is(&well, "done", &|line| line["output"]["asked"] == line["job"] && line["meta"]["a"] == "b");
    is(&bad, "failed", &|line| line["reason"] == "exited" && line["exit_code"] == 7);
    is(&silent, "timeout", &|line| line["reason"] == "idle");
    is(&long, "timeout", &|line| line["reason"] == "hard");
    // Slurm's signal reaches the command as well as its watchdog, in any order.
    is(&stopped, "failed", &|line| line["reason"] == "cancelled");
    is(&tidy, "failed", &|line| line["reason"] == "cancelled" && line["warnings"] == json("[]"));
    assert!(tidy.iter().all(|id| folder.path(format!("tidied-{id}")).exists()));
    is(&early, "failed", &|line| line["reason"] == "cancelled" && line["started_at"].is_null());
    is(&swept, "failed", &|line| line["reason"] == "cancelled" && line["started_at"].is_null());
    is(&lost, "unknown", &|line| line["host"] == "node2" && line["started_at"].is_string());
    is(&lost[1..], "unknown", &|line| {
        line["error"] == "its watchdog recorded no end; Slurm says NODE_FAIL" && line["reason"] == "finished"
    });
    is(&left, "done", &|line| line["host"] == "node1");
    assert_eq!(text(folder, "runs"), "", "what was cancelled in the queue never ran");
}

/// Puts a program of this name before the real one; written by another process, or it may be busy (ETXTBSY).
fn instead(folder: &Folder, tool: &str, lines: &str) {
    fs::create_dir_all(folder.path("instead")).unwrap();
    let mut command = folder.command("sh");
    command.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod +x \"$2\"", "sh", lines]);
    assert_eq!(run(command.arg(folder.path("instead").join(tool))), QUIET);
}

/// A Slurm that takes every task, and says of each job what the file `queue` holds: its state, if it ended.
fn pretended() -> Folder {
    let folder = Folder::new();
    instead(&folder, "sbatch", "printf '%s\\n' \"$*\" >>tasks; echo 7");
    instead(&folder, "squeue", "case $* in *%T*) cat state ;; *) cat queue ;; esac");
    folder
}

#[test]
fn a_wrong_call_is_2_and_makes_nothing() {
    let folder = pretended();
    for words in [&["fleet"][..], &["fleet", "submit"], &["fleet", "submit", "--id", "a", "--"], &["fleet", "true"]] {
        let ran = run(&mut here(&folder, words));
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{words:?}");
        assert!(ran.err.starts_with("usage: fleet submit "), "{}", ran.err);
    }
    assert_eq!(run(&mut here(&folder, &["fleet", "submit", "--hard", "soon", "--", "true"])).status, 2);
    assert!(!folder.root().exists() && !folder.path("tasks").exists());
}

#[test]
fn the_limit_of_slurm_comes_after_that_of_the_job() {
    let folder = pretended();
    submit(&folder, "limited", &["--hard", "90s", "--sbatch=--gpus=1", "--sbatch=--mem=1G"], "true");
    submit(&folder, "unlimited", &[], "true");
    let dir = folder.root().join("jobs").canonicalize().unwrap();
    let tasks = text(&folder, "tasks");
    let tasks: Vec<&str> = tasks.lines().collect();
    // 90 s, the grace of 5 s and 5 s: two minutes, and one to begin.
    let line = format!(
        "--parsable --output {}/limited/slurm.out --time 3 --gpus=1 --mem=1G --job-name limited",
        dir.display()
    );
    assert!(tasks[0].starts_with(&line), "{}", tasks[0]);
    assert!(tasks[0].ends_with(&format!(" run {}/limited sh -c true", dir.display())), "{}", tasks[0]);
    // The clean-up needs none of that, and leaves what was said before it.
    assert!(tasks[1].contains(" --dependency afternotok:7 ") && !tasks[1].contains("gpus"), "{}", tasks[1]);
    assert!(tasks[1].contains("/limited/slurm.out --open-mode append "), "{}", tasks[1]);
    assert!(tasks[2].contains(" --job-name unlimited ") && !tasks[2].contains("--time"), "{}", tasks[2]);
    // A queue has no window to start within, but a caller may have one.
    submit(&folder, "soon", &["--start-within", "1d"], "true");
    let window =
        |id: &str| json(&fs::read_to_string(folder.file(id, "meta.json")).unwrap())["limits"]["start_s"].clone();
    assert_eq!((window("limited"), window("soon")), (Value::Null, 86_400.into()));
}

#[test]
fn a_job_that_slurm_refuses_has_ended_with_that_and_its_id_is_not_printed() {
    let folder = pretended();
    instead(&folder, "sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1");
    let ran = run(&mut here(&folder, &["fleet", "submit", "--id", "a", "--", "true"]));
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert_eq!(ran.err, "sbatch: error: Invalid account\nfleet: cannot submit job a: sbatch refused it\n");
    assert_eq!(folder.record("a")["reason"], "cancelled");
    // Should it come all the same (the answer was lost on its way), it is not run.
    assert_eq!(run(&mut here(&folder, &["fleet", "run", "a", "touch", "ran"])).status, 3);
    assert!(!folder.path("ran").exists());
}

#[test]
fn a_job_without_a_clean_up_is_submitted_all_the_same() {
    let folder = pretended();
    instead(&folder, "sbatch", "case $* in *afternotok*) exit 1 ;; esac; echo 7");
    let ran = run(&mut here(&folder, &["fleet", "submit", "--id", "a", "--", "true"]));
    assert_eq!((ran.status, ran.out.as_str()), (0, "a\n"));
    assert!(ran.err.starts_with("fleet: warning: job a has no clean-up task; "), "{}", ran.err);
}

#[test]
fn what_slurm_says_is_recorded_only_where_there_is_no_record() {
    let folder = pretended();
    let settle = |id: &str, state: &str| {
        fs::write(folder.path("state"), state).unwrap();
        done(&mut here(&folder, &["fleet", "settle", id]));
        let record = folder.record(id);
        format!("{}: {}", record["status"].as_str().unwrap(), record["error"].as_str().unwrap_or_default())
    };
    ["queued", "refused", "gone", "ended"].iter().for_each(|id| submit(&folder, id, &[], "true"));
    assert_eq!(settle("queued", "CANCELLED\n"), "failed: cancelled before it was started");
    assert_eq!(settle("refused", "NODE_FAIL\n"), "failed: it was never begun; Slurm says NODE_FAIL");
    assert_eq!(settle("gone", ""), "failed: it was never begun; Slurm says nothing of it any more");
    let mut task = Kid::start(&mut here(&folder, &["fleet", "run", "ended", "true"]));
    assert_eq!(task.end(), 0);
    assert_eq!(settle("ended", "NODE_FAIL\n"), "done: ");
    // A shell in between would die of Slurm's signal, and its step with it, before the watchdog has recorded anything.
    assert_eq!(folder.owner("ended"), task.pid());
}

#[test]
fn a_watchdog_that_outlives_its_slurmd_has_the_last_word() {
    let folder = pretended();
    fs::write(folder.path("state"), "NODE_FAIL\n").unwrap();
    submit(&folder, "a", &[], "true");
    let line = ": >up; until [ -e go ]; do sleep .02; done";
    let mut task = Kid::start(&mut here(&folder, &["fleet", "run", "a", "sh", "-c", line]));
    until("it is at work", || folder.path("up").exists());
    let ran = run(&mut here(&folder, &["fleet", "settle", "a"]));
    assert_eq!((ran.status, ran.err.as_str()), (3, "jobdir: cannot finish job a: its owner lives\n"));
    touch(&folder, "go");
    assert_eq!((task.end(), folder.ended("a").as_str()), (0, "done"));
}

#[test]
fn a_sweep_asks_slurm_only_of_its_own_jobs_that_are_old_enough_and_not_in_its_queue() {
    let folder = pretended();
    fs::write(folder.path("state"), "CANCELLED\n").unwrap();
    ["queued", "young", "old"].iter().for_each(|id| submit(&folder, id, &[], "true"));
    folder.claim(&["--id", "other", "--start-within", "0"]);
    ["queued", "old", "other"].iter().for_each(|id| long_ago(&folder, id));
    // A queue that cannot be read says nothing about anybody, and keeps nobody from being told.
    let ran = run(&mut here(&folder, &["fleet", "sweep"]));
    assert_eq!((ran.status, ran.out.as_str()), (0, ""));
    fs::write(folder.path("queue"), "queued\nold.end\n").unwrap();
    let line = json(&done(&mut here(&folder, &["fleet", "sweep"])));
    assert_eq!((&line["job"], &line["reason"]), (&"old".into(), &"cancelled".into()));
    for id in ["queued", "young", "other"] {
        assert_eq!(folder.word(id), "claimed", "{id}");
    }
    // Acknowledged from the same pipe, and nothing else.
    assert_eq!(sh(&folder, "fleet sweep | fleet sweep --ack; fleet sweep"), "");
}

#[test]
fn a_node_without_the_tools_says_so_where_one_looks() {
    let folder = pretended();
    submit(&folder, "a", &[], "true");
    let mut command = here(&folder, &["bash", script().to_str().unwrap(), "run", "a", "true"]);
    let ran = run(command.env("PATH", "/usr/bin:/bin"));
    assert_eq!(ran.status, 127);
    assert!(ran.err.contains("watchdog: not found"), "{}", ran.err);
    assert_eq!(said(&folder, "tasks").lines().count(), 2);
}
