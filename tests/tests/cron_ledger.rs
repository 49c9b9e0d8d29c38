//! `examples/cron-ledger`: cron jobs that are judged by their silence, and a history that survives everything.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tests::{Folder, Ran, kill, run, until};

fn ledger(folder: &Folder, words: &[&str]) -> Command {
    let mut command = folder.command(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cron-ledger"));
    command.args(words).current_dir(folder.path("")).env("TZ", "UTC0");
    for name in ["HERMES_CRON_TIMEOUT", "JOB_IDLE_SECS", "JOB_HARD_SECS", "JOB_GRACE_SECS"] {
        command.env_remove(name);
    }
    command
}

/// What a call says, which must be well.
fn said(command: &mut Command) -> String {
    let ran = run(command);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{command:?}");
    ran.out
}

/// Fires a slot of `digest`; its id.
fn fire(folder: &Folder, slot: &str, line: &str) -> String {
    let out = said(&mut ledger(folder, &["run", "digest", "--slot", slot, "--", "sh", "-c", line]));
    assert_eq!(out, format!("digest-{slot}\n"));
    out.trim_end().to_owned()
}

/// The cells of each row.
fn rows(out: &str) -> Vec<Vec<String>> {
    out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// The row of `runs` for this id: status, reason, when, how long.
fn attempt(folder: &Folder, id: &str) -> [String; 4] {
    let all = rows(&said(&mut ledger(folder, &["runs", "digest"])));
    let row = all.into_iter().find(|row| row[0] == id).expect("a row");
    row[1..].to_vec().try_into().unwrap()
}

/// `status` with this crontab: its exit status, and its rows.
fn status(folder: &Folder, crontab: &str) -> (i32, Vec<Vec<String>>) {
    fs::write(folder.path("crontab"), crontab).unwrap();
    let ran = run(&mut ledger(folder, &["status", "crontab"]));
    assert_eq!(ran.err, "");
    (ran.status, rows(&ran.out))
}

fn cells(row: &[&str]) -> Vec<String> {
    row.iter().map(|cell| (*cell).to_owned()).collect()
}

fn text(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).unwrap_or_default()
}

fn json(folder: &Folder, id: &str, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.file(id, name)).unwrap()).unwrap()
}

/// Changes a field of a job's file, as time or another host would have.
fn change(folder: &Folder, id: &str, name: &str, field: &str, value: &str) {
    let mut old = json(folder, id, name);
    old[field] = value.into();
    fs::write(folder.file(id, name), old.to_string()).unwrap();
}

// The fire.

