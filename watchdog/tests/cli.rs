//! The tool as its users meet it: every flag, every exit status, and what stands on the disk afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tests::{Folder, Ran, bin, is_alive, kill, pid_in, said, state, status_of, text, until};

/// A command that runs, with both its outputs in files: nobody who keeps them open holds the test up.
struct Running {
    child: Child,
    files: [PathBuf; 2],
    since: Instant,
}

impl Running {
    fn start(folder: &Folder, command: &mut Command) -> Running {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let files = ["out", "err"].map(|name| folder.path(format!(".{name}.{count}")));
        let [out, err] = [0, 1].map(|at| File::create(&files[at]).unwrap());
        // What the runner of the tests left open is not what the tests are about.
        // SAFETY: close_range(2) with three integers.
        unsafe {
            command.pre_exec(|| {
                libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed());
                Ok(())
            });
        }
        let since = Instant::now();
        Running { child: command.stdout(out).stderr(err).spawn().unwrap(), files, since }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits for its end, for at most 20 seconds.
    fn end(mut self) -> Ran {
        until("the command has ended", || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        let [out, err] = self.files.map(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned());
        Ran { status: status_of(status), out, err }
    }

    /// The same, and how long it took.
    fn timed(self) -> (Ran, Duration) {
        let since = self.since;
        (self.end(), since.elapsed())
    }
}

/// A watchdog with these words.
fn start(folder: &Folder, words: &[&str]) -> Running {
    Running::start(folder, &mut folder.tool("watchdog", words))
}

/// A watchdog around `sh -c script`.
fn script(folder: &Folder, words: &[&str], script: &str) -> Running {
    let words: Vec<&str> = words.iter().copied().chain(["--", "sh", "-c", script]).collect();
    Running::start(folder, folder.tool("watchdog", words).current_dir(folder.path("")))
}

/// A line of sh in the folder, with the tools in its PATH.
fn sh(folder: &Folder, line: &str) -> Running {
    Running::start(folder, folder.command("sh").args(["-c", line]).current_dir(folder.path("")))
}

/// Claims, runs under a watchdog in the foreground, and returns how that ended and the record.
fn job(folder: &Folder, claim: &[&str], words: &[&str], line: &str) -> (Ran, Value) {
    let id = folder.claim(claim);
    let words: Vec<&str> = ["--job", &id].into_iter().chain(words.iter().copied()).collect();
    let ran = script(folder, &words, line).end();
    (ran, folder.record(&id))
}

/// The words of a record that tell its end.
fn verdict(record: &Value) -> (&str, &str, &Value, &Value) {
    let word = |key: &str| record[key].as_str().unwrap();
    (word("status"), word("reason"), &record["exit_code"], &record["signal"])
}

// Without a job: a timeout that measures silence.

#[test]
fn its_statuses_are_those_of_timeout() {
    let folder = Folder::new();
    fs::write(folder.path("plain"), "no program\n").unwrap();
    let plain = folder.path("plain").display().to_string();
    let shell = |line: &str| vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
    let lines = [
        (0, shell("exit 0")),
        (1, shell("exit 1")),
        (7, shell("exit 7")),
        (255, shell("exit 255")),
        (143, shell("kill -TERM $$")),
        (137, shell("kill -KILL $$")),
        (139, shell("ulimit -c 0; kill -SEGV $$")),
        (124, vec!["sleep".into(), "30".into()]),
        (126, vec![plain]),
        (127, vec!["no-such-program-anywhere".into()]),
    ];
    for (status, line) in lines {
        let ours = Running::start(&folder, folder.tool("watchdog", ["--hard", "300ms", "--"]).args(&line)).end();
        let theirs = Running::start(&folder, folder.command("timeout").arg("0.3").args(&line)).end();
        assert_eq!((ours.status, theirs.status), (status, status), "{line:?}: {}", ours.err);
        assert_eq!(ours.err.lines().count(), usize::from(status == 126 || status == 127), "{}", ours.err);
        assert!(ours.err.is_empty() || ours.err.starts_with("watchdog: cannot "), "{}", ours.err);
        assert_eq!(ours.out, "");
    }
}

#[test]
fn a_wrong_call_is_125_and_says_why_on_one_line() {
    let folder = Folder::new();
    for words in [
        &[][..],
        &["--"],
        &["--hard", "1"],
        &["--idle", "1", "true"],
        &["--capture", "true"],
        &["--require-output", "true"],
        &["--max-output", "5", "true"],
        &["--job", "j", "--idle", "1", "true"],
        &["--job", "j", "--hard", "1", "true"],
        &["--job", "j", "--grace", "1", "true"],
        &["--job", "j", "--log", "f", "true"],
        &["--hard", "-1", "true"],
        &["--hard", "nan", "true"],
        &["--hard", "inf", "true"],
        &["--hard", "1x", "true"],
        &["--hard", "", "true"],
        &["--grace", "5 s", "true"],
        &["--job", "j", "--max-output", "0", "true"],
        &["--no-such-option", "true"],
        &["--log"],
    ] {
        let ran = start(&folder, words).end();
        assert_eq!((ran.status, ran.out.as_str()), (125, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.starts_with("watchdog: ") && ran.err.contains("--help"), "{words:?}: {}", ran.err);
    }
    let ran = start(&folder, &["--log", "/no/such/dir/log", "true"]).end();
    assert_eq!(ran.status, 125);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn help_and_version_are_data() {
    let folder = Folder::new();
    for word in ["-h", "--help"] {
        let ran = start(&folder, &[word]).end();
        assert!(ran.out.starts_with("Usage: watchdog "), "{}", ran.out);
        assert!(ran.out.lines().all(|line| line.len() <= 80));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    }
    for word in ["-V", "--version"] {
        let ran = start(&folder, &[word]).end();
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "watchdog 0.1.0\n", ""));
    }
}

#[test]
fn the_log_gets_both_streams_after_what_was_there() {
    let folder = Folder::new();
    fs::write(folder.path("log"), "before\n").unwrap();
    let ran = script(&folder, &["--log", "log"], "echo out; echo err >&2; exit 4").end();
    assert_eq!(ran, Ran { status: 4, out: String::new(), err: String::new() });
    assert_eq!(text(&folder, "log"), "before\nout\nerr\n");
    let ran = script(&folder, &[], "echo out; echo err >&2").end();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"), "without a log they are ours");
}

#[test]
fn a_silent_command_ends_at_its_idle_limit_and_never_earlier() {
    let folder = Folder::new();
    for (line, least) in [("sleep 60", 500), ("sleep .3; echo x; sleep 60", 800)] {
        let (ran, took) = script(&folder, &["--log", "log", "--idle", "500ms"], line).timed();
        assert_eq!(ran.status, 124, "{line}");
        let least = Duration::from_millis(least);
        assert!(took >= least && took < least + Duration::from_secs(1), "{line}: {took:?}");
    }
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn whatever_moves_spares_the_command() {
    let folder = Folder::new();
    let often = |what: &str| format!("i=0; while [ $i -lt 14 ]; do {what}; sleep .1; i=$((i+1)); done; exit 9");
    let lines = [
        ("bytes", often("printf .")),
        ("returns", often("printf '\\r'")),
        ("errors", often("printf x >&2")),
        ("cuts", format!("head -c 5000 /dev/zero; {}", often("truncate -s -100 cuts"))),
        ("turned", often("[ $i -ne 4 ] || mv turned turned.1; printf .")),
    ];
    let running: Vec<_> =
        lines.iter().map(|(log, line)| (log, script(&folder, &["--log", log, "--idle", "500ms"], line))).collect();
    for (log, running) in running {
        let (ran, took) = running.timed();
        assert_eq!(ran.status, 9, "{log} after {took:?}");
    }
    assert_eq!((text(&folder, "turned"), text(&folder, "turned.1").len()), (String::new(), 14));
}

#[test]
fn a_watched_file_spares_the_command_while_it_moves() {
    let folder = Folder::new();
    let words = ["--log", "log", "--idle", "500ms", "--watch", "own", "-w", "other"];
    let line = "i=0; while [ $i -lt 14 ]; do echo x >own; sleep .1; i=$((i+1)); done; [ -z \"$1\" ]";
    assert_eq!(script(&folder, &words, line).end().status, 0);
    let words = ["--log", "log", "--idle", "500ms", "--watch", "unmoved"];
    assert_eq!(script(&folder, &words, line).end().status, 124);
}

#[test]
fn no_limit_is_no_limit() {
    let folder = Folder::new();
    let words = ["--log", "log", "--idle", "0", "--hard", "0"];
    assert_eq!(script(&folder, &words, "sleep .3; exit 5").end().status, 5);
}

#[test]
fn term_ends_the_tree_and_is_143() {
    let folder = Folder::new();
    let running = script(&folder, &[], "sleep 60 & (sleep 60 & sleep 60) & echo up >up; wait");
    said(&folder, "up");
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.end().status, 143);
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn a_tree_that_ignores_term_is_gone_after_the_grace() {
    let folder = Folder::new();
    let line = "trap '' TERM; (trap '' TERM; sleep 60; sleep 60) & sleep 60; sleep 60";
    let (ran, took) = script(&folder, &["--hard", "300ms", "--grace", "400ms"], line).timed();
    assert_eq!(ran.status, 124);
    assert!(took >= Duration::from_millis(700) && took < Duration::from_secs(4), "{took:?}");
    assert_eq!(folder.living(), [0; 0]);
    let (ran, took) = script(&folder, &["--hard", "200ms", "--grace", "0"], line).timed();
    assert_eq!(ran.status, 124);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn nothing_escapes_by_a_double_fork_or_a_session_of_its_own() {
    let folder = Folder::new();
    let escape = "setsid -f sleep 60; (setsid sh -c 'sleep 60 & sleep 60' &); detach -- sleep 60; echo up >up";
    assert_eq!(script(&folder, &[], &format!("{escape}; exit 6")).end().status, 6);
    assert_eq!(folder.living(), [0; 0], "after a natural end");
    assert_eq!(script(&folder, &["--hard", "700ms"], &format!("{escape}; sleep 60")).end().status, 124);
    said(&folder, "up");
    assert_eq!(folder.living(), [0; 0], "after a limit");
}

#[test]
fn kept_children_live_on_after_a_normal_end_alone() {
    let folder = Folder::new();
    let line = "sleep 60 & echo $! >pid; exit 3";
    assert_eq!(script(&folder, &["--keep-children"], line).end().status, 3);
    assert_eq!(folder.living(), [pid_in(&folder, "pid")]);
    kill(pid_in(&folder, "pid"), libc::SIGKILL);
    let ran = script(&folder, &["--keep-children", "--hard", "300ms"], "sleep 60 & sleep 60").end();
    assert_eq!((ran.status, folder.living()), (124, vec![]), "a limit ends them");
}

#[test]
fn with_root_first_the_root_hears_of_it_before_its_children() {
    let folder = Folder::new();
    fs::write(
        folder.path("child"),
        "trap 'echo child >>order; exit' TERM\necho up >>order\nwhile :; do sleep .02; done",
    )
    .unwrap();
    let root = "sh child & trap 'echo root >>order; wait; exit' TERM; while :; do sleep .02; done";
    let running = script(&folder, &["--root-first", "--grace", "4s"], root);
    said(&folder, "order");
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.end().status, 143);
    assert_eq!(text(&folder, "order"), "up\nroot\nchild\n");
}

#[test]
fn who_holds_standard_output_does_not_delay_the_end() {
    let folder = Folder::new();
    for words in [&[][..], &["--keep-children"]] {
        let words = words.iter().copied().chain(["--", "sh", "-c", "sleep 60 & exit 2"]);
        let mut child = folder.tool("watchdog", words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the watchdog has ended", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(2));
    }
}

#[test]
fn children_from_before_the_command_are_left_alone() {
    let folder = Folder::new();
    for (words, status) in [("-- true", 0), ("--hard 200ms -- sh -c 'sleep 60 & sleep 60'", 124)] {
        let ran = sh(&folder, &format!("sleep 60 & echo $! >pid; exec watchdog {words}")).end();
        assert_eq!(ran.status, status, "{}", ran.err);
        let stranger = pid_in(&folder, "pid");
        assert_eq!(folder.living(), [stranger], "{words}");
        kill(stranger, libc::SIGKILL);
        until("it is gone", || folder.living().is_empty());
    }
}

#[test]
fn the_death_of_the_watchdog_is_a_term_for_the_command() {
    if tests::is_portable("the command hears of the watchdog's death") {
        return;
    }
    let folder = Folder::new();
    let line = "trap 'echo term >end; exit' TERM; echo up >up; while :; do sleep .02; done";
    let running = script(&folder, &[], line);
    said(&folder, "up");
    kill(running.pid(), libc::SIGKILL);
    assert_eq!(running.end().status, 137);
    assert_eq!(said(&folder, "end"), "term");
}

#[test]
fn the_death_of_a_watchdog_with_earlier_children_is_a_term_too() {
    if tests::is_portable("the command hears of the watchdog's death") {
        return;
    }
    let folder = Folder::new();
    let line = "sleep 60 & exec watchdog -- sh -c \"trap 'echo term >end; exit' TERM; echo up >up; while :; do sleep .02; done\"";
    let running = sh(&folder, line);
    said(&folder, "up");
    kill(running.pid(), libc::SIGKILL);
    assert_eq!(running.end().status, 137);
    assert_eq!(said(&folder, "end"), "term");
}

#[test]
fn time_in_which_the_watchdog_was_stopped_does_not_count_as_silence() {
    let folder = Folder::new();
    let words = ["--log", "log", "--idle", "700ms"];
    let line =
        "echo a; until [ -e go ]; do sleep .02; done; for i in 1 2 3 4 5 6 7 8; do echo b; sleep .1; done; exit 8";
    for stop in [900, 2500] {
        let _ = fs::remove_file(folder.path("go"));
        let _ = fs::remove_file(folder.path("log"));
        let running = script(&folder, &words, line);
        said(&folder, "log");
        kill(running.pid(), libc::SIGSTOP);
        until("it is stopped", || state(running.pid()) == Some('T'));
        let wake = Instant::now() + Duration::from_millis(stop);
        until("the window is over", || Instant::now() >= wake);
        kill(running.pid(), libc::SIGCONT);
        until("it goes on", || state(running.pid()) != Some('T'));
        fs::write(folder.path("go"), "").unwrap();
        assert_eq!(running.end().status, 8, "stopped for {stop} ms");
    }
}

#[test]
fn an_ignored_chld_and_a_blocked_term_do_not_disturb_it() {
    let folder = Folder::new();
    let deaf = |line: &str| {
        let mut command = folder.tool("watchdog", ["--hard", "10s", "--", "sh", "-c", line]);
        command.current_dir(folder.path(""));
        // SAFETY: signal(2) and sigprocmask(2) are async-signal-safe, and the set is a local.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGURG, libc::SIGPIPE] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                let mut set = std::mem::zeroed();
                libc::sigfillset(&raw mut set);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
                Ok(())
            });
        }
        Running::start(&folder, &mut command)
    };
    let ran = deaf("sleep .05 & exit 7").end();
    assert_eq!(ran.status, 7, "{}", ran.err);
    let running = deaf("echo up >up; sleep 60 & sleep 60");
    said(&folder, "up");
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.end().status, 143);
    assert_eq!(folder.living(), [0; 0]);
    let ran = deaf("grep ^Sig[BI] /proc/self/status").end();
    let zero = |name: &str| format!("{name}:\t0000000000000000\n");
    assert_eq!(ran.out, zero("SigBlk") + &zero("SigIgn"), "and the command finds a clean state");
}

