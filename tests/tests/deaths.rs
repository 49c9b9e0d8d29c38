//! Who dies, and what is then true.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Folder, Kid, in_session, is_alive, kill, pid_in, run, said, state, text, touch, until};

/// A watchdog in the foreground around a line of sh, in the folder.
fn watch(folder: &Folder, id: &str, options: &[&str], line: &str) -> Kid {
    Kid::quiet(&mut folder.watchdog(id, options, line))
}

/// One sweep; its lines.
fn sweep(folder: &Folder) -> Vec<Value> {
    let ran = folder.run("sweep", [""; 0]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "sweep");
    ran.out.lines().map(|line| serde_json::from_str(line).expect("a line is whole")).collect()
}

/// The one line of one sweep, and what it says of the end.
fn swept(folder: &Folder, id: &str) -> (String, String) {
    let lines = sweep(folder);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["job"], id);
    let word = |key: &str| lines[0][key].as_str().unwrap().to_owned();
    (word("status"), word("reason"))
}

fn unknown(reason: &str) -> (String, String) {
    ("unknown".into(), reason.into())
}

/// Living processes of a claim, by the token that they were started with.
fn with_token(folder: &Folder, id: &str) -> Vec<i32> {
    let meta: Value = serde_json::from_slice(&fs::read(folder.file(id, "meta.json")).unwrap()).unwrap();
    let entry = format!("JOB_CLAIM={}", meta["claim"].as_str().unwrap());
    let holds = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&b| b == 0).any(|one| one == entry.as_bytes())
    };
    folder.living().into_iter().filter(holds).collect()
}

/// Parent, group and session of every process.
fn table() -> HashMap<i32, [i32; 3]> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1).map(|field| field.parse().unwrap());
        Some((pid, [fields.next()?, fields.next()?, fields.next()?]))
    })
    .collect()
}

#[test]
fn a_job_outlives_the_group_the_session_and_the_tree_of_its_launcher() {
    for what in ["group", "session", "tree"] {
        let folder = Folder::new();
        let line = "id=$(jobdir claim); detach --ready watchdog --job $id -- sh -c 'until [ -e go ]; do sleep .02; done; echo end'
            echo $id >id; sleep 60 & sleep 60";
        let mut command = folder.command("sh");
        command.args(["-c", line]).current_dir(folder.path(""));
        let mut launcher = Kid::quiet(in_session(&mut command));
        let id = said(&folder, "id");
        let all = table();
        let doomed: HashSet<i32> = match what {
            "group" => all.iter().filter(|(_, of)| of[1] == launcher.pid()).map(|(&pid, _)| pid).collect(),
            "session" => all.iter().filter(|(_, of)| of[2] == launcher.pid()).map(|(&pid, _)| pid).collect(),
            _ => {
                let mut tree = HashSet::from([launcher.pid()]);
                while all.iter().any(|(&pid, of)| tree.contains(&of[0]) && tree.insert(pid)) {}
                tree
            }
        };
        assert!(doomed.contains(&launcher.pid()) && !doomed.contains(&folder.owner(&id)), "{what}");
        doomed.into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
        assert_eq!(launcher.end(), 137);
        assert_eq!(folder.run("jobdir", ["status", &id]).out, "running\n", "{what}");
        touch(&folder, "go");
        assert_eq!(folder.run("jobdir", ["wait", "--slice", "15s", &id]).status, 0, "{what}");
        assert_eq!(fs::read_to_string(folder.file(&id, "out.log")).unwrap(), "end\n");
    }
}

#[test]
fn a_delegate_that_is_killed_has_failed_by_that_signal() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let mut dog = watch(&folder, &id, &[], "echo '[1]' | jobdir put; echo $$ >pid; sleep 60 & wait");
    kill(pid_in(&folder, "pid"), libc::SIGKILL);
    assert_eq!(dog.end(), 137);
    let record = folder.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"signaled".into()));
    assert_eq!((&record["signal"], &record["exit_code"]), (&9.into(), &Value::Null));
    assert_eq!(record["output"][0], 1, "what it had published stands");
    assert_eq!(swept(&folder, &id), ("failed".into(), "signaled".into()));
    assert_eq!(folder.left(), [0; 0]);
}