#[test]
fn two_schedulers_cannot_fire_one_slot_twice() {
    let folder = Folder::new();
    let words = ["run", "digest", "--slot", "s1", "--", "sh", "-c", "echo ran >>runs"];
    let schedulers: Vec<_> = (0..8)
        .map(|_| ledger(&folder, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut fired = 0;
    for scheduler in schedulers {
        let ran = scheduler.wait_with_output().unwrap();
        match ran.status.code().unwrap() {
            0 => fired += 1,
            3 => assert_eq!(ran.stderr, b"jobdir: cannot claim job digest-s1: it is claimed already\n"),
            other => panic!("status {other}: {}", String::from_utf8_lossy(&ran.stderr)),
        }
    }
    assert_eq!(fired, 1);
    assert_eq!(folder.ended("digest-s1"), "done");
    assert_eq!(text(&folder, "runs"), "ran\n");
    // The next slot is another fire.
    fire(&folder, "s2", "echo ran >>runs");
    assert_eq!(folder.ended("digest-s2"), "done");
    assert_eq!(text(&folder, "runs"), "ran\nran\n");
}

#[test]
fn without_a_name_the_slot_is_this_minute() {
    let folder = Folder::new();
    let minute = || run(folder.command("date").args(["-u", "+%Y%m%dT%H%MZ"])).out;
    let before = minute();
    let id = said(&mut ledger(&folder, &["run", "digest", "--", "true"]));
    let slot = id.strip_prefix("digest-").unwrap();
    assert!(slot == before || slot == minute(), "{id}");
}

#[test]
fn a_fire_outlives_the_scheduler_that_is_killed() {
    let folder = Folder::new();
    let mut command = folder.command("sh");
    let line = "\"$@\" && touch launched; sleep 60";
    let inner =
        ledger(&folder, &["run", "digest", "--slot", "1", "--", "sh", "-c", "until [ -e go ]; do sleep .02; done"]);
    command.args(["-c", line, "sh"]).arg(inner.get_program()).args(inner.get_args());
    let mut scheduler = command.current_dir(folder.path("")).stdout(Stdio::null()).process_group(0).spawn().unwrap();
    until("it is launched", || folder.path("launched").exists());
    // SAFETY: killpg(2) takes two integers; the group is that of our own child.
    unsafe { libc::killpg(i32::try_from(scheduler.id()).unwrap(), libc::SIGKILL) };
    scheduler.wait().unwrap();
    assert_eq!(attempt(&folder, "digest-1")[0], "running");
    fs::write(folder.path("go"), "").unwrap();
    assert_eq!(folder.ended("digest-1"), "done");
}

#[test]
fn what_cannot_be_started_is_told_and_in_the_history() {
    let folder = Folder::new();
    let ran = run(&mut ledger(&folder, &["run", "digest", "--slot", "1", "--", "no-such-command"]));
    assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (127, "", 1), "{}", ran.err);
    assert_eq!(attempt(&folder, "digest-1")[..2], ["failed", "spawn-failed"]);
}

#[test]
fn the_knob_is_silence_where_0_is_unlimited_and_a_bad_value_is_600() {
    let folder = Folder::new();
    let mut slot = 0;
    let mut idle = |knobs: &[(&str, &str)]| {
        slot += 1;
        let slot = slot.to_string();
        let ran = run(ledger(&folder, &["run", "digest", "--slot", &slot, "--", "true"]).envs(knobs.iter().copied()));
        assert_eq!(ran.status, 0, "{}", ran.err);
        let limits = &json(&folder, ran.out.trim_end(), "meta.json")["limits"];
        assert_eq!(limits["hard_s"], Value::Null, "no run is too long");
        (limits["idle_s"].as_f64(), ran.err)
    };
    let quiet = String::new();
    assert_eq!(idle(&[]), (Some(600.0), quiet.clone()));
    assert_eq!(idle(&[("JOB_IDLE_SECS", "1800")]), (Some(1800.0), quiet.clone()));
    assert_eq!(idle(&[("HERMES_CRON_TIMEOUT", "1800")]), (Some(1800.0), quiet.clone()));
    assert_eq!(idle(&[("HERMES_CRON_TIMEOUT", "1800"), ("JOB_IDLE_SECS", "90")]), (Some(90.0), quiet.clone()));
    assert_eq!(idle(&[("JOB_IDLE_SECS", "0")]), (None, quiet.clone()));
    assert_eq!(idle(&[("HERMES_CRON_TIMEOUT", "0")]), (None, quiet));
    for bad in ["soon", "-5", ""] {
        let (idle, warning) = idle(&[("HERMES_CRON_TIMEOUT", bad)]);
        assert_eq!((idle, warning.lines().count()), (Some(600.0), 1), "{warning}");
        assert!(
            warning.starts_with("jobdir: warning: JOB_IDLE_SECS: ") && warning.contains("stays 600 s"),
            "{warning}"
        );
    }
}

#[test]
fn a_scripts_own_timeout_is_its_hard_limit() {
    let folder = Folder::new();
    let words = ["run", "digest", "--slot", "1", "--", "sh", "-c", "while echo busy; do sleep .05; done"];
    said(ledger(&folder, &words).env("JOB_HARD_SECS", "0.5").env("JOB_GRACE_SECS", "0"));
    assert_eq!(folder.ended("digest-1"), "timeout");
    assert_eq!(attempt(&folder, "digest-1")[..2], ["timeout", "hard"]);
    let limits = &json(&folder, "digest-1", "meta.json")["limits"];
    assert_eq!((limits["hard_s"].as_f64(), limits["supervisor_hard_s"].as_f64()), (Some(0.5), Some(25.5)));
}

#[test]
fn a_ledger_needs_nothing_of_its_environment_but_a_path() {
    let folder = Folder::new();
    let full = ledger(&folder, &["run", "digest", "--slot", "1", "--", "true"]);
    let path = full.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let mut bare = Command::new(full.get_program());
    bare.args(full.get_args()).env_clear().env("PATH", path).env("JOBDIR_ROOT", folder.root()).current_dir("/");
    assert_eq!(said(&mut bare), "digest-1\n");
    assert_eq!(folder.ended("digest-1"), "done");
    assert_eq!(attempt(&folder, "digest-1")[0], "done");
}

// The three situations: work that goes on, work that is stuck, work without a stamp.

#[test]
fn work_that_goes_on_keeps_its_claim_however_long_it_takes() {
    let folder = Folder::new();
    // Beyond every window that knows of time: idle 1 s, and three times that for the supervisor.
    let line = "n=0; while [ $n -lt 18 ]; do echo tool $n; sleep .1; n=$((n + 1)); done
        while [ $n -lt 36 ]; do jobdir touch \"tool $n\"; sleep .1; n=$((n + 1)); done";
    let mut command = ledger(&folder, &["run", "digest", "--slot", "1", "--", "sh", "-c", line]);
    said(command.env("JOB_IDLE_SECS", "1").env("JOB_GRACE_SECS", "0"));
    let mut looks = 0;
    while folder.word("digest-1") == "running" {
        let (alarm, rows) = status(&folder, "");
        assert_eq!((alarm, rows.len(), rows[0][0].as_str()), (0, 1, "tick"), "{rows:?}");
        let now = attempt(&folder, "digest-1");
        assert!(["running", "done"].contains(&now[0].as_str()), "{now:?}");
        looks += 1;
    }
    assert!(looks > 1);
    let [word, reason, _, took] = attempt(&folder, "digest-1");
    assert_eq!((word.as_str(), reason.as_str()), ("done", "exited"));
    assert!(took.trim_end_matches('s').parse::<u32>().unwrap() >= 2, "{took}");
}

#[test]
fn work_that_is_stuck_is_released_once_its_silence_is_too_long() {
    let folder = Folder::new();
    let stuck = |slot: &str| {
        let words = ["run", "digest", "--slot", slot, "--", "sh", "-c", "echo begun; exec sleep 60"];
        said(ledger(&folder, &words).env("JOB_IDLE_SECS", "0.5").env("JOB_GRACE_SECS", "0"));
    };
    stuck("1");
    assert_eq!(folder.ended("digest-1"), "timeout");
    assert_eq!(attempt(&folder, "digest-1")[..2], ["timeout", "idle"]);
    assert_eq!(folder.living(), [0; 0]);
    // Even where whoever should notice is stuck itself, although its process is alive.
    stuck("2");
    kill(folder.owner("digest-2"), libc::SIGSTOP);
    until("it is released", || attempt(&folder, "digest-2")[0] != "running");
    assert_eq!(attempt(&folder, "digest-2")[..2], ["unknown", "wedged"]);
    let (alarm, rows) = status(&folder, "");
    assert_eq!((alarm, &rows[1]), (1, &cells(&["unknown", "digest-2", "wedged"])));
    kill(folder.owner("digest-2"), libc::SIGKILL);
}

#[test]
fn work_without_any_stamp_is_judged_by_how_long_it_runs() {
    let folder = Folder::new();
    let words = ["run", "digest", "--slot", "1", "--", "sleep", "60"];
    let begun = Instant::now();
    said(ledger(&folder, &words).env("JOB_IDLE_SECS", "1").env("JOB_GRACE_SECS", "0"));
    assert_eq!(folder.ended("digest-1"), "timeout");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(attempt(&folder, "digest-1")[..2], ["timeout", "idle"]);
    assert_eq!(folder.record("digest-1")["progress_at"], Value::Null);
}

// The history.

#[test]
fn the_history_survives_a_kill_of_everything_and_nothing_is_run_again_by_itself() {
    let folder = Folder::new();
    fire(&folder, "1", "echo 1 >>runs");
    fire(&folder, "2", "echo 2 >>runs; exit 7");
    folder.ended("digest-1");
    folder.ended("digest-2");
    fire(&folder, "3", "echo 3 >>runs; [ -e go ] || exec sleep 60");
    fire(&folder, "4", "echo 4 >>runs; [ -e go ] || exec sleep 60");
    until("all run", || text(&folder, "runs").lines().count() == 4);
    let before = rows(&said(&mut ledger(&folder, &["runs", "digest"])));
    until("all are dead", || {
        folder.living().into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
        folder.living().is_empty()
    });
    fs::write(folder.path("go"), "").unwrap();
    let after = rows(&said(&mut ledger(&folder, &["runs", "digest"])));
    let words: Vec<_> = after.iter().map(|row| (row[0].as_str(), row[1].as_str(), row[2].as_str())).collect();
    let lost = |id| (id, "unknown", "worker-died");
    let all = [lost("digest-4"), lost("digest-3"), ("digest-2", "failed", "exited"), ("digest-1", "done", "exited")];
    assert_eq!(words, all);
    assert_eq!((&after[2], &after[3]), (&before[2], &before[3]), "what had ended is as it was");
    // Whoever looks, ticks, sweeps or fires: what was lost is not run again.
    for _ in 0..2 {
        let (alarm, rows) = status(&folder, "");
        assert_eq!(alarm, 1);
        assert_eq!(
            rows[1..],
            [cells(&["unknown", "digest-4", "worker-died"]), cells(&["unknown", "digest-3", "worker-died"])]
        );
        said(&mut ledger(&folder, &["list", "/dev/null"]));
        assert_eq!(folder.run("sweep", [""; 0]).status, 0);
    }
    assert_eq!(
        run(&mut ledger(&folder, &["run", "digest", "--slot", "3", "--", "sh", "-c", "echo 3 >>runs"])).status,
        3
    );
    fire(&folder, "5", "echo 5 >>runs");
    folder.ended("digest-5");
    assert_eq!(text(&folder, "runs").lines().filter(|line| ["3", "4"].contains(line)).count(), 2);
    // By hand it is; the lost attempt stays in the history as what it was, and nobody has to look at it any more.
    assert_eq!(said(&mut ledger(&folder, &["retry", "digest-3"])), "digest-3.retry\n");
    assert_eq!(folder.ended("digest-3.retry"), "done");
    assert_eq!(text(&folder, "runs").lines().filter(|line| *line == "3").count(), 2);
    assert_eq!(attempt(&folder, "digest-3")[0], "unknown");
    assert_eq!(status(&folder, "").1[1..], [cells(&["unknown", "digest-4", "worker-died"])]);
    // Twice by mistake is once; and an acknowledgement is a look, too.
    assert_eq!(run(&mut ledger(&folder, &["retry", "digest-3"])).status, 3);
    assert_eq!(folder.sh("echo digest-4 | sweep --ack").status, 0);
    assert_eq!(status(&folder, "").0, 0);
    assert_eq!(attempt(&folder, "digest-4")[0], "unknown", "delivered is not forgotten");
}

#[test]
fn runs_tells_how_each_attempt_ended_and_how_long_it_ran() {
    let folder = Folder::new();
    assert_eq!(said(&mut ledger(&folder, &["runs", "digest"])), "");
    for slot in ["1", "2", "3"] {
        fire(&folder, slot, "exit 0");
        folder.ended(&format!("digest-{slot}"));
    }
    said(&mut ledger(&folder, &["run", "other", "--", "true"]));
    // Moved to an earlier start: two hours and two minutes, the number that the old bound is known by.
    let ended = folder.record("digest-2")["ended_at"].as_str().unwrap().to_owned();
    let line = format!("date -u -d '{ended} - 122 minutes' +%Y-%m-%dT%H:%M:%S.000Z");
    let started = folder.sh(&line).out;
    change(&folder, "digest-2", "owner.json", "started_at", started.trim_end());
    assert_eq!(attempt(&folder, "digest-2"), ["done", "exited", started.trim_end(), "2h02m"]);
    let ids = |words: &[&str]| {
        let all = rows(&said(&mut ledger(&folder, words)));
        all.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["runs", "digest"]), ["digest-3", "digest-2", "digest-1"]);
    assert_eq!(ids(&["runs", "digest", "--limit", "2"]), ["digest-3", "digest-2"]);
    assert_eq!(ids(&["history", "digest", "--limit", "2"]), ["digest-3", "digest-2"]);
    assert_eq!(ids(&["runs", "digest", "--status", "unknown"]), [""; 0]);
}

