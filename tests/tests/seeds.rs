//! The three stories that these tools come from, with seconds instead of hours.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Folder, Kid, Ran, in_session, kill, run, state, text, touch, until};

/// A tick of a budgeted consumer: sends what is there, then starts what was asked for. The sending comes first, even
/// where there is no new work.
const TICK: &str = "sweep -- sh -c 'cat >>sent' || exit
    [ -n \"$1\" ] || exit 0
    id=$(jobdir claim --id \"$1\" --input request --grace 300ms) || exit
    rm request
    detach --ready watchdog --job \"$id\" -- sh -c 'echo run >>runs; until [ -e go ]; do sleep .02; done
        read asked; echo \"{\\\"sha\\\":\\\"$asked\\\"}\" | jobdir put' || exit
    echo spawned >spawned";

fn shell(folder: &Folder, line: &str, words: &[&str]) -> Command {
    let mut command = folder.command("sh");
    command.args(["-c", line, "sh"]).args(words).current_dir(folder.path(""));
    command
}

/// One tick to its end.
fn tick(folder: &Folder, words: &[&str]) -> Ran {
    run(&mut shell(folder, TICK, words))
}

fn sent(folder: &Folder) -> Vec<Value> {
    text(folder, "sent").lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
}

fn meta(folder: &Folder, id: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.file(id, "meta.json")).unwrap()).unwrap()
}

