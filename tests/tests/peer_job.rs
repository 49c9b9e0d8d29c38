//! examples/peer-job, over the real tools: what its head promises, sentence by sentence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Folder, Ran, is_alive, kill, run, until};

/// Somebody else.
const NOBODY: u32 = 65_534;

fn skip(why: &str) {
    println!("skipped: {why}");
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/peer-job")
}

/// A folder to work in, with a job root of its own.
struct Desk(Folder);

impl Desk {
    fn new() -> Desk {
        Desk(Folder::new())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// A call of the script, with short windows and nothing of the caller's environment.
    fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        self.command_of(&script(), words)
    }

    /// The same of another program.
    fn command_of<'a>(&self, program: &Path, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.0.command(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["CE_", "CROSS_", "JOB_"].iter().any(|world| text.starts_with(world)) {
                command.env_remove(name);
            }
        }
        command.env("CE_PEER_JOBS_ROOT", self.path("peers")).env("CE_PEER_POLL_SECS", "0.05");
        command.env("CE_PEER_GRACE_SECS", "0.3").current_dir(self.path("")).args(words);
        command
    }

    fn call(&self, words: &[&str]) -> Ran {
        run(&mut self.command(words.iter().copied()))
    }

    /// A call to start a line of sh as a job of run `r`.
    fn starting(&self, options: &[&str], line: &str) -> Command {
        let words = ["start", "--skill", "review", "--run-id", "r"].iter().chain(options);
        self.command(words.chain(&["--", "sh", "-c", line]).copied())
    }

    /// Starts a line of sh as a job; its id.
    fn start(&self, options: &[&str], line: &str) -> String {
        started(&mut self.starting(options, line))
    }

    /// The directory of a job of run `r`.
    fn dir(&self, id: &str) -> PathBuf {
        self.path("peers/review/r/jobs").join(id)
    }

    fn file(&self, id: &str, name: &str) -> String {
        fs::read_to_string(self.dir(id).join(name)).unwrap_or_default()
    }

    fn record(&self, id: &str) -> Value {
        serde_json::from_str(&self.file(id, "result.json")).expect("a record")
    }

    fn owner(&self, id: &str) -> i32 {
        self.file(id, "pid").trim().parse().expect("an owner's pid")
    }

    /// The job's last word.
    fn ended(&self, id: &str) -> String {
        self.call(&["wait", "--max-secs", "20", id]).out.trim_end().to_owned()
    }

    /// Why there is no result, with the exit status for that.
    fn refusal(&self, words: &[&str]) -> (i32, String) {
        let ran = self.call(words);
        assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1), "{words:?}: {ran:?}");
        assert!(ran.err.starts_with("peer-job: "), "{words:?}: {ran:?}");
        (ran.status, ran.err)
    }

    /// Dates everything in a folder a week back.
    fn age(&self, name: &str) {
        let line = "find \"$1\" ! -type l -exec touch -d '7 days ago' {} +";
        assert_eq!(run(self.0.command("sh").args(["-c", line, "sh"]).arg(self.path(name))).status, 0);
    }
}

fn started(command: &mut Command) -> String {
    let ran = run(command);
    assert_eq!((ran.status, ran.out.lines().count()), (0, 1), "{ran:?}");
    ran.out.trim_end().to_owned()
}

// Start.

#[test]
fn a_start_prints_the_id_alone_and_returns_in_well_under_a_second() {
    let desk = Desk::new();
    desk.call(&["--help"]);
    let begun = Instant::now();
    // To the end of both pipes: nothing of the job may hold them.
    let ran = run(&mut desk.starting(&["--label", "lens-1", "--input-digest", "0123abc"], "echo busy; sleep 60"));
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(900), "{took:?}");
    let id = ran.out.strip_suffix('\n').unwrap();
    assert!(!id.contains(char::is_whitespace), "{id:?}");
    assert_eq!((ran.status, ran.err.lines().count()), (0, 1), "the limits alone: {}", ran.err);
    assert_eq!(desk.call(&["status", id]), Ran { status: 0, out: "running\n".into(), err: String::new() });
    until("it is at work", || desk.file(id, "out.log") == "busy\n");
    let meta: Value = serde_json::from_str(&desk.file(id, "meta.json")).unwrap();
    assert_eq!(meta["name"], "review");
    assert_eq!(meta["meta"], json!({"label": "lens-1", "input_digest": "0123abc"}));
}

