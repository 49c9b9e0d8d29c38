//! `examples/cron-tick`: a tick with a budget is killed at each of its steps, and every request gets its receipt.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tests::{Folder, Ran, bin_dir, kill, run, until};

/// Work that leaves the system half changed until it may go on.
const WORK: &str = "echo run >>runs-$JOB_ID; read asked; : >deploying
    until [ -e go ]; do sleep .02; done
    rm -f deploying; echo \"{\\\"sha\\\":\\\"$asked\\\"}\" | jobdir put";

/// A health check that takes a system in the middle of a change for a broken one.
const DOCTOR: &str = "echo checked >>checks; [ ! -e deploying ] || { echo 'FAIL: checksums differ'; exit 1; }";

const QUIET: Ran = Ran { status: 0, out: String::new(), err: String::new() };

/// The directory of a consumer, with scripts that say what they were asked for.
fn consumer() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("inbox")).unwrap();
    script(&folder.path("work"), WORK);
    script(&folder.path("send"), "cat >>sent");
    script(&folder.path("doctor"), DOCTOR);
    folder
}

/// Written by another process: a descriptor that is open for writing here could be inherited by what another test
/// starts just now, and then the script is busy (ETXTBSY).
fn script(path: &Path, lines: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod +x \"$2\"", "sh", lines]).arg(path);
    assert_eq!(run(&mut command), QUIET);
}

/// A request arrives: under a hidden name first.
fn request(folder: &Folder, id: &str, text: &str) {
    let hidden = folder.path(format!("inbox/.{id}"));
    fs::write(&hidden, text).unwrap();
    fs::rename(hidden, folder.path(format!("inbox/{id}"))).unwrap();
}

fn tick(folder: &Folder) -> Command {
    let mut command = folder.command(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cron-tick"));
    command.arg(folder.path(""));
    for name in ["TICK_BUDGET", "HERMES_CRON_TIMEOUT", "TICK_SEND", "TICK_STEP", "TICK_DOCTOR", "TICK_MAX", "TICK_KEEP"]
    {
        command.env_remove(name);
    }
    for name in ["JOB_HARD_SECS", "JOB_IDLE_SECS", "JOB_GRACE_SECS"] {
        command.env_remove(name);
    }
    command
}

/// One tick to its end, which must be a good one.
fn ticks(folder: &Folder) {
    assert_eq!(run(&mut tick(folder)), QUIET);
}

fn touch(folder: &Folder, name: &str) {
    fs::write(folder.path(name), "").unwrap();
}

fn text(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).unwrap_or_default()
}