/// The row of a job in the list.
fn row(folder: &Folder, id: &str) -> Value {
    let ran = folder.run("jobdir", ["list", "--all", "--json"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let rows = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.into_iter().find(|row| row["job"] == id).expect("a row")
}

// The detached worker: a tick has a budget, and is killed.

#[test]
fn a_tick_killed_after_its_spawn_has_its_result_sent_by_the_next() {
    let folder = Folder::new();
    fs::write(folder.path("request"), "abc123\n").unwrap();
    let mut command = shell(&folder, &format!("{TICK}; sleep 60"), &["corr-1"]);
    let mut budgeted = in_session(&mut command).spawn().unwrap();
    until("it has spawned", || !text(&folder, "spawned").is_empty());
    // SAFETY: killpg(2) takes two integers; the group is that of our own child.
    unsafe { libc::killpg(i32::try_from(budgeted.id()).unwrap(), libc::SIGKILL) };
    budgeted.wait().unwrap();
    assert_eq!(tick(&folder, &[]), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(sent(&folder), Vec::<Value>::new(), "nothing is sent of a job that runs");
    touch(&folder, "go");
    assert_eq!(folder.ended("corr-1"), "done");
    assert_eq!(tick(&folder, &[]).status, 0);
    let lines = sent(&folder);
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["job"], &lines[0]["status"]), (&"corr-1".into(), &"done".into()));
    assert_eq!(lines[0]["output"]["sha"], "abc123", "the request was archived before the work, and is not lost");
    assert_eq!(tick(&folder, &[]).status, 0);
    assert_eq!(sent(&folder).len(), 1, "sent once");
    // The same request comes again, as at-least-once consumers must expect.
    touch(&folder, "request");
    let ran = tick(&folder, &["corr-1"]);
    assert_eq!(ran.status, 3, "{}", ran.err);
    assert_eq!((text(&folder, "runs").as_str(), sent(&folder).len()), ("run\n", 1));
}

#[test]
fn a_result_that_was_refused_comes_again_at_the_next_tick() {
    let folder = Folder::new();
    let id = folder.claim(&["--id", "corr-2"]);
    folder.start(&id, &["sh", "-c", "echo boom >&2; exit 9"]);
    assert_eq!(folder.ended(&id), "failed");
    assert_eq!(run(&mut shell(&folder, "exec sweep -- sh -c 'cat >>tried; exit 1'", &[])).status, 1);
    assert_eq!(tick(&folder, &[]).status, 0);
    let lines = sent(&folder);
    assert_eq!((lines.len(), &lines[0]["attempt"]), (1, &2.into()));
    assert_eq!((&lines[0]["exit_code"], &lines[0]["log_tail"]), (&9.into(), &"boom\n".into()));
}

#[test]
fn a_worker_that_dies_without_a_word_becomes_an_explicit_error_and_is_never_rerun() {
    let folder = Folder::new();
    fs::write(folder.path("request"), "abc\n").unwrap();
    assert_eq!(tick(&folder, &["corr-3"]).status, 0);
    until("it runs", || !text(&folder, "runs").is_empty());
    kill(folder.owner("corr-3"), libc::SIGKILL);
    until("it is dead", || state(folder.owner("corr-3")).is_none_or(|state| state == 'Z'));
    assert_eq!(tick(&folder, &[]).status, 0);
    let lines = sent(&folder);
    assert_eq!(lines.len(), 1, "the very next tick tells");
    assert_eq!((&lines[0]["status"], &lines[0]["reason"]), (&"unknown".into(), &"worker-died".into()));
    assert!(!lines[0]["error"].as_str().unwrap().is_empty());
    assert_eq!(folder.living(), [0; 0]);
    touch(&folder, "go");
    touch(&folder, "request");
    // An audit record: whoever tries again, by any way, is told so, and nothing runs.
    assert_eq!(tick(&folder, &["corr-3"]).status, 3);
    let ran = folder.run("jobdir", ["claim", "--id", "corr-3"]);
    assert_eq!((ran.status, ran.out.as_str()), (3, "unknown\n"));
    for job in ["corr-3".to_owned(), folder.file("corr-3", "").display().to_string()] {
        assert_eq!(
            run(&mut shell(&folder, "exec watchdog --job \"$1\" -- sh -c 'echo run >>runs'", &[&job])).status,
            3
        );
    }
    assert_eq!(folder.run("jobdir", ["cancel", "corr-3"]).status, 0, "an end that came first stands");
    assert_eq!(folder.record("corr-3")["reason"], "worker-died");
    for _ in 0..3 {
        assert_eq!(tick(&folder, &[]).status, 0);
    }
    assert_eq!((text(&folder, "runs").as_str(), sent(&folder).len()), ("run\n", 1));
}

#[test]
fn a_worker_that_never_began_becomes_an_explicit_error_too() {
    let folder = Folder::new();
    let id = folder.claim(&["--start-within", "200ms"]);
    let begun = Instant::now();
    assert_eq!(folder.run("jobdir", ["wait", "--slice", "10s", &id]).status, 1, "a wait ends with the window");
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert_eq!(tick(&folder, &[]).status, 0);
    assert_eq!(sent(&folder)[0]["reason"], "never-started");
    assert_eq!(folder.run("watchdog", ["--job", &id, "touch", "ran"]).status, 3);
}

#[test]
fn no_health_check_runs_in_the_middle_of_a_deploy() {
    let folder = Folder::new();
    let doctor = |folder: &Folder| run(&mut shell(folder, "sweep --in-flight >flight || echo checked", &[])).out;
    assert_eq!(doctor(&folder), "checked\n", "no root yet");
    touch(&folder, "request");
    assert_eq!(tick(&folder, &["corr-4"]).status, 0);
    for _ in 0..3 {
        assert_eq!(doctor(&folder), "");
        let flight: Value = serde_json::from_str(&text(&folder, "flight")).unwrap();
        assert_eq!((&flight["job"], &flight["status"]), (&"corr-4".into(), &"running".into()));
    }
    touch(&folder, "go");
    folder.ended("corr-4");
    assert_eq!((doctor(&folder).as_str(), text(&folder, "flight").as_str()), ("checked\n", ""));
    // A worker that died must not keep the doctor away for ever.
    let id = folder.claim(&["--grace", "0"]);
    assert_eq!(doctor(&folder), "", "claimed is in flight");
    folder.start(&id, &["sleep", "60"]);
    kill(folder.owner(&id), libc::SIGKILL);
    until("it is dead", || state(folder.owner(&id)).is_none_or(|state| state == 'Z'));
    assert_eq!(doctor(&folder), "checked\n");
}

// The detached job: every call is short, all truth is on disk.

#[test]
fn a_launch_returns_at_once_and_prints_the_id_alone() {
    let folder = Folder::new();
    let line = "id=$(jobdir claim --name review --idle 3m --hard 20m) && \
        detach --ready watchdog --job \"$id\" -- sh -c 'echo busy; sleep 60' && echo \"$id\"";
    folder.run("jobdir", ["--version"]);
    let begun = Instant::now();
    // To the end of both pipes: nothing of the job may hold them.
    let ran = folder.sh(line);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(900), "{took:?}");
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let id = ran.out.trim_end();
    assert_eq!((ran.out.lines().count(), folder.word(id).as_str()), (1, "running"));
    assert_eq!(folder.run("jobdir", ["status", id]).out, "running\n");
    assert_eq!(folder.run("jobdir", ["result", id]).status, 75, "no result before the end");
    assert_eq!(folder.run("jobdir", ["cancel", id]).status, 0);
    assert_eq!(folder.ended(id), "failed");
}

#[test]
fn a_launch_that_fails_says_so_and_leaves_no_phantom() {
    let folder = Folder::new();
    let line = "id=$(jobdir claim) && detach --ready watchdog --job \"$id\" -- no-such-cli || echo \"failed $id\"";
    let ran = folder.sh(line);
    let id = ran.out.trim_end().strip_prefix("failed ").expect("a failure").to_owned();
    assert_eq!(folder.run("jobdir", ["wait", "--slice", "5s", &id]).status, 1);
    assert_eq!(folder.record(&id)["reason"], "spawn-failed");
}