/// Ignores TERM, and so do a child, a grandchild in its own session and one that was detached.
const STUBBORN: &str =
    "trap '' TERM; echo up >>out; sleep 60 & setsid sh -c 'sleep 60 & echo up >>out; sleep 60; sleep 60' &
    detach -- sh -c 'trap \"\" TERM; echo up >>out; sleep 60; sleep 60'; sleep 60; sleep 60; sleep 60";

#[test]
fn a_watchdog_that_is_killed_leaves_an_explicit_end_and_no_process() {
    for kill_all in [false, true] {
        let folder = Folder::new();
        let id = folder.claim(&["--grace", "300ms"]);
        let mut dog = watch(&folder, &id, &[], &format!("echo $$ >pid; {STUBBORN}"));
        until("all are up", || text(&folder, "out").lines().count() == 3);
        let mut wait = Kid::quiet(&mut folder.tool("jobdir", ["wait", &id]));
        until("it waits", || state(wait.pid()) == Some('S'));
        kill(dog.pid(), libc::SIGKILL);
        if kill_all {
            kill(pid_in(&folder, "pid"), libc::SIGKILL);
        }
        assert_eq!(dog.end(), 137);
        assert_eq!(wait.end(), 1, "wait ends by itself");
        assert_eq!(swept(&folder, &id), unknown("worker-died"));
        assert_eq!(with_token(&folder, &id), [0; 0]);
        assert_eq!(folder.left(), [0; 0]);
        assert_eq!(folder.word(&id), "unknown");
        let record = folder.record(&id);
        assert_eq!((&record["exit_code"], &record["signal"]), (&Value::Null, &Value::Null));
        assert!(record["error"].as_str().unwrap().contains("died"), "{record}");
        assert_eq!(record["warnings"], Value::Array(vec![]));
        assert_eq!(record["command"][0], "sh", "what it was is still told");
    }
}

#[test]
fn the_sweep_alone_settles_what_a_killed_watchdog_left() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "300ms"]);
    let mut dog = watch(&folder, &id, &[], &format!("echo '{{\"n\":1}}' | jobdir put; {STUBBORN}"));
    until("all are up", || text(&folder, "out").lines().count() == 3);
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    assert_eq!(swept(&folder, &id), unknown("worker-died"));
    assert_eq!(folder.left(), [0; 0]);
    assert_eq!(folder.record(&id)["output"]["n"], 1, "paid work is kept");
}

#[test]
fn a_stranger_in_the_same_shell_session_is_left_alone() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "200ms"]);
    let line = format!(
        "set -m; sleep 60 & echo $! >stranger
        watchdog --job {id} -- sh -c 'trap \"\" TERM; echo $$ >pid; sleep 60 & sleep 60; sleep 60'
        echo $? >status; sleep 60"
    );
    let mut command = folder.command("bash");
    command.args(["-c", &line]).current_dir(folder.path(""));
    let shell = Kid::quiet(in_session(&mut command));
    let (delegate, stranger) = (pid_in(&folder, "pid"), pid_in(&folder, "stranger"));
    kill(folder.owner(&id), libc::SIGKILL);
    assert_eq!(said(&folder, "status"), "137");
    assert_eq!(swept(&folder, &id), unknown("worker-died"));
    assert!(!is_alive(delegate));
    assert!(is_alive(stranger) && is_alive(shell.pid()));
    assert_eq!(with_token(&folder, &id), [0; 0]);
}