#[test]
fn a_retry_runs_the_same_command_to_the_letter() {
    let folder = Folder::new();
    let odd = [
        "sh",
        "-c",
        "printf '%s|' \"$@\" >>args; [ -e go ] || exit 1",
        "sh",
        "a b",
        "it's",
        "\"$HOME\"",
        "",
        "x\ny",
        "--",
    ];
    said(&mut ledger(&folder, &[&["run", "digest", "--slot", "1", "--"][..], &odd].concat()));
    assert_eq!(folder.ended("digest-1"), "failed");
    let once = text(&folder, "args");
    assert_eq!(once, "a b|it's|\"$HOME\"||x\ny|--|");
    said(&mut ledger(&folder, &["retry", "digest-1"]));
    assert_eq!(folder.ended("digest-1.retry"), "failed");
    assert_eq!(text(&folder, "args"), once.repeat(2));
    // A retry can be retried.
    fs::write(folder.path("go"), "").unwrap();
    assert_eq!(said(&mut ledger(&folder, &["retry", "digest-1.retry"])), "digest-1.retry.retry\n");
    assert_eq!(folder.ended("digest-1.retry.retry"), "done");
}

#[test]
fn only_an_attempt_that_has_ended_can_be_retried() {
    let folder = Folder::new();
    fire(&folder, "1", "exec sleep 60");
    let refused = |id: &str| {
        let ran = run(&mut ledger(&folder, &["retry", id]));
        assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1), "{}", ran.err);
        ran.status
    };
    assert_eq!(refused("digest-1"), 75);
    assert_eq!(refused("digest-2"), 66);
    let id = folder.claim(&["--id", "stranger"]);
    assert_eq!(folder.run("watchdog", ["--job", &id, "true"]).status, 0);
    assert_eq!(refused("stranger"), 66);
}