/// The files in a directory that are not hidden.
fn files(folder: &Folder, name: &str) -> Vec<String> {
    let names = fs::read_dir(folder.path(name)).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// The receipts that were sent, by their correlation id.
fn receipts(folder: &Folder) -> BTreeMap<String, Vec<Value>> {
    let mut receipts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text(folder, "sent").lines() {
        let receipt: Value = serde_json::from_str(line).expect("a whole line");
        receipts.entry(receipt["job"].as_str().expect("a correlation id").to_owned()).or_default().push(receipt);
    }
    receipts
}

/// The only receipt for this id.
fn receipt(folder: &Folder, id: &str) -> Value {
    let all = receipts(folder).remove(id).unwrap_or_default();
    assert_eq!(all.len(), 1, "receipts of {id}");
    all.into_iter().next().unwrap()
}

/// Puts a program of this name before the real one.
fn instead(folder: &Folder, command: &mut Command, tool: &str, lines: &str) {
    let dir = folder.path("instead");
    fs::create_dir_all(&dir).unwrap();
    script(&dir.join(tool), lines);
    let path = std::env::var_os("PATH").unwrap();
    let dirs: Vec<PathBuf> = [dir, bin_dir().to_owned()].into_iter().chain(std::env::split_paths(&path)).collect();
    command.env("PATH", std::env::join_paths(dirs).unwrap());
}

fn group_killed(mut child: Child) {
    // SAFETY: killpg(2) takes two integers; the group is that of our own child.
    unsafe { libc::killpg(i32::try_from(child.id()).unwrap(), libc::SIGKILL) };
    child.wait().unwrap();
}

/// The steps of a tick are the commands that it runs, and the two halves of a sending. Each counts itself, and the one
/// whose turn it is kills the group of the tick before it goes on (where it still lives: `timeout` and `detach` have
/// left that group).
const STEP: &str = "[ -z \"${JOB_ID-}\" ] || exit 0
    echo step >>count
    [ \"$(grep -c step count)\" -ne \"$STEP\" ] || kill -s KILL -- \"-$(cat group)\"";

/// Whether the tick was killed at its step `step`; if there are fewer, it has ended by itself.
fn killed_at(folder: &Folder, step: usize) -> bool {
    let mut inner = tick(folder);
    for tool in ["watchdog", "sweep", "jobdir", "detach", "mv", "mkdir", "date", "timeout", "ls"] {
        let real = run(folder.command("sh").args(["-c", &format!("command -v {tool}")])).out;
        instead(folder, &mut inner, tool, &format!("cd \"$DIR\" && ./step && exec {} \"$@\"", real.trim_end()));
    }
    script(&folder.path("step"), STEP);
    let mut command = folder.command("sh");
    command.args(["-c", "echo $$ >\"$DIR/group\"; exec \"$0\" \"$DIR\""]).arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("DIR", folder.path("")).env("STEP", step.to_string()).process_group(0);
    let ran = run(&mut command);
    assert!(ran.status == 137 || ran.status == 0, "{ran:?}");
    ran.status == 137
}

/// Kills one tick at one step, lets ticks follow, and looks at what everybody was told; `None`: there is no such step.
fn a_killed_tick(step: usize) -> Option<usize> {
    let folder = consumer();
    script(&folder.path("work"), "echo run >>runs-$JOB_ID; : >deploying; rm deploying; echo {} | jobdir put");
    script(&folder.path("send"), "[ ! -e step ] || ./step; cat >>sent; [ ! -e step ] || ./step");
    // One result has not been sent yet; another was, and its request comes again; a third request is new.
    for id in ["pending", "sent"] {
        folder.claim(&["--id", id]);
        let ran = run(folder.tool("watchdog", ["--job", id, "./work"]).current_dir(folder.path("")));
        assert_eq!(ran.status, 0, "{}", ran.err);
    }
    assert_eq!(folder.sh("echo sent | sweep --ack"), QUIET);
    request(&folder, "sent", "again");
    request(&folder, "new", "abc");

    let killed = killed_at(&folder, step);
    until("what the tick had begun has ended", || folder.living().is_empty());
    fs::remove_file(folder.path("step")).unwrap();
    for _ in 0..2 {
        let ran = run(&mut tick(&folder));
        assert_eq!(ran.status, 0, "step {step}: {}", ran.err);
        let other = ran.err.lines().find(|line| !line.ends_with("it is claimed already"));
        assert_eq!(other, None, "step {step}: no alarm of any kind");
        until("the work has ended", || folder.living().is_empty());
    }
    let told = receipts(&folder);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["new", "pending", "sent"], "step {step}: each has its receipt");
    for (id, receipts) in &told {
        assert_eq!(text(&folder, &format!("runs-{id}")), "run\n", "step {step}: {id} was worked on once");
        for receipt in receipts {
            assert_eq!(receipt["status"], "done", "step {step}: {receipt}");
            assert_eq!(receipt["claim"], receipts[0]["claim"], "step {step}: a duplicate is of the same claim");
        }
    }
    assert_eq!(files(&folder, "inbox"), [""; 0], "step {step}");
    assert_eq!(files(&folder, "archive"), ["new", "sent"], "step {step}");
    assert_eq!(files(&folder, "root/jobs"), [""; 0], "step {step}: nothing is left to send");
    killed.then(|| told.values().map(|receipts| receipts.len() - 1).sum())
}

#[test]
fn at_whatever_step_a_tick_is_killed_every_request_gets_its_receipt() {
    // Two at a time, since this machine may have two cores: the even steps, and the odd ones.
    let run = |first| (first..).step_by(2).map_while(a_killed_tick).collect::<Vec<usize>>();
    let (even, odd) = std::thread::scope(|scope| {
        let even = scope.spawn(|| run(2));
        (run(1), even.join().unwrap())
    });
    let steps = even.len() + odd.len();
    assert!(steps >= 15, "only {steps} steps were found");
    let duplicates: usize = even.iter().chain(&odd).sum();
    assert!(duplicates > 0, "no kill came between a sending and its acknowledgement");
}

#[test]
fn a_tick_returns_while_the_work_goes_on_and_its_budget_kill_does_not_reach_it() {
    let folder = consumer();
    request(&folder, "corr-1", "abc\n");
    // The budget's owner kills the group right after the launch: the tick hangs in its last step.
    script(&folder.path("doctor"), "");
    let mut command = tick(&folder);
    instead(&folder, &mut command, "ls", "touch launched; sleep 60");
    let child = command.process_group(0).spawn().unwrap();
    until("the work has begun", || folder.path("launched").exists() && folder.path("deploying").exists());
    group_killed(child);
    assert_eq!(folder.run("jobdir", ["status", "corr-1"]).out, "running\n");
    // Ticks come and go meanwhile, and say nothing of work that goes on.
    ticks(&folder);
    assert_eq!((text(&folder, "sent").as_str(), folder.word("corr-1").as_str()), ("", "running"));
    touch(&folder, "go");
    assert_eq!(folder.ended("corr-1"), "done");
    assert_eq!(text(&folder, "sent"), "", "the work sends nothing by itself");
    ticks(&folder);
    ticks(&folder);
    assert_eq!(receipt(&folder, "corr-1")["output"]["sha"], "abc");
    assert_eq!(text(&folder, "runs-corr-1"), "run\n");
}

#[test]
fn the_sweep_comes_first_whether_there_are_requests_or_not() {
    let folder = consumer();
    touch(&folder, "go");
    request(&folder, "corr-1", "abc\n");
    ticks(&folder);
    folder.ended("corr-1");
    // Nothing new.
    ticks(&folder);
    receipt(&folder, "corr-1");
    // Something new, which is still there when the older receipt is sent.
    let id = folder.claim(&["--id", "older"]);
    assert_eq!(folder.run("watchdog", ["--job", &id, "true"]).status, 0);
    script(&folder.path("send"), "ls inbox >seen; cat >>sent");
    request(&folder, "corr-2", "def\n");
    ticks(&folder);
    assert_eq!(text(&folder, "seen"), "corr-2\n");
    // A receipt that is refused is told of, keeps no request waiting, and comes again.
    folder.ended("corr-2");
    script(&folder.path("send"), "exit 1");
    request(&folder, "corr-3", "ghi\n");
    let ran = run(&mut tick(&folder));
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("cron-tick: cannot send every receipt: "), "{}", ran.err);
    assert_eq!(folder.ended("corr-3"), "done");
    script(&folder.path("send"), "cat >>sent");
    ticks(&folder);
    assert_eq!(receipt(&folder, "corr-2")["attempt"], 2);
    receipt(&folder, "corr-3");
}