#[test]
fn slices_of_a_wait_are_repeated_up_to_the_end() {
    let folder = Folder::new();
    let id = folder.claim(&["--hard", "60s"]);
    folder.start(&id, &["sh", "-c", &format!("until [ -e '{}' ]; do sleep .02; done", folder.path("go").display())]);
    let mut slices = 0;
    let ended = loop {
        let begun = Instant::now();
        let ran = folder.run("jobdir", ["wait", "--slice", "200ms", &id]);
        if ran.status != 75 {
            break ran;
        }
        assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(2));
        assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1));
        assert!(ran.err.contains("0.2 s") && ran.err.contains("goes on"), "{}", ran.err);
        slices += 1;
        if slices == 3 {
            touch(&folder, "go");
        }
    };
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(slices >= 3);
    assert_eq!(folder.run("jobdir", ["wait", "--slice", "0", &id]).status, 0);
}

#[test]
fn a_wait_ends_with_the_callers_deadline_and_says_which_bound_that_was() {
    let folder = Folder::new();
    let id = folder.claim(&["--hard", "100ms", "--grace", "0"]);
    let mut words = folder.tool("watchdog", ["--job", &id, "--", "sleep", "60"]);
    let mut dog = Kid::start(words.stderr(Stdio::null()));
    until("it runs", || folder.word(&id) == "running");
    // Only an owner that cannot act is still there at the caller's deadline.
    kill(dog.pid(), libc::SIGSTOP);
    if folder.word(&id) == "running" {
        let begun = Instant::now();
        let ran = folder.run("jobdir", ["wait", &id]);
        assert_eq!((ran.status, ran.out.as_str()), (75, ""));
        assert!(ran.err.contains("deadline") && ran.err.contains("5.1 s"), "{}", ran.err);
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let ran = folder.run("jobdir", ["wait", "--slice", "1h", &id]);
        assert_eq!(ran.status, 75, "spent is spent");
    }
    kill(dog.pid(), libc::SIGCONT);
    assert_eq!(dog.end(), 124);
    assert_eq!(folder.run("jobdir", ["wait", &id]).status, 124, "the job itself had a limit, and that is its end");
}

#[test]
fn all_windows_come_from_one_knob_and_nest() {
    let folder = Folder::new();
    let windows = |command: &mut Command| {
        let ran = run(command);
        assert_eq!(ran.status, 0, "{}", ran.err);
        let limits = meta(&folder, ran.out.trim_end())["limits"].clone();
        ["hard_s", "deadline_s", "supervisor_hard_s"].map(|key| limits[key].as_f64())
    };
    let claim = |options: &[&str]| {
        let words: Vec<&str> = ["claim"].into_iter().chain(options.iter().copied()).collect();
        folder.tool("jobdir", words)
    };
    let three = |a: f64, b: f64, c: f64| [Some(a), Some(b), Some(c)];
    assert_eq!(windows(&mut claim(&["--hard", "1200"])), three(1200.0, 1210.0, 1230.0));
    assert_eq!(windows(&mut claim(&["--hard", "20m", "--grace", "5s"])), three(1200.0, 1210.0, 1230.0));
    assert_eq!(windows(claim(&[]).env("JOB_HARD_SECS", "1200")), three(1200.0, 1210.0, 1230.0));
    assert_eq!(windows(claim(&["--hard", "1800"]).env("JOB_HARD_SECS", "1200")), three(1800.0, 1810.0, 1830.0));
    assert_eq!(windows(&mut claim(&["--hard", "1200", "--supervisor", "2000"])), three(1200.0, 1210.0, 2000.0));
    assert_eq!(windows(&mut claim(&["--hard", "1200", "--supervisor", "60"])), three(1200.0, 1210.0, 1210.0));
    assert_eq!(windows(&mut claim(&[])), [None; 3], "unlimited is unlimited all the way out");
    let ran = run(claim(&[]).env("JOB_HARD_SECS", "soon"));
    assert_eq!(ran.status, 0);
    assert!(ran.err.starts_with("jobdir: warning: JOB_HARD_SECS"), "{}", ran.err);
    assert_eq!(meta(&folder, ran.out.trim_end())["limits"]["hard_s"], Value::Null);
    // What is known at the claim is what everybody goes by: a knob that is turned later changes nothing.
    let id = folder.claim(&["--hard", "60", "--grace", "1"]);
    let mut command = folder.tool("watchdog", ["--job", &id, "--", "sh", "-c", "echo $JOB_DEADLINE; date +%s"]);
    assert_eq!(run(command.env("JOB_HARD_SECS", "1").env("JOB_IDLE_SECS", "0.01")).status, 0);
    let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
    let times: Vec<i64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!((times[0] - times[1] - 60).abs() <= 2, "{log}");
}