// The ticking.

#[test]
fn the_ticking_is_alive_while_every_due_fire_was_claimed() {
    let folder = Folder::new();
    let crontab = "MAILTO=me\n# 0 0 * * * cron-ledger run commented -- x\n* * * * * /opt/cron-ledger run digest -- x\n";
    let (alarm, rows) = status(&folder, crontab);
    assert_eq!((alarm, &rows[0]), (1, &cells(&["missed", "-", "no tick ever"])));
    assert_eq!(
        (rows[1][..2].to_vec(), rows[2][..2].to_vec()),
        (cells(&["next", "digest"]), cells(&["missed", "digest"]))
    );
    assert_eq!(rows.len(), 3, "{rows:?}");
    fire(&folder, "1", "true");
    folder.ended("digest-1");
    let (alarm, rows) = status(&folder, crontab);
    assert_eq!((alarm, rows.len(), rows[0][..2].to_vec()), (0, 2, cells(&["tick", "digest"])), "{rows:?}");
    assert!(rows[0][2].ends_with("s ago"), "{rows:?}");
    // The scheduler has been dead for two days; a retry by hand is no tick.
    change(
        &folder,
        "digest-1",
        "meta.json",
        "claimed_at",
        folder.sh("date -u -d '2 days ago' +%FT%T.000Z").out.trim_end(),
    );
    said(&mut ledger(&folder, &["retry", "digest-1"]));
    let (alarm, rows) = status(&folder, crontab);
    assert_eq!((alarm, &rows[0]), (1, &cells(&["tick", "digest", "48h00m ago"])));
    assert_eq!(rows[2][..2], cells(&["missed", "digest"]));
    // A claim that came as soon as it was due is in time; looked at within one minute.
    until("a look within one minute", || {
        let minute = || folder.sh("date -u -d '-1 minute' +%FT%H:%M:00.001Z").out;
        let before = minute();
        change(&folder, "digest-1", "meta.json", "claimed_at", before.trim_end());
        let (alarm, rows) = status(&folder, crontab);
        assert!(alarm == 0 || before != minute(), "{rows:?}");
        alarm == 0
    });
    // Once a year is not late.
    change(
        &folder,
        "digest-1",
        "meta.json",
        "claimed_at",
        folder.sh("date -u -d '2 days ago' +%FT%T.000Z").out.trim_end(),
    );
    let month = folder.sh("date -u -d '40 days ago' '+0 0 %d %m * cron-ledger run digest -- x'").out;
    assert_eq!(status(&folder, &month).0, 0);
}