#[test]
fn a_number_that_belongs_to_a_stranger_by_now_is_never_signalled() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "0"]);
    let mut dog = watch(&folder, &id, &[], "echo up >out; sleep 60");
    said(&folder, "out");
    until("its session is known", || {
        fs::read_to_string(folder.file(&id, "owner.json")).is_ok_and(|o| !o.contains("\"session\":null"))
    });
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    let mut owner: Value = serde_json::from_slice(&fs::read(folder.file(&id, "owner.json")).unwrap()).unwrap();
    // No kernel gives a number away twice within one tick of its clock, and neither may we.
    if cfg!(portable) {
        // There its clock ticks once a second.
        thread::sleep(Duration::from_secs(1));
    }
    let died = if cfg!(portable) { 0.0 } else { owner["session_start"].as_f64().unwrap() / 100.0 };
    until("its tick is over", || {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        uptime.split(' ').next().unwrap().parse::<f64>().unwrap() > died + 0.01
    });
    let mut command = folder.command("sh");
    command.args(["-c", "sleep 60 & wait"]);
    let stranger = Kid::quiet(in_session(&mut command));
    owner["pid"] = stranger.pid().into();
    owner["session"] = stranger.pid().into();
    fs::write(folder.file(&id, "owner.json"), owner.to_string()).unwrap();
    fs::write(folder.file(&id, "pid"), format!("{}\n", stranger.pid())).unwrap();
    assert_eq!(swept(&folder, &id), unknown("worker-died"));
    assert!(is_alive(stranger.pid()));
}

#[test]
fn a_zombie_owner_is_a_dead_one() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "100ms"]);
    let dog = watch(&folder, &id, &[], "echo up >out; sleep 60");
    said(&folder, "out");
    // Nobody waits for it: as under a first process of a container that reaps nothing.
    kill(dog.pid(), libc::SIGKILL);
    until("it is a zombie", || state(dog.pid()) == Some('Z'));
    let begun = Instant::now();
    assert_eq!(folder.run("jobdir", ["wait", "--slice", "10s", &id]).status, 1);
    assert_eq!(swept(&folder, &id), unknown("worker-died"));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(state(dog.pid()), Some('Z'));
}

#[test]
fn a_job_of_an_earlier_boot_has_no_owner_any_more() {
    if tests::is_portable("another boot is told from a step of the clock") {
        return;
    }
    let folder = Folder::new();
    let claimed = folder.claim(&["--id", "claimed", "--start-within", "0"]);
    let running = folder.claim(&["--id", "running"]);
    let stranger = Kid::quiet(folder.command("setsid").args(["sleep", "60"]));
    let mut dog = watch(&folder, &running, &[], "echo up >out; exec sleep 60");
    said(&folder, "out");
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    until("nothing of it is left", || with_token(&folder, &running).is_empty());
    assert_eq!(folder.run("jobdir", ["status", &claimed]).out, "claimed\n", "no start window: it waits for ever");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for (id, name) in [(&claimed, "meta.json"), (&running, "meta.json"), (&running, "owner.json")] {
        let file = folder.file(id, name);
        let old = fs::read_to_string(&file).unwrap();
        assert!(old.contains(boot.trim()));
        fs::write(file, old.replace(boot.trim(), "00000000-0000-4000-8000-000000000000")).unwrap();
    }
    // The recorded session means nothing after a boot, even if all its numbers fit.
    let stat = fs::read_to_string(format!("/proc/{}/stat", stranger.pid())).unwrap();
    let begun = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap();
    let mut owner: Value = serde_json::from_slice(&fs::read(folder.file(&running, "owner.json")).unwrap()).unwrap();
    owner["session"] = stranger.pid().into();
    owner["session_start"] = begun.parse::<u64>().unwrap().into();
    fs::write(folder.file(&running, "owner.json"), owner.to_string()).unwrap();
    let lines = sweep(&folder);
    let ends: Vec<_> = lines
        .iter()
        .map(|line| (line["job"].as_str().unwrap(), line["status"].as_str().unwrap(), line["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(ends, [("claimed", "unknown", "worker-died"), ("running", "unknown", "worker-died")]);
    assert!(is_alive(stranger.pid()));
}

#[test]
fn a_job_of_another_host_is_listed_and_never_judged() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "100ms", "--grace", "0", "--hard", "1s"]);
    let mut dog = watch(&folder, &id, &[], "echo up >out; sleep 60");
    said(&folder, "out");
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    let boot = match cfg!(portable) {
        true => reap::here::boot_id().unwrap(),
        false => fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap(),
    };
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    for name in ["meta.json", "owner.json"] {
        let mut old: Value = serde_json::from_slice(&fs::read(folder.file(&id, name)).unwrap()).unwrap();
        assert_eq!(old["boot_id"], boot.trim());
        old["boot_id"] = "00000000-0000-4000-8000-000000000000".into();
        old["host"] = "elsewhere".into();
        if !machine.is_empty() {
            old["machine_id"] = "0123456789abcdef0123456789abcdef".into();
        }
        fs::write(folder.file(&id, name), old.to_string()).unwrap();
    }
    until("it is overdue", || folder.run("sweep", ["--in-flight"]).out.contains("\"overdue\":true"));
    let ran = folder.run("sweep", [""; 0]);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (0, "", 1), "{}", ran.err);
    assert_eq!(folder.word(&id), "running");
    assert_eq!(folder.run("jobdir", ["finish", &id, "unknown", "--error", "its host burnt down"]).status, 0);
    assert_eq!(swept(&folder, &id), unknown("finished"));
}