#[test]
fn ready_is_a_newline_on_a_pipe_and_nothing_in_a_file() {
    let folder = Folder::new();
    let inner = "echo \"[$READY_FD]\"; ls /proc/$$/fd | tr '\\n' ' '; [ ! -e /proc/$$/fd/9 ] || echo open";
    fs::write(folder.path("inner"), inner).unwrap();
    let ran = sh(&folder, "{ READY_FD=9 watchdog -- sh -c \"$(cat inner)\" 9>&1 >&2; } | od -An -c").end();
    assert_eq!(ran.out.trim(), "\\n", "{}", ran.err);
    assert!(ran.err.starts_with("[]\n0 1 2"), "{}", ran.err);
    assert!(!ran.err.contains("open"), "{}", ran.err);

    let ran = sh(&folder, "exec 9>plain; READY_FD=9 watchdog -- sh -c 'echo \"[$READY_FD]\"'").end();
    assert_eq!((ran.status, ran.out.as_str(), text(&folder, "plain").as_str()), (0, "[]\n", ""));
    assert!(ran.err.starts_with("watchdog: warning: READY_FD"), "{}", ran.err);
    for number in ["77", "-1", "x", ""] {
        let ran =
            Running::start(&folder, folder.tool("watchdog", ["--log", "/dev/null", "true"]).env("READY_FD", number));
        assert_eq!(ran.end().status, 0, "{number}");
    }
    let ran = sh(&folder, "READY_FD=9 watchdog -- no-such-program 9>&1 2>/dev/null | od -An -c").end();
    assert_eq!(ran.out, "", "never ready where nothing runs");
}