#[test]
fn a_request_is_stored_in_its_job_before_it_leaves_the_inbox() {
    let folder = consumer();
    request(&folder, "corr-1", "the whole request\n");
    // At the moment of the archiving, whatever could be killed then: the job is there, with its request.
    let mut command = tick(&folder);
    instead(&folder, &mut command, "mv", "cp root/jobs/corr-1/input at-archive; /bin/mv \"$@\"");
    assert_eq!(run(&mut command), QUIET);
    assert_eq!(text(&folder, "at-archive"), "the whole request\n");
    assert_eq!((files(&folder, "inbox"), files(&folder, "archive")), (vec![], vec!["corr-1".to_owned()]));
    // An archive that cannot be had costs nothing either: the request stays, and is found to be taken.
    request(&folder, "corr-2", "def\n");
    instead(&folder, &mut command, "mv", "exit 1");
    let ran = run(&mut command);
    assert_eq!((ran.status, folder.word("corr-2").as_str()), (1, "running"));
    assert_eq!(ran.err, "cron-tick: cannot take inbox/corr-2: it stays for the next tick\n");
    assert_eq!(files(&folder, "inbox"), ["corr-2"]);
    let ran = run(&mut tick(&folder));
    assert_eq!((ran.status, files(&folder, "inbox")), (0, vec![]), "{}", ran.err);
    touch(&folder, "go");
    folder.ended("corr-2");
    assert_eq!(text(&folder, "runs-corr-2"), "run\n");
}