#[test]
fn a_stopped_owner_that_is_overdue_loses_its_claim_and_finds_out() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "200ms", "--grace", "100ms"]);
    let mut dog = watch(&folder, &id, &[], "until [ -e quiet ]; do echo x; sleep .02; done; sleep 60 & sleep 60");
    until("it writes", || fs::metadata(folder.file(&id, "out.log")).is_ok_and(|log| log.len() > 4));
    kill(dog.pid(), libc::SIGSTOP);
    until("it is stopped", || state(dog.pid()) == Some('T'));
    touch(&folder, "quiet");
    let begun = Instant::now();
    let mut lines = Vec::new();
    until("it is settled", || {
        lines = sweep(&folder);
        !lines.is_empty()
    });
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!((&lines[0]["status"], &lines[0]["reason"]), (&"unknown".into(), &"wedged".into()));
    assert_eq!(state(dog.pid()), Some('T'));
    let record = fs::read(folder.file(&id, "result.json")).unwrap();
    assert_eq!(folder.run("jobdir", ["wait", &id]).status, 1);
    let ran = run(folder.command("sh").args(["-c", "sweep | sweep --ack; jobdir prune --older-than 0"]));
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "its owner still holds it: it is not removed");
    kill(dog.pid(), libc::SIGCONT);
    assert_eq!(dog.end(), 125);
    assert_eq!(folder.left(), [0; 0], "its tree ends");
    assert_eq!(fs::read(folder.file(&id, "result.json")).unwrap(), record, "and its record changes nothing");
    let late: Value = serde_json::from_slice(&fs::read(folder.file(&id, "late.json")).unwrap()).unwrap();
    assert_eq!((&late["job"], &late["pid"]), (&Value::from(id.as_str()), &dog.pid().into()));
    assert_eq!(folder.word(&id), "unknown");
}

/// More than three idle windows of the jobs below: whoever looks at them then has to ask.
const SUPERVISOR: f64 = 1.55;

/// How long nothing was heard of the one job in flight.
fn silent(folder: &Folder) -> f64 {
    let row: Value = serde_json::from_str(&folder.run("sweep", ["--in-flight"]).out).expect("one row");
    row["silent_s"].as_f64().unwrap()
}

#[test]
fn an_owner_that_answers_is_left_alone_however_silent_its_log_is() {
    let folder = Folder::new();
    fs::write(folder.path("own"), "").unwrap();
    let id = folder.claim(&["--idle", "400ms", "--grace", "0"]);
    let mut dog = watch(&folder, &id, &["--watch", "own"], "until [ -e go ]; do echo x >>own; sleep .02; done; exit 0");
    let stamp = || fs::metadata(folder.file(&id, "pid")).and_then(|pid| pid.modified()).unwrap();
    until("it has begun", || !fs::read_to_string(folder.file(&id, "pid")).unwrap().is_empty());
    let before = stamp();
    until("it was asked, and has answered", || {
        assert_eq!(folder.run("jobdir", ["status", &id]).out, "running\n");
        stamp() > before
    });
    for _ in 0..5 {
        let (before, begun) = (stamp(), Instant::now());
        assert_eq!(sweep(&folder), Vec::<Value>::new());
        assert!(stamp() > before, "each sweep asks");
        assert!(begun.elapsed() < Duration::from_millis(1900), "and gets its answer at once");
    }
    touch(&folder, "go");
    assert_eq!(dog.end(), 0);
    assert_eq!(swept(&folder, &id), ("done".into(), "exited".into()));
}