#[test]
fn what_is_overdue_and_cannot_be_judged_from_here_is_an_alarm() {
    let folder = Folder::new();
    let words = ["run", "digest", "--slot", "1", "--", "sh", "-c", "exec sleep 60"];
    said(ledger(&folder, &words).env("JOB_IDLE_SECS", "0.2").env("JOB_GRACE_SECS", "0").env("JOBDIR_SYNC", "0"));
    kill(folder.owner("digest-1"), libc::SIGSTOP);
    for name in ["meta.json", "owner.json"] {
        change(&folder, "digest-1", name, "boot_id", "00000000-0000-4000-8000-000000000000");
        change(&folder, "digest-1", name, "host", "elsewhere");
        change(&folder, "digest-1", name, "machine_id", "0123456789abcdef0123456789abcdef");
    }
    until("it is overdue", || status(&folder, "").0 == 1);
    let (_, rows) = status(&folder, "");
    assert_eq!((rows[1][..2].to_vec(), rows[1][2].starts_with("silent for ")), (cells(&["overdue", "digest-1"]), true));
    assert_eq!(folder.word("digest-1"), "running");
}

#[test]
fn list_tells_the_last_status_and_the_next_fire_of_each_name() {
    let folder = Folder::new();
    fire(&folder, "1", "exit 7");
    folder.ended("digest-1");
    fire(&folder, "2", "exit 0");
    folder.ended("digest-2");
    let crontab = "0 0 1 1 * cron-ledger run yearly -- x\n@weekly cron-ledger run digest --slot w -- x\n";
    fs::write(folder.path("crontab"), crontab).unwrap();
    let rows = rows(&said(ledger(&folder, &["list", "-"]).stdin(fs::File::open(folder.path("crontab")).unwrap())));
    let claimed = json(&folder, "digest-2", "meta.json")["claimed_at"].as_str().unwrap().to_owned();
    assert_eq!(rows[0][..4], cells(&["digest", "done", "exited", &claimed]));
    assert!(rows[0][4].ends_with(" 00:00"), "{rows:?}");
    assert_eq!(rows[1][..4], cells(&["yearly", "never", "-", "-"]));
    assert!(rows[1][4].ends_with("-01-01 00:00"), "{rows:?}");
    // Without a file it is the crontab of whoever asks.
    fs::create_dir(folder.path("bin")).unwrap();
    assert_eq!(
        folder
            .sh("cd \"$JOBDIR_ROOT/../bin\" && echo '[ \"$*\" != -l ] || cat crontab' >crontab && chmod +x crontab")
            .status,
        0
    );
    let mut command = ledger(&folder, &["list"]);
    let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let dirs = std::iter::once(folder.path("bin")).chain(std::env::split_paths(&path));
    assert_eq!(self::rows(&said(command.env("PATH", std::env::join_paths(dirs).unwrap()))), rows);
}