#[test]
fn the_command_inherits_standard_input_and_no_descriptor_of_ours() {
    let folder = Folder::new();
    let ran = sh(&folder, "echo hi | watchdog --log log --idle 9 -- cat").end();
    assert_eq!((ran.status, text(&folder, "log").as_str()), (0, "hi\n"));
    let ran = script(&folder, &["--hard", "9"], "ls /proc/$$/fd").end();
    assert_eq!(ran.out, "0\n1\n2\n");
}

// With a job: ownership, and one record.

#[test]
fn a_record_tells_the_whole_story_of_a_job_that_is_done() {
    let folder = Folder::new();
    fs::write(folder.path("request"), "please\n").unwrap();
    let request = folder.path("request").display().to_string();
    let id = folder.claim(&["--name", "digest", "--meta", "base=abc", "--hard", "90s", "--input", &request]);
    let line = "cat; echo err >&2; env | grep ^JOB_ | sort >env; jobdir touch half-way
        echo '{\"z\":1.50,\"a\":[12345678901234567890123, 1e40]}' | jobdir put
        i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; sleep .1";
    let ran = script(&folder, &["--job", &id], line).end();
    assert_eq!(ran, Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(folder.word(&id), "done");
    let record = folder.record(&id);
    let keys = "version job claim name status reason exit_code signal error claimed_at started_at ended_at progress_at \
                duration_s host pid command cpu_s max_rss_kib log log_bytes warnings output meta";
    let mut keys: Vec<&str> = keys.split_whitespace().collect();
    keys.sort_unstable();
    let mut found: Vec<&String> = record.as_object().unwrap().keys().collect();
    found.sort_unstable();
    assert_eq!(found, keys);
    let meta: Value = serde_json::from_str(&fs::read_to_string(folder.file(&id, "meta.json")).unwrap()).unwrap();
    for (key, value) in [
        ("version", json!(1)),
        ("job", json!(id)),
        ("claim", meta["claim"].clone()),
        ("name", json!("digest")),
        ("status", json!("done")),
        ("reason", json!("exited")),
        ("exit_code", json!(0)),
        ("signal", Value::Null),
        ("error", Value::Null),
        ("claimed_at", meta["claimed_at"].clone()),
        ("host", meta["host"].clone()),
        ("command", json!(["sh", "-c", line])),
        ("log", json!("out.log")),
        ("log_bytes", json!("please\nerr\n".len())),
        ("warnings", json!([])),
        ("meta", json!({"base": "abc"})),
    ] {
        assert_eq!(record[key], value, "{key}");
    }
    assert_eq!(fs::read_to_string(folder.file(&id, "out.log")).unwrap(), "please\nerr\n", "nothing of ours is in it");
    let raw = fs::read_to_string(folder.file(&id, "result.json")).unwrap();
    assert!(raw.contains(r#""output":{"z":1.50,"a":[12345678901234567890123, 1e40]}"#), "{raw}");
    let times: Vec<&str> =
        ["claimed_at", "started_at", "progress_at", "ended_at"].map(|key| record[key].as_str().unwrap()).into();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|time| time.len() == 24 && time.ends_with('Z')), "{times:?}");
    let duration = record["duration_s"].as_f64().unwrap();
    assert!((0.1..20.0).contains(&duration), "{duration}");
    let cpu = record["cpu_s"].as_f64().unwrap();
    assert!(cpu > 0.0 && cpu < duration + 1.0, "{cpu}");
    assert!(record["max_rss_kib"].as_u64().unwrap() > 100);
    assert_eq!(record["pid"], json!(folder.owner(&id)));

    let environment = text(&folder, "env");
    let of = |name: &str| environment.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap_or("none");
    assert_eq!(of("JOB_ID"), id);
    assert_eq!(of("JOB_DIR"), folder.file(&id, "").display().to_string().trim_end_matches('/'));
    assert_eq!(of("JOB_CLAIM"), meta["claim"].as_str().unwrap());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let deadline: u64 = of("JOB_DEADLINE").parse().unwrap();
    assert!((now + 60..=now + 90).contains(&deadline), "{deadline} at {now}");
    assert_eq!(of("JOB_MAX_OUTPUT"), (16 << 20).to_string());
    assert_eq!(environment.lines().count(), 5);
}

#[test]
fn each_end_has_its_word_its_reason_and_its_status() {
    let folder = Folder::new();
    let none = Value::Null;
    for (claim, line, word, reason, code, signal, status) in [
        (&[][..], "exit 0", "done", "exited", json!(0), &none, 0),
        (&[], "exit 3", "failed", "exited", json!(3), &none, 3),
        (&[], "exit 255", "failed", "exited", json!(255), &none, 255),
        (&[], "exit 124", "failed", "exited", json!(124), &none, 124),
        (&[], "ulimit -c 0; kill -SEGV $$", "failed", "signaled", none.clone(), &json!(11), 139),
        (&[], "echo partial; kill -KILL $$", "failed", "signaled", none.clone(), &json!(9), 137),
        (&["--idle", "300ms"], "echo x; exec sleep 60", "timeout", "idle", none.clone(), &json!(15), 124),
        (&["--hard", "300ms"], "exec sleep 60", "timeout", "hard", none.clone(), &json!(15), 124),
        (
            &["--hard", "300ms", "--grace", "100ms"],
            "trap '' TERM; exec sleep 60",
            "timeout",
            "hard",
            none.clone(),
            &json!(9),
            124,
        ),
        (
            &["--hard", "300ms"],
            "trap 'exit 0' TERM; while :; do sleep .02; done",
            "timeout",
            "hard",
            json!(0),
            &none,
            124,
        ),
    ] {
        let (ran, record) = job(&folder, claim, &[], line);
        assert_eq!(verdict(&record), (word, reason, &code, signal), "{line}");
        assert_eq!((ran.status, ran.err.as_str()), (status, ""), "{line}");
        assert_eq!(record["error"].is_null(), word == "done", "{line}");
        assert_eq!(folder.word(record["job"].as_str().unwrap()), word, "{line}");
    }
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn a_limit_is_named_by_its_window() {
    let folder = Folder::new();
    let (_, record) = job(&folder, &["--idle", "300ms"], &[], "sleep 60");
    assert_eq!(record["error"], "no output for 0.3 s");
    let (_, record) = job(&folder, &["--hard", "300ms"], &[], "sleep 60");
    assert!(record["error"].as_str().unwrap().contains("0.3 s"), "{record}");
    assert!(record["duration_s"].as_f64().unwrap() >= 0.3, "{record}");
}

#[test]
fn a_job_that_never_said_anything_has_no_progress_before_its_start() {
    let folder = Folder::new();
    let (_, record) = job(&folder, &[], &[], "sleep .1");
    let progress = record["progress_at"].as_str();
    assert!(progress.is_none_or(|at| at >= record["started_at"].as_str().unwrap()), "{record}");
}

#[test]
fn a_cancelled_job_has_failed_with_143() {
    let folder = Folder::new();
    for by_hand in [false, true] {
        let id = folder.claim(&["--grace", "300ms"]);
        let running = script(&folder, &["--job", &id], "trap '' TERM; sleep 60 & echo up >>up; exec sleep 60");
        until("it runs", || text(&folder, "up").lines().count() == 1 + usize::from(by_hand));
        if by_hand {
            kill(running.pid(), libc::SIGINT);
        } else {
            assert_eq!(folder.run("jobdir", ["cancel", &id]).status, 0);
        }
        assert_eq!(running.end().status, 143);
        let record = folder.record(&id);
        assert_eq!(verdict(&record), ("failed", "cancelled", &Value::Null, &json!(9)));
        assert_eq!(folder.living(), [0; 0]);
    }
}

#[test]
fn a_signal_to_the_command_and_to_its_watchdog_is_a_cancel_in_either_order() {
    let folder = Folder::new();
    for first in ["command", "watchdog"] {
        let id = folder.claim(&[]);
        let running = script(&folder, &["--job", &id], "echo $$ >pid.new; mv pid.new pid; exec sleep 60");
        until("it runs", || folder.path("pid").exists());
        let command = text(&folder, "pid").trim().parse().unwrap();
        fs::remove_file(folder.path("pid")).unwrap();
        // Both at once, as a control group is signalled.
        let both = [command, running.pid()];
        kill(if first == "command" { both[0] } else { both[1] }, libc::SIGTERM);
        kill(if first == "command" { both[1] } else { both[0] }, libc::SIGTERM);
        assert_eq!(running.end().status, 143);
        assert_eq!(verdict(&folder.record(&id)).1, "cancelled", "the {first} first");
    }
}

#[test]
fn a_command_that_cannot_be_started_has_a_record_too() {
    let folder = Folder::new();
    fs::write(folder.path("plain"), "no program\n").unwrap();
    fs::write(folder.path("orphan"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(folder.path("orphan"), fs::Permissions::from_mode(0o755)).unwrap();
    let [plain, orphan] = ["plain", "orphan"].map(|name| folder.path(name).display().to_string());
    for (command, status, why) in [
        (vec!["no-such-program"], 127, "no-such-program"),
        (vec![plain.as_str()], 126, "permission denied"),
        (vec![orphan.as_str()], 127, "/no/such/interpreter"),
    ] {
        let id = folder.claim(&[]);
        let words: Vec<&str> = ["--job", &id, "--"].into_iter().chain(command).collect();
        let ran = start(&folder, &words).end();
        let record = folder.record(&id);
        assert_eq!(ran.status, status, "{}", ran.err);
        assert!(ran.err.contains(why) && ran.err.lines().count() == 1, "{}", ran.err);
        assert_eq!(verdict(&record), ("failed", "spawn-failed", &Value::Null, &Value::Null));
        assert!(record["error"].as_str().unwrap().contains(why), "{record}");
        assert_eq!(folder.word(&id), "failed");
    }
}

#[test]
fn captured_output_is_the_output_and_both_streams_are_life() {
    let folder = Folder::new();
    let line = "echo note >&2; printf '{\"b\":1.50,\\n \"a\":2}\\n'";
    let (ran, record) = job(&folder, &[], &["--capture"], line);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let id = record["job"].as_str().unwrap();
    assert_eq!(record["output"], json!({"b": 1.5, "a": 2}));
    assert_eq!(record["log_bytes"], 5);
    assert_eq!(fs::read_to_string(folder.file(id, "out.log")).unwrap(), "note\n");
    assert!(fs::read_to_string(folder.file(id, "result.json")).unwrap().contains(r#""output":{"b":1.50,"a":2}"#));
    for stream in ["1", "2"] {
        let line = format!("i=0; while [ $i -lt 14 ]; do printf ' ' >&{stream}; sleep .1; i=$((i+1)); done; echo [7]");
        let (ran, record) = job(&folder, &["--idle", "500ms"], &["--capture"], &line);
        assert_eq!((ran.status, &record["output"]), (0, &json!([7])), "{record}");
    }
    let (ran, record) = job(&folder, &["--idle", "300ms"], &["--capture"], "echo '{\"paid\":1}'; sleep 60");
    assert_eq!((ran.status, &record["output"]), (124, &json!({"paid": 1})));
    let (ran, record) = job(&folder, &[], &["--capture"], "true");
    assert_eq!((ran.status, &record["output"]), (0, &Value::Null));
}

#[test]
fn an_output_that_is_not_one_document_is_a_failure() {
    let folder = Folder::new();
    for bad in ["{", "1 2", "warning {}", "NaN", "{}}", "42"] {
        let (ran, record) = job(&folder, &[], &["--capture"], &format!("echo '{bad}'"));
        assert_eq!(verdict(&record), ("failed", "invalid-output", &json!(0), &Value::Null), "{bad}");
        assert_eq!((ran.status, &record["output"]), (1, &Value::Null), "{bad}");
        assert!(!record["error"].is_null(), "{bad}");
    }
    let (ran, record) = job(&folder, &[], &["--capture"], "echo '{'; exit 5");
    assert_eq!(verdict(&record), ("failed", "exited", &json!(5), &Value::Null));
    assert_eq!((ran.status, record["warnings"].as_array().unwrap().len()), (5, 1));
}

#[test]
fn a_required_output_has_to_be_there() {
    let folder = Folder::new();
    let (ran, record) = job(&folder, &[], &["--require-output"], "exit 0");
    assert_eq!((ran.status, verdict(&record)), (1, ("failed", "invalid-output", &json!(0), &Value::Null)));
    let (ran, record) = job(&folder, &[], &["--require-output"], "exit 6");
    assert_eq!((ran.status, verdict(&record)), (6, ("failed", "exited", &json!(6), &Value::Null)));
    let (ran, record) = job(&folder, &[], &["--require-output"], "echo [] | jobdir put");
    assert_eq!((ran.status, verdict(&record)), (0, ("done", "exited", &json!(0), &Value::Null)));
    let (ran, _) = job(&folder, &[], &["--require-output", "--capture"], "echo '[]'");
    assert_eq!(ran.status, 0);
    let (ran, _) = job(&folder, &[], &["--require-output", "--capture"], "true");
    assert_eq!(ran.status, 1);
}

#[test]
fn an_output_beyond_its_bound_is_invalid() {
    let folder = Folder::new();
    let line = "printf '[\"%s\"]' $(head -c 5000 /dev/zero | tr '\\0' x)";
    for (words, piped) in
        [(&["--capture", "--max-output", "4k"][..], ""), (&["--max-output", "4k"], " >$JOB_DIR/output.json")]
    {
        let (ran, record) = job(&folder, &[], words, &format!("{line}{piped}"));
        assert_eq!((ran.status, verdict(&record)), (1, ("failed", "invalid-output", &json!(0), &Value::Null)));
    }
    // What could not stand in the record is refused at once, where the command can still hear of it.
    let (ran, record) = job(&folder, &[], &["--max-output", "4k"], &format!("{line} | jobdir put; echo $? >&2"));
    assert_eq!(
        (ran.status, record["output"].is_null(), record["log_bytes"].as_u64()),
        (0, true, Some(2 + "jobdir: cannot publish standard input: it is larger than 4096 bytes\n".len() as u64))
    );
    let (ran, record) = job(&folder, &[], &["--capture", "--max-output", "5004"], line);
    assert_eq!((ran.status, record["output"][0].as_str().map(str::len)), (0, Some(5000)));
}

#[test]
fn what_was_published_before_a_bad_end_stands_in_the_record() {
    let folder = Folder::new();
    for (claim, end, status) in [
        (&["--hard", "700ms"][..], "sleep 60", 124),
        (&["--idle", "700ms"], "sleep 60", 124),
        (&[], "exit 4", 4),
        (&[], "kill -KILL $$", 137),
    ] {
        let line = format!("echo 1 | jobdir put; echo '{{\"n\":2}}' | jobdir put; {end}");
        let (ran, record) = job(&folder, claim, &[], &line);
        assert_eq!((ran.status, &record["output"]), (status, &json!({"n": 2})), "{end}");
    }
}

#[test]
fn only_an_output_of_this_run_counts_and_none_after_it() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    fs::write(folder.path("doc"), "{\"old\":1}").unwrap();
    let doc = folder.path("doc").display().to_string();
    assert_eq!(folder.run("jobdir", ["put", &id, &doc]).status, 0);
    assert_eq!(start(&folder, &["--job", &id, "true"]).end().status, 0);
    let before = fs::read(folder.file(&id, "result.json")).unwrap();
    assert_eq!(folder.record(&id)["output"], Value::Null);
    assert!(!folder.file(&id, "output.json").exists());
    assert_eq!(folder.run("jobdir", ["put", &id, &doc]).status, 3);
    assert_eq!(folder.run("jobdir", ["touch", &id, "x"]).status, 3);
    assert_eq!(fs::read(folder.file(&id, "result.json")).unwrap(), before);
}

#[test]
fn nobody_owns_a_job_twice() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "200ms"]);
    let running = script(&folder, &["--job", &id], "echo run >>runs; until [ -e go ]; do sleep .02; done");
    said(&folder, "runs");
    let second = || script(&folder, &["--job", &id], "echo run >>runs").end();
    let ran = second();
    assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (3, "", 1), "running: {}", ran.err);
    assert_eq!(folder.word(&id), "running", "and the first is not disturbed");
    fs::write(folder.path("go"), "").unwrap();
    assert_eq!(running.end().status, 0);
    let before = fs::read(folder.file(&id, "result.json")).unwrap();
    assert_eq!(second().status, 3, "ended");
    assert_eq!(fs::read(folder.file(&id, "result.json")).unwrap(), before);
    assert_eq!(text(&folder, "runs"), "run\n");
}

#[test]
fn a_job_whose_owner_was_killed_is_settled_and_not_run_again() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "200ms"]);
    let running = script(&folder, &["--job", &id], "trap '' TERM; echo run >>runs; sleep 60 & sleep 60");
    said(&folder, "runs");
    kill(running.pid(), libc::SIGKILL);
    running.end();
    let ran = script(&folder, &["--job", &id], "echo run >>runs").end();
    assert_eq!((ran.status, ran.err.lines().count()), (3, 1), "{}", ran.err);
    let record = folder.record(&id);
    assert_eq!(verdict(&record), ("unknown", "worker-died", &Value::Null, &Value::Null));
    assert_eq!((folder.word(&id).as_str(), text(&folder, "runs").as_str()), ("unknown", "run\n"));
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn no_job_is_66_and_an_unsafe_root_77() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    assert_eq!(start(&folder, &["--job", "no-such-job", "true"]).end().status, 66);
    assert_eq!(start(&folder, &["--job", "../x", "true"]).end().status, 66);
    fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(start(&folder, &["--job", &id, "touch", "ran"]).end().status, 77);
    assert_eq!(folder.word(&id), "claimed");
    fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.file(&id, "").display().to_string();
    let elsewhere = folder.path("elsewhere");
    let mut command = folder.tool("watchdog", ["--job", &path, "true"]);
    assert_eq!(Running::start(&folder, command.env("JOBDIR_ROOT", elsewhere)).end().status, 0, "a path names its root");
    assert_eq!(folder.word(&id), "done");
}