#[test]
fn an_owner_that_was_stopped_for_a_moment_still_answers_in_time() {
    let folder = Folder::new();
    fs::write(folder.path("own"), "").unwrap();
    let id = folder.claim(&["--idle", "500ms", "--grace", "0"]);
    let mut dog = watch(&folder, &id, &["--watch", "own"], "until [ -e go ]; do echo x >>own; sleep .02; done");
    until("it looks overdue", || silent(&folder) > SUPERVISOR);
    kill(dog.pid(), libc::SIGSTOP);
    until("it is stopped", || state(dog.pid()) == Some('T'));
    let mut asker = folder.tool("sweep", [""; 0]).stdout(Stdio::piped()).spawn().unwrap();
    let asked = || {
        let status = fs::read_to_string(format!("/proc/{}/status", dog.pid())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim();
        u64::from_str_radix(pending, 16).unwrap() & (1 << (libc::SIGURG - 1)) != 0
    };
    until("it is asked", asked);
    kill(dog.pid(), libc::SIGCONT);
    until("the sweep ends", || asker.try_wait().unwrap().is_some());
    let out = asker.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), &b""[..]));
    touch(&folder, "go");
    assert_eq!(dog.end(), 0);
    assert_eq!(swept(&folder, &id), ("done".into(), "exited".into()));
}

#[test]
fn a_wait_for_a_job_that_looks_overdue_does_not_spin() {
    let folder = Folder::new();
    fs::write(folder.path("own"), "").unwrap();
    let id = folder.claim(&["--idle", "400ms", "--grace", "0"]);
    let mut dog = watch(&folder, &id, &["--watch", "own"], "until [ -e go ]; do echo x >>own; sleep .02; done");
    until("it looks overdue", || silent(&folder) > SUPERVISOR);
    let ran = folder.sh(&format!("jobdir wait --slice 1500ms {id}; echo $?; times"));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "75"), "{ran:?}");
    // Of the children, after the shell's own: 0m0.010000s 0m0.020000s
    for spent in lines[2].split(' ') {
        let seconds: f64 = spent.trim_start_matches("0m").trim_end_matches('s').parse().expect("less than a minute");
        assert!(seconds < 0.3, "{ran:?}");
    }
    touch(&folder, "go");
    assert_eq!(dog.end(), 0);
}

#[test]
fn file_times_alone_prove_nothing() {
    let folder = Folder::new();
    let alive = folder.claim(&["--id", "alive", "--idle", "30s", "--hard", "50s"]);
    let dead = folder.claim(&["--id", "dead", "--grace", "0"]);
    let fresh = folder.claim(&["--id", "fresh"]);
    let _dog = watch(&folder, &alive, &[], "echo x; jobdir touch; echo up >one; until [ -e go ]; do sleep .02; done");
    let mut other = watch(&folder, &dead, &[], "echo x; echo up >two; sleep 60");
    said(&folder, "one");
    said(&folder, "two");
    kill(other.pid(), libc::SIGKILL);
    other.end();
    let age = |id: &str, when: &str| {
        let all = folder.file(id, "").display().to_string();
        let ran = folder.sh(&format!("find '{all}' -exec touch -h -d '{when}' {{}} +"));
        assert_eq!(ran.status, 0, "{}", ran.err);
    };
    age(&alive, "-10 years");
    age(&fresh, "-10 years");
    age(&dead, "+2 days");
    assert_eq!(swept(&folder, &dead), unknown("worker-died"));
    assert_eq!((folder.word(&alive).as_str(), folder.word(&fresh).as_str()), ("running", "claimed"));
    age(&alive, "+2 days");
    assert_eq!(folder.run("jobdir", ["status", &alive]).out, "running\n");
    touch(&folder, "go");
    assert_eq!(folder.ended(&alive), "done");
}