/// A minute in UTC, as crontab lines know it.
struct Minute {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    weekday: i64,
}

impl Minute {
    /// From minutes since 1970: the calendar after Howard Hinnant's `civil_from_days`.
    fn at(minutes: i64) -> Minute {
        let (days, minute_of_day) = (minutes.div_euclid(1440), minutes.rem_euclid(1440));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march = (5 * of_year + 2) / 153;
        let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute) = (minute_of_day / 60, minute_of_day % 60);
        Minute { year, month, day, hour, minute, weekday: (days + 4).rem_euclid(7) }
    }
}

#[test]
fn what_fires_next_is_what_the_crontab_line_says() {
    type Fits = fn(&Minute) -> bool;
    let lines: [(&str, Fits); 12] = [
        ("* * * * *", |_| true),
        ("*/5 * * * *", |m| m.minute % 5 == 0),
        ("0 3 * * 1", |m| (m.minute, m.hour, m.weekday) == (0, 3, 1)),
        ("0 3 * * Mon", |m| (m.minute, m.hour, m.weekday) == (0, 3, 1)),
        ("59 23 * * 7", |m| (m.minute, m.hour, m.weekday) == (59, 23, 0)),
        ("30 4 1,15 * 5", |m| (m.minute, m.hour) == (30, 4) && (m.day == 1 || m.day == 15 || m.weekday == 5)),
        ("30 4 13 * *", |m| (m.minute, m.hour, m.day) == (30, 4, 13)),
        ("30 4 */2 * 5", |m| (m.minute, m.hour) == (30, 4) && m.day % 2 == 1 && m.weekday == 5),
        ("15 10-14/2 * jan-mar 1-5", |m| {
            m.minute == 15 && [10, 12, 14].contains(&m.hour) && m.month <= 3 && (1..=5).contains(&m.weekday)
        }),
        ("7/20 * 31 5,8,oct *", |m| [7, 27, 47].contains(&m.minute) && m.day == 31 && [5, 8, 10].contains(&m.month)),
        ("@monthly", |m| (m.minute, m.hour, m.day) == (0, 0, 1)),
        ("@hourly", |m| m.minute == 0),
    ];
    let folder = Folder::new();
    let crontab: String =
        lines.iter().enumerate().map(|(n, (line, _))| format!("{line} cron-ledger run n{n:02} -- x\n")).collect();
    fs::write(folder.path("crontab"), crontab).unwrap();
    let now =
        || i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap() / 60;
    // A quarter of an hour is no time zone's boundary, but is one's: Kathmandu. There cron fires by Kathmandu's clock.
    for (zone, ahead) in [("UTC0", 0), ("XXX-05:45", 345), ("XXX+03:30", -210)] {
        let before = now();
        let out = said(ledger(&folder, &["list", "crontab"]).env("TZ", zone));
        let after = now();
        let next = |from: i64, fits: Fits| {
            let minutes = (from + ahead + 1..).map(Minute::at);
            let Minute { year, month, day, hour, minute, .. } =
                minutes.take(366 * 1440).find(fits).expect("within a year");
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
        };
        for (row, (line, fits)) in rows(&out).iter().zip(&lines) {
            assert!(row[4] == next(before, *fits) || row[4] == next(after, *fits), "{zone}: {line}: {row:?}");
        }
        assert_eq!(out.lines().count(), lines.len());
    }
}