#[test]
fn the_command_of_a_job_has_three_descriptors_and_a_session_of_its_own() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let line = "echo $$ >pid; until [ -e go ]; do sleep .02; done; grep ^Sig[BI] /proc/self/status; cat; echo rc=$?";
    let running = script(&folder, &["--job", &id], line);
    let command = pid_in(&folder, "pid");
    let mut fds: Vec<String> = fs::read_dir(format!("/proc/{command}/fd"))
        .unwrap()
        .map(|fd| {
            let fd = fd.unwrap();
            format!("{} {}", fd.file_name().display(), fs::read_link(fd.path()).unwrap().display())
        })
        .collect();
    fds.sort();
    let log = folder.file(&id, "out.log").canonicalize().unwrap().display().to_string();
    assert_eq!(fds, ["0 /dev/null".to_owned(), format!("1 {log}"), format!("2 {log}")]);
    let stat = fs::read_to_string(format!("/proc/{command}/stat")).unwrap();
    let session: i32 = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().parse().unwrap();
    assert_eq!(session, command);
    fs::write(folder.path("go"), "").unwrap();
    assert_eq!(running.end().status, 0);
    let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
    assert_eq!(log, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nrc=0\n");
}

#[test]
fn closed_standard_streams_do_not_disturb_a_job() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let line = format!("exec watchdog --job {id} -- sh -c 'echo hi; cat; echo err >&2' 0<&- 1>&- 2>&-");
    assert_eq!(sh(&folder, &line).end().status, 0);
    assert_eq!(fs::read_to_string(folder.file(&id, "out.log")).unwrap(), "hi\nerr\n");
    assert_eq!(verdict(&folder.record(&id)), ("done", "exited", &json!(0), &Value::Null));
}