#[test]
fn a_request_that_comes_again_is_not_worked_on_again_and_its_receipt_has_the_same_id() {
    let folder = consumer();
    let again = |word: &str| {
        request(&folder, "corr-1", "abc\n");
        let ran = run(&mut tick(&folder));
        assert_eq!((ran.status, ran.out.as_str(), files(&folder, "inbox")), (0, "", vec![]), "{word}: {}", ran.err);
    };
    again("new");
    again("while it runs");
    assert_eq!(text(&folder, "sent"), "");
    touch(&folder, "go");
    assert_eq!(folder.ended("corr-1"), "done");
    again("after its end");
    again("after its receipt");
    let told = receipts(&folder).remove("corr-1").unwrap();
    assert_eq!(told.len(), 3, "one by the sweep, one for each request that came after the end");
    assert!(told.iter().all(|one| one["claim"] == told[0]["claim"] && one["output"]["sha"] == "abc"));
    assert_eq!(text(&folder, "runs-corr-1"), "run\n");
    // Where its receipt cannot be sent again, it stays.
    script(&folder.path("send"), "exit 1");
    request(&folder, "corr-1", "abc\n");
    assert_eq!(run(&mut tick(&folder)).status, 1);
    assert_eq!(files(&folder, "inbox"), ["corr-1"]);
}

#[test]
fn a_claim_that_a_killed_tick_left_behind_is_started_by_the_next() {
    let folder = consumer();
    touch(&folder, "go");
    fs::write(folder.path("request"), "abc\n").unwrap();
    let input = folder.path("request").display().to_string();
    folder.claim(&["--id", "corr-1", "--name", "cron-tick", "--start-within", "1d", "--input", &input]);
    ticks(&folder);
    assert_eq!(folder.ended("corr-1"), "done");
    ticks(&folder);
    assert_eq!(receipt(&folder, "corr-1")["output"]["sha"], "abc");
    // One that waited for longer than it may is told as an error, and not started.
    folder.claim(&["--id", "corr-2", "--name", "cron-tick", "--start-within", "10ms"]);
    until("its window is over", || folder.run("jobdir", ["status", "corr-2"]).out == "unknown\n");
    ticks(&folder);
    assert_eq!(receipt(&folder, "corr-2")["reason"], "never-started");
    assert_eq!(text(&folder, "runs-corr-2"), "");
}

#[test]
fn work_that_crashes_or_dies_is_told_as_an_error() {
    if tests::is_portable("the command hears of the watchdog's death") {
        return;
    }
    let folder = consumer();
    script(&folder.path("work"), "echo boom >&2; exit 9");
    request(&folder, "crashed", "");
    ticks(&folder);
    folder.ended("crashed");
    script(&folder.path("work"), WORK);
    request(&folder, "killed", "");
    ticks(&folder);
    let crashed = receipt(&folder, "crashed");
    assert_eq!(
        (&crashed["status"], &crashed["exit_code"], &crashed["log_tail"]),
        (&"failed".into(), &9.into(), &"boom\n".into())
    );
    // Out of memory, say: worker and watchdog at once.
    until("it works", || folder.path("deploying").exists());
    kill(folder.owner("killed"), libc::SIGKILL);
    until("they are dead", || folder.living().is_empty());
    fs::remove_file(folder.path("deploying")).unwrap();
    ticks(&folder);
    let killed = receipt(&folder, "killed");
    assert_eq!((&killed["status"], &killed["reason"]), (&"unknown".into(), &"worker-died".into()));
    assert!(!killed["error"].as_str().unwrap().is_empty());
    // It comes again, and is answered, not run.
    request(&folder, "killed", "");
    assert_eq!(run(&mut tick(&folder)).status, 0);
    assert_eq!((receipts(&folder)["killed"].len(), text(&folder, "runs-killed").as_str()), (2, "run\n"));
}

#[test]
fn where_nothing_can_be_detached_the_tick_does_the_work_itself() {
    let folder = consumer();
    touch(&folder, "go");
    request(&folder, "corr-1", "abc\n");
    request(&folder, "corr-2", "def\n");
    let mut command = tick(&folder);
    command.env("JOB_HARD_SECS", "20").env("JOB_GRACE_SECS", "1");
    instead(&folder, &mut command, "detach", "echo 'detach: cannot fork: no more processes' >&2; exit 125");
    let ran = run(&mut command);
    assert_eq!((ran.status, ran.err.as_str()), (0, "detach: cannot fork: no more processes\n"));
    assert_eq!((folder.word("corr-1").as_str(), folder.word("corr-2").as_str()), ("claimed", "done"), "one a tick");
    assert_eq!(run(&mut command).status, 0);
    assert_eq!(receipt(&folder, "corr-2")["output"]["sha"], "def");
    assert_eq!(folder.word("corr-1"), "done");
    // Work that does not fit into what is left of the budget is done, and that is said.
    request(&folder, "corr-3", "ghi\n");
    let ran = run(command.env("JOB_HARD_SECS", "600"));
    assert_eq!((ran.status, folder.word("corr-3").as_str()), (0, "done"));
    let warning =
        "cron-tick: warning: request corr-3 runs inside this tick, and may not fit into its budget of 300 s\n";
    assert!(ran.err.ends_with(warning), "{}", ran.err);
}