#[test]
fn a_sweep_with_few_descriptors_calls_nothing_damaged_that_lives() {
    // A job that could not be opened while the others were settled was emitted as unknown / damaged.
    let folder = Folder::new();
    for _ in 0..60 {
        let ran = run(folder.tool("jobdir", ["claim"]).env("JOBDIR_SYNC", "0"));
        assert_eq!(ran.status, 0, "{}", ran.err);
    }
    let ran = folder.sh("ulimit -n 40; exec sweep");
    assert_eq!(ran.out, "", "{}", ran.err);
}

/// A generator of numbers that a seed brings back: Knuth's MMIX constants.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Fifty kills at random moments in a root of their own, a sweep and its acknowledgement after every second.
fn kills(seed: u64) {
    let folder = Folder::new();
    let mut dice = Dice(seed);
    let mut pending: HashMap<String, &str> = HashMap::new();
    let mut acknowledged = HashSet::new();
    let mut ends: HashMap<String, u32> = HashMap::new();
    for round in 1..=50 {
        let id = folder.claim(&["--start-within", "1ms", "--grace", "50ms"]);
        let line = ["true", "exit 3", "trap '' TERM; sleep 60 & sleep 60; sleep 60"][dice.below(3) as usize];
        pending.insert(id.clone(), line);
        let mut dog = watch(&folder, &id, &[], line);
        // Where each look at the process table is a ps, it takes longer to start.
        thread::sleep(Duration::from_micros(dice.below(if cfg!(portable) { 200_000 } else { 20_000 })));
        kill(dog.pid(), libc::SIGKILL);
        dog.end();
        // Often at once: what the dying still holds must not hide a death.
        if dice.below(2) == 0 && round != 50 {
            continue;
        }
        let ran = folder.run("sweep", [""; 0]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "seed {seed}, round {round}");
        let mut seen = HashSet::new();
        for line in ran.out.lines() {
            let record: Value = serde_json::from_str(line).expect("a line is whole");
            let id = record["job"].as_str().unwrap().to_owned();
            assert!(
                seen.insert(id.clone()) && !acknowledged.contains(&id),
                "twice: seed {seed}, round {round}: {line}"
            );
            let end = format!(
                "{}/{}/{}",
                record["status"].as_str().unwrap(),
                record["reason"].as_str().unwrap(),
                record["exit_code"]
            );
            let lost = ["unknown/worker-died/null", "unknown/never-started/null"].contains(&end.as_str());
            let right = match pending[&id] {
                "true" => lost || end == "done/exited/0",
                "exit 3" => lost || end == "failed/exited/3",
                _ => lost,
            };
            assert!(right, "{end} of {:?}: seed {seed}, round {round}", pending[&id]);
            assert_eq!(
                fs::read_to_string(folder.file(&id, "status")).unwrap().trim(),
                record["status"].as_str().unwrap()
            );
            *ends.entry(end).or_default() += 1;
        }
        let printed: HashSet<String> = pending.drain().map(|(id, _)| id).collect();
        assert_eq!(seen, printed, "seed {seed}, round {round}");
        assert_eq!(folder.left(), [0; 0], "seed {seed}, round {round}");
        fs::write(folder.path("lines"), &ran.out).unwrap();
        assert_eq!(folder.sh(&format!("sweep --ack <'{}'", folder.path("lines").display())).status, 0);
        acknowledged.extend(seen);
        assert_eq!(folder.run("sweep", [""; 0]).out, "", "none after its acknowledgement: seed {seed}, round {round}");
    }
    assert_eq!(acknowledged.len(), 50);
    // Where starting takes long, few of them get to their end.
    assert!(ends.len() > if cfg!(portable) { 1 } else { 2 }, "the moments differ: seed {seed}: {ends:?}");
}