#[test]
fn a_small_limit_of_file_sizes_still_lets_the_record_out() {
    let folder = Folder::new();
    let inner = "ulimit -f; trap '' XFSZ; head -c 9000 /dev/zero; exit 5";
    let id = folder.claim(&[]);
    let ran = sh(&folder, &format!("ulimit -S -f 1; exec watchdog --job {id} -- sh -c \"{inner}\"")).end();
    assert_eq!((ran.status, ran.err.as_str()), (5, ""));
    let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
    assert!(log.starts_with("1\n") && log.len() < 2000, "the command keeps the limit");
    assert_eq!(folder.record(&id)["exit_code"], 5);
    // A hard limit with room for a record, but not for its output.
    let id = folder.claim(&[]);
    let put = "(printf '[\\\"'; head -c 30000 /dev/zero | tr '\\0' x; printf '\\\"]') | sh -c 'ulimit -f 2>/dev/null; jobdir put'";
    let ran = sh(&folder, &format!("ulimit -f 16; exec watchdog --job {id} -- sh -c \"{put}; exit 5\"")).end();
    assert_eq!(ran.status, 5, "{}", ran.err);
    assert_eq!(folder.record(&id)["exit_code"], 5);
}

#[test]
fn a_hard_limit_of_file_sizes_is_called_by_its_name() {
    // fs2's allocate returns whatever errno was left over: it said "no such file or directory".
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let ran = sh(&folder, &format!("ulimit -f 1; exec watchdog --job {id} -- true")).end();
    assert!(!ran.err.contains("no such file"), "{}", ran.err);
    assert!(ran.status == 0 || ran.err.contains("too large"), "{}: {}", ran.status, ran.err);
}