#[test]
fn a_failed_preflight_detaches_nothing_gives_no_id_and_says_what_to_do() {
    let desk = Desk::new();
    desk.touch("no-program");
    for command in ["no-such-cli", "./no-program", "./nowhere"] {
        let ran = desk.call(&["start", "--skill", "review", "--run-id", "r", "--", command]);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (1, "", 1), "{ran:?}");
        assert!(ran.err.starts_with(&format!("peer-job: cannot start {command}: ")), "{ran:?}");
        assert!(ran.err.contains("nothing was detached"), "{ran:?}");
    }
    assert_eq!(desk.0.living(), [0; 0]);
    // What was claimed has an end: whoever finds it does not wait.
    let jobs: Vec<PathBuf> = fs::read_dir(desk.dir("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(jobs.len(), 3);
    let ran = desk.call(&["wait", jobs[0].to_str().unwrap()]);
    assert_eq!((ran.status, ran.out.as_str()), (3, "never-started\n"));
}

#[test]
fn a_job_whose_launch_was_cut_short_was_never_started() {
    let desk = Desk::new();
    let root = desk.path("peers/review/r").display().to_string();
    // What start leaves when it is killed between its claim and its detach.
    let ran = desk.0.run("jobdir", ["claim", "--root", &root, "--start-within", "100ms"]);
    fs::set_permissions(desk.path("peers"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(desk.ended(ran.out.trim_end()), "never-started");
}

#[test]
fn a_job_outlives_the_call_the_session_and_the_tree_that_started_it() {
    let desk = Desk::new();
    let line = format!(
        "'{}' start --skill review --run-id r --result-path out -- sh -c 'until [ -e go ]; do sleep .02; done; \
            echo found >out' >id; sleep 60 & sleep 60",
        script().display()
    );
    let mut command = desk.0.command("sh");
    command.args(["-c", &line]).current_dir(desk.path("")).env("CE_PEER_JOBS_ROOT", desk.path("peers"));
    // SAFETY: setsid(2) alone, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut harness = command.stderr(Stdio::null()).spawn().unwrap();
    until("it has started", || desk.text("id").ends_with('\n'));
    let id = desk.text("id").trim_end().to_owned();
    // SAFETY: killpg(2) takes two integers; the group is that of our own child.
    unsafe { libc::killpg(i32::try_from(harness.id()).unwrap(), libc::SIGKILL) };
    harness.wait().unwrap();
    assert_eq!(desk.call(&["status", &id]).out, "running\n");
    desk.touch("go");
    assert_eq!(desk.ended(&id), "done");
    assert_eq!(desk.call(&["result", &id]).out, "found\n");
}

#[test]
fn nothing_in_a_job_can_wait_for_an_answer() {
    let desk = Desk::new();
    let id = desk.start(&[], "read answer || echo end of file; (: </dev/tty) 2>/dev/null || echo no terminal");
    assert_eq!(desk.ended(&id), "done");
    assert_eq!(desk.file(&id, "out.log"), "end of file\nno terminal\n");
}

#[test]
fn arguments_and_exit_status_are_the_commands_own() {
    let desk = Desk::new();
    let words = ["start", "--skill", "s", "--run-id", "r", "--", "sh", "-c", "printf '<%s>' \"$@\"; exit 9", "sh"];
    let id = started(desk.command(words).args(["", "a b", "--", "*", "$(id)", "\n"]));
    let dir = desk.path("peers/s/r/jobs").join(&id);
    assert_eq!(desk.ended(&id), "failed");
    assert_eq!(fs::read_to_string(dir.join("out.log")).unwrap(), "<><a b><--><*><$(id)><\n>");
    let record: Value = serde_json::from_str(&fs::read_to_string(dir.join("result.json")).unwrap()).unwrap();
    assert_eq!((&record["exit_code"], &record["meta"]), (&json!(9), &json!({})));
}

#[test]
fn a_command_that_is_named_like_a_function_of_the_script_is_the_command() {
    let desk = Desk::new();
    fs::write(desk.path("flooded"), "#!/bin/sh\necho the program\n").unwrap();
    fs::set_permissions(desk.path("flooded"), Permissions::from_mode(0o755)).unwrap();
    let line = "PATH=$PWD:$PATH exec \"$0\" start --skill review --run-id r -- flooded";
    let id = started(desk.command_of(Path::new("sh"), ["-c", line]).arg(script()));
    assert_eq!((desk.ended(&id).as_str(), desk.file(&id, "out.log").as_str()), ("done", "the program\n"));
}

// Status and wait.

#[test]
fn one_job_is_a_bare_word_several_are_lines_and_json_is_rows() {
    let desk = Desk::new();
    let done = desk.start(&[], "true");
    let failed = desk.start(&[], "exit 4");
    let running = desk.start(&[], "sleep 60");
    assert_eq!((desk.ended(&done).as_str(), desk.ended(&failed).as_str()), ("done", "failed"));
    let dir = desk.dir(&failed).display().to_string();
    let ran = desk.call(&["status", &done, &dir, &running]);
    let lines = format!("{done}\tdone\n{dir}\tfailed\n{running}\trunning\n");
    assert_eq!(ran, Ran { status: 0, out: lines.clone(), err: String::new() });
    let ran = desk.call(&["wait", "--max-secs", "0.1", &done, &dir, &running]);
    assert_eq!((ran.status, ran.out), (2, lines));
    assert_eq!(desk.call(&["wait", "--max-secs", "0", &running, &failed]).status, 2, "in whatever order");
    let rows = json!([
        {"ref": done, "job_dir": desk.dir(&done), "state": "done"},
        {"ref": dir, "job_dir": dir, "state": "failed"},
    ]);
    for verb in ["status", "wait"] {
        let ran = desk.call(&[verb, "--json", &done, &dir]);
        assert_eq!((ran.status, ran.out.lines().count()), (if verb == "wait" { 3 } else { 0 }, 1));
        assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), rows);
    }
    let ran = desk.call(&["status", "--json", &done]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap().as_array().unwrap().len(), 1, "rows, even of one");
}

#[test]
fn a_status_is_a_read_of_less_than_a_second() {
    let desk = Desk::new();
    let jobs: Vec<String> = (0..3).map(|_| desk.start(&[], "sleep 60")).collect();
    let begun = Instant::now();
    let ran = desk.call(&["status", &jobs[0], &jobs[1], &jobs[2]]);
    let took = begun.elapsed();
    assert_eq!((ran.status, ran.out.matches("\trunning\n").count()), (0, 3));
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_wait_ends_with_its_slice_or_with_the_job_and_tells_them_apart() {
    let desk = Desk::new();
    let id = desk.start(&[], "until [ -e go ]; do sleep .02; done");
    let mut slices = 0;
    let ran = loop {
        let begun = Instant::now();
        let ran = desk.call(&["wait", "--max-secs", "0.2", &id]);
        if ran.status != 2 {
            break ran;
        }
        assert!(begun.elapsed() < Duration::from_secs(3));
        assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("running\n", 1), "{ran:?}");
        assert!(ran.err.contains("goes on"), "neither is an error of the job: {}", ran.err);
        slices += 1;
        if slices == 2 {
            desk.touch("go");
        }
    };
    assert_eq!(ran, Ran { status: 0, out: "done\n".into(), err: String::new() });
    assert!(slices >= 2);
    let id = desk.start(&[], "exit 1");
    let begun = Instant::now();
    let ran = desk.call(&["wait", &id]);
    assert_eq!((ran.status, ran.out.as_str()), (3, "failed\n"));
    assert!(begun.elapsed() < Duration::from_secs(10), "not the whole 30 s");
}

// Results.

#[test]
fn a_result_is_the_exact_bytes_and_done_never_comes_before_it() {
    let desk = Desk::new();
    let id =
        desk.start(&["--result-path", "out"], "until [ -e go ]; do sleep .02; done; printf 'a\\0\\377\\n\\n b' >out");
    assert_eq!(desk.refusal(&["result", &id]).0, 2, "it is running");
    desk.touch("go");
    until("the word is terminal", || desk.file(&id, "status") == "done\n");
    assert!(desk.dir(&id).join("result").is_file(), "done, and its result with it");
    // What happens to the path afterwards is not the job's business any more.
    fs::write(desk.path("out"), "something else").unwrap();
    let bytes = desk.command(["result", &id]).output().unwrap();
    assert!(bytes.status.success() && bytes.stderr.is_empty());
    assert_eq!(bytes.stdout, b"a\0\xff\n\n b");
}

#[test]
fn a_result_of_a_job_that_has_none_is_3_with_the_reason() {
    let desk = Desk::new();
    let done = desk.start(&[], "true");
    let failed = desk.start(&["--result-path", "out"], "echo x >out; exit 7");
    desk.ended(&done);
    desk.ended(&failed);
    let (status, why) = desk.refusal(&["result", &done]);
    assert!(status == 3 && why.contains("it is done, and left none"), "{status} {why}");
    let (status, why) = desk.refusal(&["result", &failed]);
    assert!(status == 3 && why.contains("it is failed (exit status 7)"), "{status} {why}");
}

#[test]
fn done_needs_a_regular_fresh_file_of_ours_that_is_neither_empty_nor_too_large() {
    let desk = Desk::new();
    fs::write(desk.path("secret"), "of somebody").unwrap();
    fs::write(desk.path("stale"), "of an earlier run").unwrap();
    desk.age("stale");
    let mut lines = vec![
        ("missing", "true", "it is missing"),
        ("empty", ": >empty", "it is empty"),
        ("stale", "true", "it is older than the job"),
        ("link", "ln -s \"$PWD/secret\" link", "it is no regular file"),
        ("directory", "mkdir directory", "it is no regular file"),
        ("fifo", "mkfifo fifo", "it is no regular file"),
        ("large", "head -c 1001 /dev/zero >large", "it is larger than 1000 bytes"),
    ];
    if is_root() {
        lines.push(("foreign", "echo x >foreign; chown 65534 foreign", "it is not ours"));
    } else {
        skip("only root can give a file away");
    }
    let jobs: Vec<String> = lines
        .iter()
        .map(|(path, line, _)| {
            started(desk.starting(&["--result-path", path], line).env("CE_PEER_RESULT_MAX_BYTES", "1000"))
        })
        .collect();
    for (id, (path, _, why)) in jobs.iter().zip(&lines) {
        assert_eq!(desk.ended(id), "failed", "{path}");
        let (status, told) = desk.refusal(&["result", id]);
        assert!(status == 3 && told.contains(why), "{path}: {status} {told}");
        assert_eq!(desk.record(id)["output"], json!({"error": format!("no result: {why}")}), "the record says it too");
    }
    let mut command = desk.starting(&["--result-path", "full"], "head -c 1000 /dev/zero >full");
    let id = started(command.env("CE_PEER_RESULT_MAX_BYTES", "1000"));
    assert_eq!(desk.ended(&id), "done", "the cap itself is within the cap");
    assert_eq!(desk.call(&["result", &id]).out.len(), 1000);
}

#[test]
fn a_file_is_given_only_if_it_is_regular_ours_and_not_too_large() {
    let desk = Desk::new();
    fs::write(desk.path("file"), "exact\n\nbytes").unwrap();
    symlink(desk.path("file"), desk.path("link")).unwrap();
    run(Command::new("mkfifo").arg(desk.path("fifo")));
    let ran = desk.call(&["result", "--path", "file"]);
    assert_eq!(ran, Ran { status: 0, out: "exact\n\nbytes".into(), err: String::new() });
    assert_eq!(desk.refusal(&["result", "--path", "nowhere"]).0, 3);
    for path in ["link", "fifo", "."] {
        let (status, why) = desk.refusal(&["result", "--path", path]);
        assert!(status == 4 && why.contains("it is no regular file"), "{path}: {status} {why}");
    }
    let ran = run(desk.command(["result", "--path", "file"]).env("CE_PEER_RESULT_MAX_BYTES", "11"));
    assert_eq!((ran.status, ran.out.as_str()), (4, ""), "{ran:?}");
    if is_root() {
        chown(desk.path("file"), Some(NOBODY), None).unwrap();
        let (status, why) = desk.refusal(&["result", "--path", "file"]);
        assert!(status == 4 && why.contains("it is not ours"), "{status} {why}");
    } else {
        skip("only root can give a file away");
    }
}

// Ends.

#[test]
fn a_command_that_a_stranger_kills_is_done_only_with_a_result() {
    let desk = Desk::new();
    let with = desk.start(&["--result-path", "out"], "echo paid >out; kill -KILL $$");
    let without = desk.start(&["--result-path", "none"], "kill -KILL $$");
    let hung_up = desk.start(&[], "kill -HUP $$");
    assert_eq!((desk.ended(&with).as_str(), desk.call(&["result", &with]).out.as_str()), ("done", "paid\n"));
    assert_eq!(
        (desk.ended(&without).as_str(), desk.ended(&hung_up).as_str()),
        ("died-without-result", "died-without-result")
    );
    assert_eq!(desk.refusal(&["result", &without]).0, 3);
    let failed = desk.start(&["--result-path", "none"], "exit 255");
    assert_eq!(desk.ended(&failed), "failed", "an exit status that is no signal's");
}

#[test]
fn a_job_whose_watchdog_was_killed_has_died_without_a_result() {
    let desk = Desk::new();
    let id = desk.start(&["--result-path", "out"], "sleep 60");
    kill(desk.owner(&id), libc::SIGKILL);
    let ran = desk.call(&["wait", &id]);
    assert_eq!((ran.status, ran.out.as_str()), (3, "died-without-result\n"));
    assert_eq!(desk.0.living(), [0; 0]);
    let (status, why) = desk.refusal(&["result", &id]);
    assert!(status == 3 && why.contains("its watchdog died"), "{status} {why}");
}

#[test]
fn a_silent_job_ends_at_the_idle_window_and_a_slow_one_at_the_hard_limit() {
    let desk = Desk::new();
    let silent = started(desk.starting(&[], "echo begin; sleep 60").env("CE_PEER_IDLE_SECS", "0.4"));
    let slow = started(desk.starting(&[], "while echo busy; do sleep .1; done").env("CROSS_MODEL_HARD_SECS", "1"));
    assert_eq!((desk.ended(&silent).as_str(), desk.ended(&slow).as_str()), ("timeout", "timeout"));
    assert_eq!((&desk.record(&silent)["reason"], &desk.record(&slow)["reason"]), (&json!("idle"), &json!("hard")));
    assert_eq!(desk.0.living(), [0; 0]);
}

#[test]
fn a_cli_that_says_nothing_is_kept_alive_by_progress_stamps_and_not_by_chatter() {
    let desk = Desk::new();
    // The wrapper of the CLI stamps what it sees; the CLI itself says nothing for three idle windows.
    let line = "(sleep 3; echo answer >out) & cli=$!; while kill -0 $cli 2>/dev/null; do jobdir touch; sleep .1; done";
    let id = started(desk.starting(&["--result-path", "out"], line).env("CE_PEER_IDLE_SECS", "1"));
    assert_eq!((desk.ended(&id).as_str(), desk.file(&id, "out.log").as_str()), ("done", ""));
    assert_ne!(desk.record(&id)["progress_at"], Value::Null);
}

#[test]
fn a_job_that_floods_its_log_has_failed_and_the_reason_is_told() {
    let desk = Desk::new();
    let endless = started(desk.starting(&[], "while echo flood; do :; done").env("CE_PEER_LOG_MAX_BYTES", "20000"));
    let sudden = started(desk.starting(&[], "head -c 20001 /dev/zero").env("CE_PEER_LOG_MAX_BYTES", "20000"));
    let full = started(desk.starting(&[], "head -c 20000 /dev/zero").env("CE_PEER_LOG_MAX_BYTES", "20000"));
    for id in [endless, sudden] {
        assert_eq!(desk.ended(&id), "failed");
        let (status, why) = desk.refusal(&["result", &id]);
        assert!(status == 3 && why.contains("the log is larger than 20000 bytes"), "{status} {why}");
        assert_eq!(desk.record(&id)["output"]["error"], "the log is larger than 20000 bytes");
    }
    assert_eq!(desk.ended(&full), "done");
    assert_eq!(desk.0.living(), [0; 0]);
}

// Windows.

#[test]
fn all_windows_nest_by_derivation_from_one_knob_and_the_deadline_can_be_read() {
    let desk = Desk::new();
    let windows = |knobs: &[(&str, &str)]| {
        let ran = run(desk.starting(&[], "true").env_remove("CE_PEER_GRACE_SECS").envs(knobs.iter().copied()));
        assert_eq!(ran.status, 0, "{ran:?}");
        let meta: Value = serde_json::from_str(&desk.file(ran.out.trim_end(), "meta.json")).unwrap();
        let told = ran.err.lines().last().unwrap();
        assert!(told.starts_with("peer-job: limits in seconds") && told.contains("deadline"), "{told}");
        let told: Value = serde_json::from_str(&told[told.find('{').unwrap()..]).unwrap();
        assert_eq!(told, meta["limits"], "what is told is what holds");
        ["hard_s", "deadline_s", "supervisor_hard_s"].map(|key| told[key].as_u64().unwrap())
    };
    let knob = "CROSS_MODEL_HARD_SECS";
    let outermost = "CE_PEER_HARD_SECS";
    assert_eq!(windows(&[]), [1200, 1210, 1230]);
    assert_eq!(windows(&[(knob, "1200")]), [1200, 1210, 1230]);
    assert_eq!(windows(&[(knob, "2000")]), [2000, 2010, 2030]);
    assert_eq!(windows(&[(knob, "600")]), [600, 610, 1230]);
    assert_eq!(windows(&[(knob, "1200"), (outermost, "5400")]), [1200, 1210, 5400]);
    assert_eq!(windows(&[(knob, "1200"), (outermost, "1000")]), [1200, 1210, 1210], "never inverted");
    // A job that was given two hours by that knob alone is not reaped after twenty minutes.
    assert_eq!(windows(&[(outermost, "7200")]), [7170, 7180, 7200]);
    assert_eq!(windows(&[(outermost, "40")]), [20, 30, 40]);
}

#[test]
fn a_knob_is_what_its_name_says_and_a_bad_value_is_warned_of() {
    let desk = Desk::new();
    let limits = |knobs: &[(&str, &str)], warned: usize| {
        let ran = run(desk.starting(&[], "true").env_remove("CE_PEER_GRACE_SECS").envs(knobs.iter().copied()));
        let warnings = ran.err.lines().filter(|line| line.starts_with("peer-job: warning: ")).count();
        assert_eq!((ran.status, warnings), (0, warned), "{ran:?}");
        let meta: Value = serde_json::from_str(&desk.file(ran.out.trim_end(), "meta.json")).unwrap();
        ["idle_s", "hard_s", "grace_s"].map(|key| meta["limits"][key].as_f64())
    };
    assert_eq!(limits(&[], 0), [Some(240.0), Some(1200.0), Some(5.0)]);
    assert_eq!(limits(&[("CE_PEER_IDLE_SECS", "0")], 0)[0], None, "hard limit alone");
    let good = [("CE_PEER_IDLE_SECS", "9.5"), ("CROSS_MODEL_HARD_SECS", "90"), ("CE_PEER_GRACE_SECS", "0")];
    assert_eq!(limits(&good, 0), [Some(9.5), Some(90.0), Some(0.0)]);
    let bad = [("CE_PEER_IDLE_SECS", "soon"), ("CROSS_MODEL_HARD_SECS", "-1"), ("CE_PEER_GRACE_SECS", "1.2.3")];
    assert_eq!(limits(&bad, 3), [Some(240.0), Some(1200.0), Some(5.0)]);
    let bad = [("CE_PEER_LOG_MAX_BYTES", "10M"), ("CE_PEER_RESULT_MAX_BYTES", "0"), ("CE_PEER_POLL_SECS", "0")];
    assert_eq!(limits(&bad, 3), [Some(240.0), Some(1200.0), Some(5.0)]);
}

// Reap.

#[test]
fn a_reap_ends_the_whole_tree_and_a_second_one_changes_nothing() {
    let desk = Desk::new();
    let id = desk.start(&[], "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo up; sleep 60; :' & sleep 60; sleep 60");
    until("it is up", || desk.file(&id, "out.log") == "up\n");
    assert_eq!(desk.call(&["reap", &id]), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(desk.0.living(), [0; 0]);
    assert_eq!(desk.call(&["status", &id]).out, "failed\n");
    let record = desk.file(&id, "result.json");
    assert_eq!(desk.call(&["reap", &id]), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!((desk.file(&id, "result.json"), desk.call(&["status", &id]).out), (record, "failed\n".into()));
    let done = desk.start(&[], "true");
    assert_eq!(desk.ended(&done), "done");
    assert_eq!((desk.call(&["reap", &done]).status, desk.ended(&done).as_str()), (0, "done"), "an end stands");
}

#[test]
fn a_reap_without_a_watchdog_ends_what_is_left_and_settles_the_job() {
    let desk = Desk::new();
    let id = desk.start(&[], "(trap '' TERM; echo $$ >leader; sleep 60; sleep 60) & echo up; wait");
    until("it is up", || desk.file(&id, "out.log") == "up\n" && desk.text("leader").ends_with('\n'));
    // The watchdog, and the leader of what it watched: a child is left in the group.
    kill(desk.owner(&id), libc::SIGKILL);
    let leader = desk.text("leader").trim().parse().unwrap();
    kill(leader, libc::SIGKILL);
    until("they are gone", || !is_alive(leader) && !is_alive(desk.owner(&id)));
    assert_ne!(desk.0.living(), [0; 0], "the child lives");
    assert_eq!(desk.call(&["reap", &id]), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(desk.0.living(), [0; 0]);
    let record = desk.file(&id, "result.json");
    assert_eq!(desk.call(&["status", &id]).out, "died-without-result\n");
    assert_eq!(desk.call(&["reap", &id]).status, 0);
    assert_eq!(desk.file(&id, "result.json"), record);
}

#[test]
fn what_a_command_leaves_running_at_its_end_goes_with_it() {
    let desk = Desk::new();
    let id = desk.start(&[], "setsid sleep 60 & sleep 60 & exit 0");
    assert_eq!(desk.ended(&id), "done");
    assert_eq!(desk.0.living(), [0; 0]);
}

// The root, and what is in it.

#[test]
fn runs_that_were_not_touched_for_a_day_are_cleared_but_none_with_a_job_that_has_not_ended() {
    let desk = Desk::new();
    let run_of = |run: &str, line: &str| {
        started(&mut desk.command([
            "start",
            "--no-sweep",
            "--skill",
            "review",
            "--run-id",
            run,
            "--",
            "sh",
            "-c",
            line,
        ]))
    };
    for run in ["ended", "fresh", "partly", "damaged", "foreign"] {
        assert_eq!(desk.ended(&run_of(run, "true")), "done");
    }
    let busy = run_of("busy", "sleep 60");
    let died = run_of("died", "sleep 60");
    let peers = |name: &str| desk.path("peers/review").join(name);
    let pid = fs::read_to_string(peers("died/jobs").join(&died).join("pid")).unwrap().trim().parse().unwrap();
    kill(pid, libc::SIGKILL);
    until("its watchdog is dead", || !is_alive(pid));
    fs::create_dir(peers("scratch")).unwrap();
    fs::create_dir(desk.path("elsewhere")).unwrap();
    desk.touch("elsewhere/kept");
    symlink(desk.path("elsewhere"), peers("link")).unwrap();
    // Nobody can say of it whether it has ended.
    for entry in fs::read_dir(peers("damaged/jobs")).unwrap() {
        let dir = entry.unwrap().path();
        ["result.json", "meta.json"].iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        fs::write(dir.join("status"), "rubbish\n").unwrap();
    }
    fs::write(peers("foreign/jobs/notes"), "of somebody").unwrap();
    for run in ["ended", "partly", "damaged", "foreign", "busy", "died", "scratch"] {
        desk.age(&format!("peers/review/{run}"));
    }
    desk.age("elsewhere");
    fs::write(peers("partly/note"), "of today").unwrap();
    desk.age("peers/review/partly/jobs");
    let left = || {
        let mut left: Vec<String> =
            fs::read_dir(peers("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    };
    desk.start(&["--no-sweep"], "true");
    let all = ["busy", "damaged", "died", "ended", "foreign", "fresh", "link", "partly", "r", "scratch"];
    assert_eq!(left(), all, "--no-sweep keeps all");
    desk.start(&[], "true");
    // What had died has its end since a moment ago: there is a day to read it in.
    assert_eq!(left(), ["busy", "damaged", "died", "foreign", "fresh", "link", "partly", "r"]);
    assert_eq!(fs::read_to_string(peers("died/jobs").join(&died).join("status")).unwrap(), "unknown\n");
    assert!(desk.path("elsewhere/kept").exists());
    assert_eq!(desk.call(&["status", &busy, &died]).out, format!("{busy}\trunning\n{died}\tdied-without-result\n"));
}

#[test]
fn a_job_folder_that_somebody_deleted_degrades_to_a_clear_answer() {
    let desk = Desk::new();
    let gone = desk.start(&[], "sleep 60");
    let other = desk.start(&[], "true");
    assert_eq!(desk.ended(&other), "done");
    fs::remove_dir_all(desk.dir(&gone)).unwrap();
    for verb in ["status", "wait", "result", "reap"] {
        let (status, why) = desk.refusal(&[verb, &gone]);
        assert!(status == 1 && why.contains("no such job"), "{verb}: {status} {why}");
    }
    let path = desk.dir(&gone).display().to_string();
    assert_eq!(desk.refusal(&["status", &path]).0, 1);
    let ran = desk.call(&["status", &gone, &other]);
    assert_eq!((ran.status, ran.out), (1, format!("{other}\tdone\n")), "the others are told all the same");
    for word in ["*", "", "..", "../x", "-", "a b"] {
        assert_ne!(desk.refusal(&["status", word]).0, 0, "{word:?}");
    }
}

#[test]
fn a_root_of_ours_is_narrowed_and_a_foreign_one_or_a_link_is_refused() {
    let desk = Desk::new();
    for dir in ["peers", "peers/review", "peers/review/r"] {
        fs::create_dir(desk.path(dir)).unwrap();
        fs::set_permissions(desk.path(dir), Permissions::from_mode(0o777)).unwrap();
    }
    let id = desk.start(&[], "true");
    assert_eq!(desk.ended(&id), "done");
    for dir in ["peers", "peers/review", "peers/review/r"] {
        assert_eq!(fs::metadata(desk.path(dir)).unwrap().mode() & 0o7777, 0o700, "{dir}");
    }
    let start = ["start", "--skill", "review", "--run-id", "r", "--", "true"];
    let refused = |root: &Path| {
        let ran = run(desk.command(start).env("CE_PEER_JOBS_ROOT", root));
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (4, "", 1), "{ran:?}");
        assert!(ran.err.contains("it is not a directory of ours"), "{ran:?}");
    };
    symlink("peers", desk.path("link")).unwrap();
    refused(&desk.path("link"));
    if !is_root() {
        return skip("only root can give a directory away");
    }
    chown(desk.path("peers/review/r"), Some(NOBODY), None).unwrap();
    refused(&desk.path("peers"));
    for verb in ["status", "wait", "result", "reap"] {
        let (status, why) = desk.refusal(&[verb, &id]);
        assert!(status == 4 && why.contains("it belongs to user"), "{verb}: {status} {why}");
    }
    chown(desk.path("peers"), Some(NOBODY), None).unwrap();
    let mode = fs::metadata(desk.path("peers")).unwrap().mode();
    refused(&desk.path("peers"));
    assert_eq!(fs::metadata(desk.path("peers")).unwrap().mode(), mode, "what is not ours is not touched");
}

#[test]
fn the_root_is_the_users_own_in_tmp_or_where_that_name_is_foreign_in_tmpdir() {
    if !is_root() {
        return skip("only root can become another user");
    }
    /// Goes with the test.
    struct Gone(PathBuf);
    impl Drop for Gone {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }
    let desk = Desk::new();
    fs::set_permissions(desk.path(""), Permissions::from_mode(0o755)).unwrap();
    let uid = 1_000_000 + std::process::id();
    let name = format!("compound-engineering-{uid}");
    let first = Gone(Path::new("/tmp").join(&name));
    fs::create_dir(desk.path("own")).unwrap();
    chown(desk.path("own"), Some(uid), None).unwrap();
    let user = |words: &[&str]| {
        let drop = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()];
        let mut command = desk.0.command("setpriv");
        command.args(drop).arg(script()).args(words).current_dir("/").env("TMPDIR", desk.path("own"));
        run(&mut command)
    };
    if user(&["--help"]).status != 0 {
        return skip("another user cannot run the script where it is");
    }
    let start = ["start", "--skill", "review", "--run-id", "r", "--", "true"];
    let ran = user(&start);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(first.0.join("review/r/jobs").join(ran.out.trim_end()).is_dir());
    assert_eq!(fs::metadata(&first.0).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(user(&["wait", ran.out.trim_end()]).out, "done\n");
    // Somebody else was first.
    fs::remove_dir_all(&first.0).unwrap();
    fs::create_dir(&first.0).unwrap();
    let ran = user(&start);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(desk.path("own").join(name).join("review/r/jobs").join(ran.out.trim_end()).is_dir());
    assert_eq!(user(&["wait", ran.out.trim_end()]).out, "done\n");
}

// The script itself.

#[test]
fn a_wrong_call_is_2_in_one_line_and_makes_nothing() {
    let desk = Desk::new();
    let ways: [&[&str]; 17] = [
        &[],
        &["begin"],
        &["start"],
        &["start", "--skill", "s", "--run-id", "r"],
        &["start", "--skill", "s", "--run-id", "r", "--"],
        &["start", "--skill", "s", "--", "true"],
        &["start", "--run-id", "r", "--", "true"],
        &["start", "--skill", "../s", "--run-id", "r", "--", "true"],
        &["start", "--skill", "s", "--run-id", "..", "--", "true"],
        &["start", "--skill", "s", "--run-id", "r", "--label", "a/b", "--", "true"],
        &["start", "--skill", "s", "--run-id", "r", "--colour", "red", "--", "true"],
        &["status"],
        &["status", "--max-secs", "1", "x"],
        &["wait", "--max-secs", "soon", "x"],
        &["wait", "--max-secs"],
        &["result"],
        &["reap", "a", "b"],
    ];
    for way in ways {
        assert_eq!(desk.refusal(way).0, 2, "{way:?}");
    }
    assert!(!desk.path("peers").exists());
}

#[test]
fn the_tools_are_found_on_path_or_beside_the_script() {
    let desk = Desk::new();
    fs::copy(script(), desk.path("peer-job")).unwrap();
    for tool in ["detach", "jobdir", "watchdog", "sweep"] {
        symlink(tests::bin(tool), desk.path(tool)).unwrap();
    }
    let call = |words: &[&str]| {
        run(desk.command_of(&desk.path("peer-job"), words.iter().copied()).env("PATH", "/usr/bin:/bin"))
    };
    let ran =
        call(&["start", "--skill", "review", "--run-id", "r", "--result-path", "out", "--", "sh", "-c", "echo x >out"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(call(&["wait", ran.out.trim_end()]).out, "done\n");
    assert_eq!(call(&["result", ran.out.trim_end()]).out, "x\n");
}

#[test]
fn it_begins_with_what_it_is_for_and_how_to_run_it_and_can_be_read_at_one_sitting() {
    let text = fs::read_to_string(script()).unwrap();
    let ran = Desk::new().call(&["--help"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("peer-job: ") && ran.out.contains("peer-job start --skill"), "{}", ran.out);
    assert!(ran.out.contains("POSIX sh") && text.starts_with("#!/bin/sh\n"));
    assert!(text.lines().count() <= 300 && text.lines().all(|line| line.chars().count() <= 120));
    assert!(fs::metadata(script()).unwrap().permissions().mode() & 0o111 == 0o111, "it can be run");
    if Command::new("shellcheck").arg("--version").output().is_err() {
        return skip("no shellcheck here");
    }
    assert_eq!(
        run(Command::new("shellcheck").arg(script())),
        Ran { status: 0, out: String::new(), err: String::new() }
    );
}