#[test]
fn a_tick_killed_in_the_work_that_it_does_itself_is_told_as_an_error() {
    if tests::is_portable("the command hears of the watchdog's death") {
        return;
    }
    let folder = consumer();
    request(&folder, "corr-1", "abc\n");
    let mut command = tick(&folder);
    instead(&folder, &mut command, "detach", "exit 125");
    let child = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
    until("it works", || folder.path("deploying").exists());
    group_killed(child);
    until("the work has ended with it", || folder.living().is_empty());
    fs::remove_file(folder.path("deploying")).unwrap();
    ticks(&folder);
    let told = receipt(&folder, "corr-1");
    assert_eq!((&told["status"], &told["reason"]), (&"unknown".into(), &"worker-died".into()));
    assert_eq!(text(&folder, "runs-corr-1"), "run\n", "its side effects are unknown: it is not run again");
}

#[test]
fn work_that_cannot_be_run_is_told_as_an_error_too() {
    let folder = consumer();
    fs::remove_file(folder.path("work")).unwrap();
    request(&folder, "corr-1", "abc\n");
    assert_eq!(run(&mut tick(&folder)).status, 0);
    ticks(&folder);
    assert_eq!(receipt(&folder, "corr-1")["reason"], "spawn-failed");
}

#[test]
fn no_health_alarm_is_raised_in_the_middle_of_a_deploy() {
    if tests::is_portable("the command hears of the watchdog's death") {
        return;
    }
    let folder = consumer();
    ticks(&folder);
    assert_eq!(text(&folder, "checks"), "checked\n", "nothing is in flight");
    request(&folder, "corr-1", "abc\n");
    ticks(&folder);
    until("the system is half changed", || folder.path("deploying").exists());
    for _ in 0..3 {
        ticks(&folder);
    }
    assert_eq!(text(&folder, "checks"), "checked\n");
    touch(&folder, "go");
    assert_eq!(folder.ended("corr-1"), "done");
    ticks(&folder);
    assert_eq!(text(&folder, "checks"), "checked\nchecked\n");
    // An alarm at any other time is one, also where the worker died and left the system so.
    fs::remove_file(folder.path("go")).unwrap();
    request(&folder, "corr-2", "abc\n");
    ticks(&folder);
    until("the system is half changed", || folder.path("deploying").exists());
    kill(folder.owner("corr-2"), libc::SIGKILL);
    until("the work is dead", || folder.living().is_empty());
    let ran = run(&mut tick(&folder));
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert_eq!(ran.err, "cron-tick: cannot pass the health check: FAIL: checksums differ\n");
}