#[test]
fn a_job_claimed_inside_a_job_ends_before_it() {
    let folder = Folder::new();
    let id = folder.claim(&["--hard", "20s", "--grace", "2s"]);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let line =
        "for hard in 0 1h 3s; do cat $(jobdir claim --path --hard $hard --grace 5s)/meta.json; done; echo $JOB_DEADLINE
        inner=$(jobdir claim --hard 0); watchdog --job $inner -- sh -c 'echo $JOB_DEADLINE; echo $JOB_ID'; echo $inner";
    assert_eq!(script(&folder, &["--job", &id], line).end().status, 0);
    let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let [metas @ .., deadline, inner] = &lines[..] else { panic!("{log}") };
    let deadline: f64 = deadline.parse().unwrap();
    assert!(deadline <= now + 21.0, "{deadline} at {now}");
    for (meta, most) in metas.iter().zip([1e9, 3600.0, 3.0]) {
        let limits = serde_json::from_str::<Value>(meta).unwrap()["limits"].clone();
        let seconds = |key: &str| limits[key].as_f64().unwrap();
        assert!(now + seconds("hard_s") + seconds("grace_s") <= deadline, "{limits} from {now} to {deadline}");
        assert!(seconds("hard_s") <= most, "{limits}");
    }
    let log = fs::read_to_string(folder.file(inner, "out.log")).unwrap();
    let (within, name) = log.trim_end().split_once('\n').unwrap();
    assert_eq!(name, *inner);
    assert!(within.parse::<f64>().unwrap() <= deadline, "{within} is not before {deadline}");
}