#[test]
fn whoever_reads_a_terminal_word_finds_the_whole_record() {
    let folder = Folder::new();
    let ids: Vec<String> = (0..8).map(|_| folder.claim(&[])).collect();
    let dogs: Vec<Kid> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| {
            let line = format!("sleep 0.{n}; echo '{{\"n\":{n}}}' | jobdir put");
            Kid::start(&mut folder.watchdog(id, &[], &line))
        })
        .collect();
    let mut open: Vec<(usize, &String)> = ids.iter().enumerate().collect();
    until("all have ended", || {
        open.retain(|(n, id)| {
            let word = folder.word(id);
            assert!(!word.is_empty(), "a status is never half written");
            if word == "claimed" || word == "running" {
                return true;
            }
            assert_eq!((word.as_str(), &folder.record(id)["output"]["n"]), ("done", &(*n).into()));
            false
        });
        open.is_empty()
    });
    dogs.into_iter().for_each(|mut dog| assert_eq!(dog.end(), 0));
}

// Silence, not age.

#[test]
fn a_long_job_that_talks_is_kept_however_old_it_is() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "500ms", "--grace", "0"]);
    // Twice as long as the supervisor window, in log lines first and progress stamps then.
    let line = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo tool $i; sleep .1; done
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do jobdir touch \"step $i\"; sleep .1; done";
    let mut dog = folder.tool("watchdog", ["--job", &id, "--", "sh", "-c", line]).spawn().unwrap();
    until("it has begun", || folder.word(&id) != "claimed");
    let mut looks = 0;
    while dog.try_wait().unwrap().is_none() {
        let row = row(&folder, &id);
        if row["status"] == "running" {
            assert_eq!(row["overdue"], false, "{row}");
            assert!(row["silent_s"].as_f64().unwrap() < 1.5, "{row}");
        }
        assert_ne!(row["status"], "unknown");
        looks += 1;
    }
    assert_eq!(dog.wait().unwrap().code(), Some(0));
    assert!(looks > 3);
    let record = folder.record(&id);
    assert_eq!(record["status"], "done");
    assert!(record["duration_s"].as_f64().unwrap() > 3.0);
}

#[test]
fn a_job_that_falls_silent_is_released_by_its_watchdog() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "400ms", "--grace", "200ms"]);
    let ran = folder.run("watchdog", ["--job", &id, "--", "sh", "-c", "echo x; sleep .2; echo y; exec sleep 60"]);
    assert_eq!(ran.status, 124);
    let record = folder.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&"timeout".into(), &"idle".into()));
    let duration = record["duration_s"].as_f64().unwrap();
    assert!((0.6..2.5).contains(&duration), "{duration}");
    assert!(record["progress_at"].as_str() > record["started_at"].as_str());
}

#[test]
fn a_job_with_its_watchdog_stuck_is_released_by_the_sweep() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "300ms", "--grace", "0"]);
    folder.start(&id, &["sleep", "60"]);
    kill(folder.owner(&id), libc::SIGSTOP);
    let mut line = String::new();
    until("it is told", || {
        line = folder.run("sweep", [""; 0]).out;
        !line.is_empty()
    });
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&record["status"], &record["reason"]), (&"unknown".into(), &"wedged".into()), "although its pid lives");
    assert_ne!(state(folder.owner(&id)), None);
}

#[test]
fn a_job_without_a_stamp_falls_back_on_its_start_and_not_on_its_claim() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "400ms", "--grace", "0", "--start-within", "0"]);
    // It waits in a queue for longer than the supervisor would let a silent owner live.
    until("it waited", || row(&folder, &id)["age_s"].as_f64().unwrap() > 1.4);
    assert_eq!(folder.run("jobdir", ["status", &id]).out, "claimed\n");
    let begun = Instant::now();
    let mut dog = Kid::start(&mut folder.tool("watchdog", ["--job", &id, "--", "sleep", "60"]));
    until("it runs", || folder.word(&id) == "running");
    let row = row(&folder, &id);
    if row["status"] == "running" {
        assert!(row["silent_s"].as_f64().unwrap() < 1.2, "{row}");
        assert_eq!(row["overdue"], false, "{row}");
    }
    assert_eq!(dog.end(), 124);
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert_eq!(folder.record(&id)["reason"], "idle");
    assert!(folder.record(&id)["duration_s"].as_f64().unwrap() < 1.4, "the queue does not count");
}

#[test]
fn a_job_without_a_limit_is_never_judged_by_its_silence() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "0", "--hard", "0"]);
    folder.start(&id, &["sleep", "60"]);
    until("it is silent for a while", || row(&folder, &id)["silent_s"].as_f64().unwrap() > 0.5);
    assert_eq!(row(&folder, &id)["overdue"], false);
    assert_eq!(folder.run("sweep", [""; 0]), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(folder.run("jobdir", ["cancel", &id]).status, 0);
    assert_eq!(folder.ended(&id), "failed");
}