#[test]
fn two_hundred_killed_watchdogs_leave_two_hundred_records() {
    let runs: Vec<_> = (1..=4).map(|seed| thread::spawn(move || kills(seed))).collect();
    for run in runs {
        run.join().unwrap();
    }
}

#[test]
fn a_sweep_killed_at_any_moment_loses_nothing_and_says_nothing_new() {
    let folder = Folder::new();
    let mut dice = Dice(7);
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(folder.claim(&["--start-within", "1ms"]));
        let sweep = Kid::quiet(&mut folder.tool("sweep", [""; 0]));
        thread::sleep(Duration::from_micros(dice.below(12_000)));
        drop(sweep);
    }
    ids.sort_unstable();
    let lines = sweep(&folder);
    assert_eq!(lines.iter().map(|line| line["job"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), ids);
    assert!(lines.iter().all(|line| line["reason"] == "never-started"));
    for _ in 0..20 {
        let file = folder.path("ids");
        fs::write(&file, ids.join("\n") + "\n").unwrap();
        let ack = Kid::quiet(folder.tool("sweep", ["--ack"]).stdin(fs::File::open(&file).unwrap()));
        thread::sleep(Duration::from_micros(dice.below(6_000)));
        drop(ack);
        let left = sweep(&folder).len();
        let delivered = fs::read_dir(folder.root().join("delivered")).unwrap().count();
        assert_eq!(left + delivered, ids.len(), "each is in one place");
    }
}

#[test]
fn a_claim_killed_at_any_moment_leaves_a_whole_job_or_none() {
    let folder = Folder::new();
    folder.claim(&["--id", "first"]);
    let mut dice = Dice(11);
    for round in 0..60 {
        let id = format!("id-{round}");
        let claim = Kid::quiet(&mut folder.tool("jobdir", ["claim", "--id", &id]));
        thread::sleep(Duration::from_micros(dice.below(9_000)));
        drop(claim);
        if folder.file(&id, "").exists() {
            for name in ["meta.json", "status", "pid", "out.log"] {
                assert!(folder.file(&id, name).exists(), "{name} is missing, round {round}");
            }
        }
        let ran = folder.run("jobdir", ["claim", "--id", &id]);
        assert!([(0, format!("{id}\n")), (3, "claimed\n".to_owned())].contains(&(ran.status, ran.out)), "{}", ran.err);
    }
    assert_eq!(folder.run("jobdir", ["prune", "--older-than", "0"]).status, 0);
    let names = fs::read_dir(folder.root().join("jobs")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')), "half claims are removed");
}

#[test]
fn the_death_of_an_outer_watchdog_ends_the_jobs_inside_it() {
    let folder = Folder::new();
    let outer = folder.claim(&["--id", "outer", "--grace", "300ms"]);
    let line = "id=$(jobdir claim --id inner); detach --ready watchdog --job $id -- sh -c 'trap \"\" TERM; echo up >up; sleep 60; sleep 60'; sleep 60";
    let mut dog = watch(&folder, &outer, &[], line);
    said(&folder, "up");
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    let mut ends = HashMap::new();
    for _ in 0..2 {
        for line in sweep(&folder) {
            ends.insert(line["job"].as_str().unwrap().to_owned(), line["status"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(ends["outer"], "unknown");
    assert!(ends["inner"] == "unknown" || ends["inner"] == "failed", "{ends:?}");
    assert_eq!(folder.left(), [0; 0]);
}

#[test]
fn a_service_that_was_started_before_the_job_outlives_it() {
    // A subreaper adopts the orphans of its earlier children too, and ended them as if they were the command's.
    let folder = Folder::new();
    let line = "sh -c 'until [ -e go ]; do sleep .02; done; sleep 60 & echo $! >service' & echo $! >shell
        exec watchdog --hard 15s -- sh -c 'echo >go; while kill -0 $(cat shell) 2>/dev/null; do sleep .02; done'";
    let ran = run(folder
        .command("sh")
        .args(["-c", line])
        .current_dir(folder.path(""))
        .stderr(Stdio::null())
        .stdout(Stdio::null()));
    assert_eq!(ran.status, 0);
    assert!(is_alive(pid_in(&folder, "service")));
}