#[test]
fn work_detached_inside_a_job_ends_with_it() {
    let folder = Folder::new();
    let line = "detach -- sleep 60; setsid -f sleep 60; id=$(jobdir claim); detach --ready watchdog --job $id -- sleep 60; echo $id";
    let (ran, record) = job(&folder, &["--grace", "2s"], &[], line);
    assert_eq!(ran.status, 0);
    assert_eq!(folder.living(), [0; 0]);
    let inner = fs::read_to_string(folder.file(record["job"].as_str().unwrap(), "out.log")).unwrap();
    assert_eq!(verdict(&folder.record(inner.trim())).0, "failed", "the inner one has its record");
    let (_, record) = job(&folder, &[], &["--keep-children"], "sleep 60 & echo $!");
    let kept = fs::read_to_string(folder.file(record["job"].as_str().unwrap(), "out.log")).unwrap();
    assert_eq!(folder.living(), [kept.trim().parse::<i32>().unwrap()]);
}

#[test]
fn a_word_about_itself_comes_at_once_inside_a_job_that_looks_overdue() {
    // The job lives by a watched file alone. Nobody inside it can ask its owner, and yet each call waited two
    // seconds for an answer, with the lock held that the record needs.
    let folder = Folder::new();
    fs::write(folder.path("own"), "").unwrap();
    let id = folder.claim(&["--idle", "1s", "--grace", "0"]);
    let line = "(while :; do echo x >>own; sleep .05; done) & sleep 3.5
        a=$(date +%s%N); jobdir status $JOB_ID >/dev/null; echo {} | jobdir put; b=$(date +%s%N); echo $(((b-a)/1000000)) >took";
    assert_eq!(script(&folder, &["--job", &id, "--watch", "own"], line).end().status, 0);
    let took: u64 = said(&folder, "took").parse().unwrap();
    assert!(took < 1900, "{took} ms");
}

#[test]
fn a_job_goes_on_where_its_launcher_asked_for_readiness() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    folder.start(&id, &["sh", "-c", "echo \"[$READY_FD]\""]);
    assert_eq!(folder.ended(&id), "done");
    assert_eq!(fs::read_to_string(folder.file(&id, "out.log")).unwrap(), "[]\n");
    let id = folder.claim(&[]);
    let dog = bin("watchdog").display().to_string();
    let ran = folder.run("detach", ["--ready", "--", &dog, "--job", &id, "--", "no-such-program"]);
    assert_eq!(ran.status, 127, "{}", ran.err);
    assert_eq!(folder.word(&id), "failed");
    assert!(!is_alive(folder.owner(&id)));
}