#[test]
fn a_crontab_line_that_cannot_be_read_is_an_alarm_and_stops_no_other() {
    let folder = Folder::new();
    fire(&folder, "1", "true");
    folder.ended("digest-1");
    let good = "@reboot cron-ledger run boot -- x\n* * * * * cron-ledger run digest -- x\n";
    for bad in
        ["H * * * *", "61 * * * *", "0 25 * * *", "0 0 0 * *", "0 0 * jam *", "5-3 * * * *", "1, * * * *", "@soon"]
    {
        let (alarm, rows) = status(&folder, &format!("{bad} cron-ledger run odd -- x\n{good}"));
        let missed: Vec<_> = rows.iter().filter(|row| row[0] == "missed").collect();
        assert_eq!((alarm, missed), (1, vec![&cells(&["missed", "odd", "its line cannot be read"])]), "{bad}");
        assert!(rows.iter().any(|row| row[..2] == cells(&["next", "digest"])), "{bad}: {rows:?}");
    }
    // Neither is one that is not there an all-clear.
    let ran = run(&mut ledger(&folder, &["status", "no-such-file"]));
    assert_eq!((ran.status, ran.out.as_str()), (125, ""));
    assert!(ran.err.ends_with("cron-ledger: cannot read the crontab: see above\n"), "{}", ran.err);
}

#[test]
fn a_root_that_cannot_be_read_is_no_all_clear() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    let ran = run(ledger(&folder, &["status", "/dev/null"]).env("JOBDIR_ROOT", folder.path("file")));
    assert_ne!(ran.status, 0);
    assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1), "{}", ran.err);
}

#[test]
fn a_wrong_call_is_2_and_claims_nothing() {
    let folder = Folder::new();
    for words in [
        &[][..],
        &["fly"],
        &["run"],
        &["run", "x"],
        &["run", "x", "--"],
        &["run", "x", "true"],
        &["runs"],
        &["retry"],
        &["run", "x", "--slot", "", "--", "true"],
        &["run", "x", "--slot"],
    ] {
        let Ran { status, out, err } = run(&mut ledger(&folder, words));
        assert_eq!((status, out.as_str(), err.lines().count()), (2, "", 1), "{words:?}: {err}");
        assert!(err.starts_with("cron-ledger: "), "{err}");
    }
    assert!(!folder.root().exists());
    assert!(said(&mut ledger(&folder, &["--help"])).contains("usage: cron-ledger run NAME"));
}