#[test]
fn a_deploy_that_begins_during_the_health_check_raises_no_alarm() {
    let folder = consumer();
    script(&folder.path("doctor"), "touch looking; until [ -e deploying ]; do sleep .02; done; echo FAIL; exit 1");
    let slow = tick(&folder).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    until("it looks", || folder.path("looking").exists());
    request(&folder, "corr-1", "abc\n");
    ticks(&folder);
    let ran = slow.wait_with_output().unwrap();
    assert_eq!((ran.status.code(), String::from_utf8(ran.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn the_arithmetic_is_checked_once_a_tick_against_the_real_budget() {
    let folder = consumer();
    let said = |settings: &[(&str, &str)]| run(tick(&folder).envs(settings.iter().copied()));
    let too_much = |worst: u32, budget: u32| Ran {
        status: 0,
        out: String::new(),
        err: format!("cron-tick: warning: the steps of a tick may take {worst} s, and its budget is {budget} s\n"),
    };
    // 60 + 1 for the sweep, 10 * (2 * 5 + 2) for the requests, 30 + 1 for the doctor.
    assert_eq!(said(&[("TICK_BUDGET", "212")]), QUIET);
    assert_eq!(said(&[("TICK_BUDGET", "211")]), too_much(212, 211));
    assert_eq!(said(&[("TICK_DOCTOR", "120")]), too_much(302, 300), "the default is 300");
    assert_eq!(said(&[("TICK_SEND", "300"), ("TICK_MAX", "1")]), too_much(344, 300));
    assert_eq!(said(&[("TICK_STEP", "20")]), too_much(512, 300));
    // The scheduler's own knob is the budget of everything that it runs; 0 is none.
    assert_eq!(said(&[("HERMES_CRON_TIMEOUT", "100")]), too_much(212, 100));
    assert_eq!(said(&[("HERMES_CRON_TIMEOUT", "100"), ("TICK_BUDGET", "250")]), QUIET);
    assert_eq!(said(&[("HERMES_CRON_TIMEOUT", "0")]), QUIET);
    let ran = said(&[("TICK_BUDGET", "soon")]);
    assert_eq!(
        (ran.status, ran.err.as_str()),
        (0, "cron-tick: warning: TICK_BUDGET: 'soon' is no whole number; it stays 300\n")
    );
}

#[test]
fn every_step_that_a_tick_waits_for_ends_within_its_bound() {
    let folder = consumer();
    let id = folder.claim(&["--id", "pending"]);
    assert_eq!(folder.run("watchdog", ["--job", &id, "true"]).status, 0);
    script(&folder.path("send"), "sleep 60");
    script(&folder.path("doctor"), "sleep 60");
    let mut command = tick(&folder);
    let begun = std::time::Instant::now();
    let ran = run(command.envs([("TICK_SEND", "1"), ("TICK_DOCTOR", "1")]));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("cron-tick: cannot send every receipt: "), "{}", ran.err);
    assert!(ran.err.ends_with("cron-tick: cannot pass the health check: not done within 1 s\n"), "{}", ran.err);
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn a_file_that_is_no_request_is_told_of_and_keeps_no_other_waiting() {
    let folder = consumer();
    touch(&folder, "go");
    touch(&folder, "inbox/.half");
    fs::create_dir(folder.path("inbox/dir")).unwrap();
    fs::write(folder.path("inbox/ no id"), "").unwrap();
    request(&folder, "corr-1", "abc\n");
    let ran = run(tick(&folder).env("TICK_MAX", "1"));
    assert_eq!(ran.status, 1);
    assert!(ran.err.ends_with("cron-tick: cannot take inbox/ no id: it stays for the next tick\n"), "{}", ran.err);
    assert_eq!(folder.ended("corr-1"), "done");
    assert_eq!(files(&folder, "inbox"), [" no id", "dir"]);
    assert!(folder.path("inbox/.half").exists());
}

#[test]
fn no_more_is_begun_in_one_tick_than_the_arithmetic_knows_of() {
    let folder = consumer();
    touch(&folder, "go");
    for id in ["a", "b", "c"] {
        request(&folder, id, "");
    }
    for left in [vec!["c"], vec![]] {
        assert_eq!(run(tick(&folder).env("TICK_MAX", "2")), QUIET);
        assert_eq!(files(&folder, "inbox"), left);
    }
}

#[test]
fn a_tick_needs_nothing_of_its_environment_but_a_path() {
    let folder = consumer();
    script(&folder.path("work"), "env >environment; pwd >directory; echo {} | jobdir put");
    request(&folder, "corr-1", "");
    let full = tick(&folder);
    let path = full.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let mut bare = Command::new(full.get_program());
    assert_eq!(run(bare.args(full.get_args()).env_clear().env("PATH", path).current_dir("/")), QUIET);
    assert_eq!(folder.ended("corr-1"), "done");
    assert!(!text(&folder, "environment").contains("HOME="));
    assert_eq!(Path::new(text(&folder, "directory").trim_end()), folder.path("").canonicalize().unwrap());
    ticks(&folder);
    receipt(&folder, "corr-1");
}

#[test]
fn a_wrong_call_is_2_and_makes_nothing() {
    let folder = Folder::new();
    let mut command = tick(&folder);
    let ran = run(command.arg("more"));
    assert_eq!((ran.status, ran.err.as_str()), (2, "usage: cron-tick DIR\n"));
    assert_eq!(files(&folder, ""), [""; 0]);
}
