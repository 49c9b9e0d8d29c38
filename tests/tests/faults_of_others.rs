//! Faults that tools of this kind are known to have had, each staged as it happens: what carried the work away, what
//! stood in its way, and what was then believed of it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Folder, Kid, Ran, bin, in_session, is_alive, json, kill, pid_in, run, said, skip, state, touch, until};

/// Runs a line of sh in the folder.
fn sh(folder: &Folder, line: &str) -> Ran {
    run(folder.command("sh").args(["-c", line]).current_dir(folder.path("")))
}

/// A launch of a claimed job by its id in `$0`, and a caller that goes on.
fn caller(folder: &Folder, before: &str, line: &str) -> Command {
    let mut command = folder.command("sh");
    command.args(["-c", &format!("{before}; {line}")]).current_dir(folder.path(""));
    command
}

/// The lines of one sweep that has nothing to complain of.
fn swept(folder: &Folder) -> Vec<Value> {
    let ran = folder.run("sweep", [""; 0]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "sweep");
    ran.out.lines().map(json).collect()
}

/// The one line of a sweep, and its end.
fn end_of(folder: &Folder, id: &str) -> String {
    let lines = swept(folder);
    assert_eq!((lines.len(), &lines[0]["job"]), (1, &id.into()), "{lines:?}");
    format!("{}/{}", lines[0]["status"].as_str().unwrap(), lines[0]["reason"].as_str().unwrap())
}

fn log(folder: &Folder, id: &str) -> String {
    fs::read_to_string(folder.file(id, "out.log")).unwrap_or_default()
}

/// What in a job's directory is still being made.
fn unfinished(folder: &Folder, id: &str) -> Vec<String> {
    let names = fs::read_dir(folder.file(id, "")).unwrap();
    let names = names.map(|name| name.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".tmp-")).collect()
}

/// A control group of this test; whoever is left in it is ended with it.
struct Group(PathBuf);

impl Group {
    /// One below a mount whose line in /proc/mounts has this type and this option.
    fn new(kind: &str, option: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let fits = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            words[2] == kind && (option.is_empty() || words[3].split(',').any(|word| word == option))
        };
        let mount = mounts.lines().find(fits)?.split(' ').nth(1)?;
        let dir = PathBuf::from(mount).join(format!("outlive-{kind}-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = Group(dir);
        let writable = fs::OpenOptions::new().write(true).open(group.0.join("cgroup.procs")).is_ok();
        writable.then_some(group)
    }

    fn members(&self) -> Vec<i32> {
        let pids = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn set(&self, name: &str, value: &str) {
        fs::write(self.0.join(name), value).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let limit = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < limit {
            self.members().into_iter().filter(|&pid| pid > 1).for_each(|pid| kill(pid, libc::SIGKILL));
            std::thread::yield_now();
        }
    }
}

// What carries the work away.

#[test]
fn a_job_that_goes_with_its_control_group_is_told_of_by_the_next_sweep() {
    // No session of its own leads out of a group that is ended as one: all that can be had is that nobody waits for it.
    let Some(group) = Group::new("cgroup2", "").filter(|group| group.0.join("cgroup.kill").exists()) else {
        return skip("no control group may be made here, or none can be ended as one");
    };
    let folder = Folder::new();
    folder.claim(&["--id", "job", "--grace", "0"]);
    let enter = format!("echo $$ >{}/cgroup.procs", group.0.display());
    let line = "detach --ready watchdog --job job -- sh -c 'setsid sleep 60 & echo up; sleep 60'; sleep 60; :";
    let mut unit = Kid::quiet(in_session(&mut caller(&folder, &enter, line)));
    until("the job runs", || log(&folder, "job") == "up\n");
    assert!(group.members().contains(&folder.owner("job")), "detached, and yet a member");
    group.set("cgroup.kill", "1");
    assert_eq!(unit.end(), 137);
    until("the group is empty", || group.members().is_empty());
    assert_eq!(folder.word("job"), "running", "nobody was left to say otherwise");
    assert_eq!(end_of(&folder, "job"), "unknown/worker-died");
    assert_eq!((folder.word("job").as_str(), folder.living()), ("unknown", vec![]));
}

#[test]
fn a_job_that_goes_with_its_pid_namespace_is_told_of_from_outside() {
    let folder = Folder::new();
    folder.claim(&["--id", "job", "--grace", "0"]);
    let line = "detach --ready watchdog --job job -- sh -c 'echo up; sleep 60' || exit; : >launched; sleep 60; :";
    let mut container = folder.command("unshare");
    container.args(["-pf", "--kill-child", "--mount-proc", "sh", "-c", line]).current_dir(folder.path(""));
    let mut container = Kid::quiet(&mut container);
    until("it runs, or cannot", || log(&folder, "job") == "up\n" || container.0.try_wait().unwrap().is_some());
    if container.0.try_wait().unwrap().is_some() {
        return skip("no pid namespace may be made here");
    }
    // Its numbers are small ones, which are strangers' out here; and it was told of in another zone and language.
    assert!(folder.owner("job") < 100, "numbers of its own");
    let mut looks = folder.tool("sweep", [""; 0]);
    let nothing = Ran { status: 0, out: String::new(), err: String::new() };
    assert_eq!(run(looks.env("TZ", "Pacific/Apia").env("LC_ALL", "tr_TR.UTF-8")), nothing, "it lives");
    assert_eq!(folder.run("jobdir", ["status", "job"]).out, "running\n");
    kill(container.pid(), libc::SIGKILL);
    assert_eq!(container.end(), 137);
    until("its first process took all with it", || folder.living().is_empty());
    assert_eq!(end_of(&folder, "job"), "unknown/worker-died");
}

#[test]
fn what_was_launched_with_a_shells_last_breath_goes_on_to_its_end() {
    // Nothing of a job may need its launcher once that has returned, not even for the time of an exec.
    let folder = Folder::new();
    let ids: Vec<String> = (0..20).map(|n| folder.claim(&["--id", &format!("job-{n}")])).collect();
    let mut shells: Vec<Kid> = ids
        .iter()
        .map(|id| {
            let job = "until [ -e go ]; do sleep .02; done; echo end";
            let line = format!("detach watchdog --job {id} -- sh -c '{job}'; kill -s KILL -- -$$");
            Kid::quiet(in_session(&mut caller(&folder, ":", &line)))
        })
        .collect();
    shells.iter_mut().for_each(|shell| assert_eq!(shell.end(), 137));
    touch(&folder, "go");
    for id in &ids {
        assert_eq!((folder.ended(id).as_str(), log(&folder, id).as_str()), ("done", "end\n"), "{id}");
    }
    assert_eq!(swept(&folder).len(), 20);
}

// What the work begins with.

#[test]
fn a_job_finds_the_end_of_its_input_where_its_caller_never_ends_his() {
    let folder = Folder::new();
    let (reader, writer) = io::pipe().unwrap();
    for (n, launch) in ["detach --ready watchdog", "watchdog"].iter().enumerate() {
        let id = folder.claim(&["--id", &format!("job-{n}"), "--hard", "15s"]);
        let mut command = caller(&folder, ":", &format!("exec {launch} --job {id} -- sh -c 'cat; echo end'"));
        assert_eq!(Kid::quiet(command.stdin(reader.try_clone().unwrap())).end(), 0, "{launch}");
        assert_eq!((folder.ended(&id).as_str(), log(&folder, &id).as_str()), ("done", "end\n"), "{launch}");
    }
    drop(writer);
}

#[test]
fn a_job_that_reaches_for_the_terminal_of_its_caller_is_not_stopped_by_it() {
    // Whoever sets a terminal from its background is stopped, and stays so until somebody looks.
    let folder = Folder::new();
    if run(folder.command("script").args(["-qec", "true", "/dev/null"])).status != 0 {
        return skip("there is no script(1) to give us a terminal");
    }
    for id in ["apart", "beside"] {
        folder.claim(&["--id", id, "--hard", "15s"]);
    }
    // A shell with job control: what it puts into the background has no right to the terminal.
    let line = "set -m; tty >tty; detach --ready watchdog --job apart -- sh reach
        watchdog --job beside -- sh reach & wait; sh reach >shell &
        until grep -q '^State:.T' /proc/$!/status; do sleep .01; done; kill -KILL $!; : >over";
    fs::write(folder.path("line"), line).unwrap();
    fs::write(folder.path("reach"), "stty sane </dev/tty; stty sane; read answer; echo end").unwrap();
    let mut script = folder.command("script");
    script.args(["-qec", "bash --norc line", "/dev/null"]).current_dir(folder.path(""));
    let mut script = Kid::quiet(&mut script);
    for id in ["apart", "beside"] {
        assert_eq!(folder.ended(id), "done", "{}", folder.record(id));
        assert!(log(&folder, id).ends_with("end\n"), "{}", log(&folder, id));
    }
    until("the shell's own job was stopped", || folder.path("over").exists());
    assert!(said(&folder, "tty").starts_with("/dev/"), "there was a terminal");
    script.end();
}

#[test]
fn a_job_that_says_more_than_a_pipe_holds_on_both_its_streams_is_heard_to_the_end() {
    // Somebody who reads one pipe to its end before the other waits for ever, and so does the writer.
    let folder = Folder::new();
    let block = "head -c 65536 /dev/zero | tr '\\0' x";
    let line =
        format!("printf '[\"'; i=0; while [ $i -lt 40 ]; do {block}; {block} >&2; i=$((i + 1)); done; printf '\"]'");
    for (options, logged) in [(&[][..], 80 * 65536 + 4), (&["--capture"], 40 * 65536)] {
        let id = folder.claim(&["--hard", "15s"]);
        assert_eq!(run(&mut folder.watchdog(&id, options, &line)).status, 0);
        let record = folder.record(&id);
        assert_eq!((&record["status"], &record["log_bytes"]), (&"done".into(), &logged.into()));
        assert_eq!(fs::metadata(folder.file(&id, "out.log")).unwrap().len(), logged);
        let output = record["output"][0].as_str().map(str::len);
        assert_eq!(output, (!options.is_empty()).then_some(40 * 65536));
    }
}

#[test]
fn every_tool_does_its_work_with_no_environment_at_all() {
    let folder = Folder::new();
    let root = folder.root().display().to_string();
    let bare = |tool: &str, words: &[&str]| run(folder.tool(tool, words).env_clear().current_dir("/"));
    let quiet = |out: &str| Ran { status: 0, out: out.to_owned(), err: String::new() };
    assert_eq!(bare("jobdir", &["claim", "-r", &root, "--id", "job"]), quiet("job\n"));
    let dog = bin("watchdog").display().to_string();
    let line = "echo \"[$HOME$LANG$USER$TERM]\"";
    let launch = ["--ready", "--", &dog, "-r", &root, "--job", "job", "--", "/bin/sh", "-c", line];
    assert_eq!(bare("detach", &launch), quiet(""));
    assert_eq!(bare("jobdir", &["wait", "-r", &root, "--slice", "15s", "job"]), quiet(""));
    assert_eq!(log(&folder, "job"), "[]\n");
    let ran = bare("sweep", &["-r", &root, "--", "/bin/cat"]);
    assert_eq!((ran.status, ran.err.as_str(), json(&ran.out)["status"].as_str()), (0, "", Some("done")));
    let mut sleeper = Kid::quiet(folder.command("sleep").arg("60"));
    assert_eq!(bare("reap", &["--grace", "0", &sleeper.pid().to_string()]), quiet(""));
    assert_eq!(sleeper.end(), 137);
    for (tool, words) in [("detach", &["no-such-command"][..]), ("watchdog", &["no-such-command"])] {
        let ran = bare(tool, words);
        assert_eq!((ran.status, ran.out.as_str()), (127, ""), "{ran:?}");
        assert_eq!(ran.err, format!("{tool}: cannot run no-such-command: no such command\n"));
    }
}

#[test]
fn a_place_for_temporary_files_on_another_disk_does_not_matter() {
    // What is made elsewhere cannot be renamed into its place.
    let folder = Folder::new();
    let other = tempfile::tempdir_in("/dev/shm").ok();
    let other = other.as_ref().map_or(folder.path("nowhere"), |dir| dir.path().to_owned());
    for (n, dir) in [other.clone(), folder.path("missing")].iter().enumerate() {
        let id = format!("job-{n}");
        let line = format!(
            "jobdir claim --id {id} --input /etc/passwd && jobdir touch {id} x && detach --ready watchdog --job {id} --capture -- \
                sh -c 'echo [1]; echo [2] | jobdir put' && jobdir wait --slice 15s {id} && sweep | sweep --ack"
        );
        let ran = run(caller(&folder, ":", &line).env("TMPDIR", dir).env("TMP", dir).env("TEMP", dir));
        assert_eq!(ran, Ran { status: 0, out: format!("{id}\n"), err: String::new() });
        assert!(folder.root().join("delivered").join(&id).is_dir());
    }
    let made: Vec<_> = fs::read_dir(other).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    assert!(made.is_empty() && !folder.path("missing").exists(), "{made:?}");
}

#[test]
fn arguments_that_have_grown_too_long_are_a_start_that_failed() {
    let folder = Folder::new();
    fs::write(folder.path("tool"), format!("#!/bin/sh {}\n", "x".repeat(230))).unwrap();
    fs::set_permissions(folder.path("tool"), Permissions::from_mode(0o755)).unwrap();
    folder.claim(&["--id", "grown"]);
    // Downwards to the most that the watchdog itself can be started with; its command gets more than that.
    let most = (1..1500).rev().find_map(|count| {
        let mut command = folder.tool("watchdog", ["--job", "grown", "--", "./tool"]);
        command.args(vec!["a".repeat(83); count]).current_dir(folder.path(""));
        // SAFETY: setrlimit(2) between fork and exec, with a valid limit.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 512 << 10, rlim_max: 512 << 10 };
                libc::setrlimit(libc::RLIMIT_STACK, &raw const limit);
                Ok(())
            });
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok().map(Kid)
    });
    let ran = most.expect("one that fits").ran();
    assert_eq!((ran.status, ran.err.as_str()), (126, "watchdog: cannot run ./tool: argument list too long\n"));
    assert_eq!(end_of(&folder, "grown"), "failed/spawn-failed");
    assert_eq!(sh(&folder, "sweep | sweep --ack").status, 0);
    // One word that no exec takes at all: the shell says so, and the claim does not stay for ever.
    folder.claim(&["--id", "word", "--start-within", "100ms"]);
    let ran = sh(&folder, "exec detach watchdog --job word -- true \"$(head -c 200000 /dev/zero | tr '\\0' x)\"");
    assert!(ran.status == 126 && ran.err.to_lowercase().contains("argument list too long"), "{:.300}", ran.err);
    assert_eq!(folder.run("jobdir", ["wait", "--slice", "15s", "word"]).status, 1);
    assert_eq!(end_of(&folder, "word"), "unknown/never-started");
}

#[test]
fn words_of_any_bytes_reach_the_command_of_a_job_and_leave_a_record_that_is_text() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let long = "l".repeat(5000);
    let words: Vec<OsString> = [&b"\xff\xfe"[..], b"", b"a\nb", b"--", b"\r", b"-x", long.as_bytes(), b"\x1b[2J"]
        .map(|word| OsString::from_vec(word.to_vec()))
        .to_vec();
    let mut command = folder.tool("detach", ["--ready", "--"]);
    command.arg(bin("watchdog")).args(["--job", &id, "--", "sh", "-c", "printf '%s\\0' \"$@\"", "sh"]).args(&words);
    assert_eq!(run(&mut command), Ran { status: 0, out: String::new(), err: String::new() });
    assert_eq!(folder.ended(&id), "done");
    let expected: Vec<u8> = words.iter().cloned().flat_map(|word| [word.into_vec(), vec![0]].concat()).collect();
    assert_eq!(fs::read(folder.file(&id, "out.log")).unwrap(), expected);
    let told = folder.record(&id)["command"].clone();
    assert_eq!(
        (&told[4], &told[5], &told[6], &told[10]),
        (&"\u{fffd}\u{fffd}".into(), &"".into(), &"a\nb".into(), &long.as_str().into())
    );
    assert_eq!(swept(&folder)[0]["command"], told);
}

// Names.

#[test]
fn an_id_that_looks_like_a_number_stays_the_text_it_is() {
    let folder = Folder::new();
    let mut ids = ["213235788261.371110", "007", "1e5", "0", "12345678901234567890123", "1.0", "0x10", "true", "null"];
    for id in ids {
        assert_eq!(folder.claim(&["--id", id, "--meta", &format!("same={id}")]), id);
        let meta = json(&fs::read_to_string(folder.file(id, "meta.json")).unwrap());
        assert_eq!((&meta["job"], &meta["meta"]["same"]), (&id.into(), &id.into()), "{id}");
        assert_eq!(folder.run("watchdog", ["--job", id, "--", "sh", "-c", "printf %s \"$JOB_ID\""]).status, 0);
        assert_eq!((log(&folder, id).as_str(), &folder.record(id)["job"]), (id, &id.into()));
    }
    ids.sort_unstable();
    let lines = swept(&folder);
    let told: Vec<&str> = lines.iter().map(|line| line["job"].as_str().expect("a text")).collect();
    assert_eq!(told, ids);
    assert_eq!(sh(&folder, "sweep | sweep --ack; sweep").out, "");
    assert!(ids.iter().all(|id| folder.root().join("delivered").join(id).is_dir()));
}

#[test]
fn an_id_that_is_too_long_is_refused_with_its_bound_and_a_long_name_is_none_of_the_disks() {
    let folder = Folder::new();
    let ran = folder.run("jobdir", ["claim", "--id", &"i".repeat(300)]);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (2, "", 1));
    assert!(ran.err.contains("128"), "{ran:?}");
    assert!(!folder.root().exists());
    let (name, value) = ("n/".repeat(2500), "v".repeat(5000));
    let id = folder.claim(&["--name", &name, "--meta", &format!("label={value}")]);
    assert_eq!(folder.run("watchdog", ["--job", &id, "true"]).status, 0);
    let line = &swept(&folder)[0];
    assert_eq!((&line["name"], &line["meta"]["label"]), (&name.as_str().into(), &value.as_str().into()));
    assert_eq!(folder.run("sweep", ["--name", &name]).out.lines().count(), 1);
    let names: Vec<_> = fs::read_dir(folder.root().join("jobs")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, [OsString::from(&id)]);
}

#[test]
fn no_error_of_the_file_system_makes_a_claim_out_of_nothing() {
    // Some servers answer a name that is free with "exists", and one that is taken with something else.
    let folder = Folder::new();
    if run(folder.command("strace").args(["-o", "/dev/null", "true"])).status != 0 {
        return skip("strace cannot trace here");
    }
    folder.claim(&["--id", "first"]);
    let jobs = || fs::read_dir(folder.root().join("jobs")).unwrap().count();
    for (errno, words) in [
        ("EACCES", "permission denied"),
        ("EROFS", "read-only file system"),
        ("ESTALE", "stale"),
        ("EINTR", "interrupted"),
        ("EIO", "i/o error"),
        ("EEXIST", "exists"),
    ] {
        for calls in ["mkdir,mkdirat", "rename,renameat,renameat2"] {
            let mut strace = folder.command("timeout");
            // An interruption that comes again and again is none.
            let when = if errno == "EINTR" { ":when=1" } else { "" };
            let inject = format!("inject={calls}:error={errno}{when}");
            strace.args(["-s", "KILL", "15", "strace", "-f", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e"]);
            let ran = run(strace.arg(inject).arg(bin("jobdir")).args(["claim", "--id", "new"]));
            if errno == "EINTR" && ran.status == 0 {
                assert_eq!((ran.out.as_str(), jobs()), ("new\n", 2), "{calls}: {ran:?}");
                assert_eq!(folder.run("jobdir", ["status", "new"]).out, "claimed\n");
                fs::rename(folder.file("new", ""), folder.path("away")).unwrap();
                fs::remove_dir_all(folder.path("away")).unwrap();
                continue;
            }
            assert!(![0, 124, 137].contains(&ran.status), "{errno} for {calls}: {ran:?}");
            assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1), "{errno} for {calls}: {ran:?}");
            // A name that is taken by what is no job is told of in our own words.
            let told = ran.err.to_lowercase().contains(words) || (errno == "EEXIST" && ran.err.contains("'new'"));
            assert!(told, "{errno} for {calls}: {ran:?}");
            assert_eq!(folder.run("jobdir", ["status", "new"]).status, 66, "{errno} for {calls}");
            assert_eq!(jobs(), 1, "{errno} for {calls} left something behind");
        }
    }
    assert_eq!(folder.claim(&["--id", "new"]), "new");
}

// What is believed of it.

#[test]
fn whoever_asks_from_the_claim_on_hears_of_no_death_and_of_no_end_without_its_result() {
    let folder = Folder::new();
    for round in 0..5 {
        let id = folder.claim(&["--id", &format!("job-{round}"), "--start-within", "30s"]);
        let line = format!("detach watchdog --job {id} -- sh -c 'echo [7] | jobdir put'");
        let mut launch = Kid::quiet(&mut caller(&folder, ":", &line));
        let mut order = vec!["claimed\n".to_owned()];
        until("it is done", || {
            let ran = folder.run("jobdir", ["status", &id]);
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "round {round}");
            if order.last() != Some(&ran.out) {
                order.push(ran.out.clone());
            }
            let result = folder.run("jobdir", ["result", &id]);
            if ran.out == "done\n" {
                assert_eq!((result.status, &json(&result.out)["output"][0]), (0, &7.into()), "round {round}");
                return true;
            }
            // The end may have come in between.
            assert!([0, 75].contains(&result.status), "round {round}: {result:?}");
            let ran = folder.run("jobdir", ["wait", "--slice", "0", &id]);
            assert!([0, 75].contains(&ran.status), "round {round}: {ran:?}");
            let row = folder.run("jobdir", ["list", "--json"]).out.lines().map(json).find(|row| row["job"] == *id);
            let row = row.expect("a job is never gone");
            assert_eq!(row["status"] == "done", row["reason"] == "exited", "round {round}: {row}");
            let told = swept(&folder);
            let told = told.iter().find(|line| line["job"] == *id);
            assert!(told.is_none_or(|line| line["status"] == "done" && line["output"][0] == 7), "{told:?}");
            false
        });
        let known = ["claimed\n", "running\n", "done\n"].map(str::to_owned);
        assert!(
            order.is_sorted_by_key(|word| known.iter().position(|one| one == word).expect("a living word")),
            "{order:?}"
        );
        assert_eq!(launch.end(), 0);
    }
}

#[test]
fn a_stopped_owner_past_its_hard_limit_is_told_of_although_its_pid_lives() {
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "0", "--hard", "60s", "--supervisor", "1s", "--grace", "0"]);
    let mut dog = Kid::quiet(&mut folder.watchdog(&id, &[], "echo up >up; while :; do echo; sleep .05; done"));
    said(&folder, "up");
    kill(dog.pid(), libc::SIGSTOP);
    until("it is stopped", || state(dog.pid()) == Some('T'));
    assert_eq!(swept(&folder), Vec::<Value>::new(), "as yet it is within its time");
    // As if it had started long before: past its limit, its caller's deadline and the supervisor's window, though its
    // log still grows.
    let path = folder.file(&id, "owner.json");
    let mut owner = json(&fs::read_to_string(&path).unwrap());
    owner["started_monotonic_s"] = (owner["started_monotonic_s"].as_f64().unwrap() - 100.0).into();
    fs::write(&path, format!("{owner}\n")).unwrap();
    assert_eq!(end_of(&folder, &id), "unknown/wedged");
    assert_eq!(state(dog.pid()), Some('T'));
    kill(dog.pid(), libc::SIGCONT);
    assert_eq!((dog.end(), folder.word(&id).as_str()), (125, "unknown"), "it has lost its claim");
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn a_pid_that_was_given_away_again_is_neither_the_owner_nor_a_target() {
    // In a namespace of its own a number can be had again at once, though in another tick of the clock: within one, no
    // start time tells two processes apart.
    let folder = Folder::new();
    folder.claim(&["--id", "job", "--grace", "0"]);
    let line = "last=/proc/sys/kernel/ns_last_pid; [ -w $last ] || exit 77
        detach --ready watchdog --job job -- sh -c 'echo up; exec sleep 60' || exit 1
        now() { cut -d' ' -f1 /proc/uptime; }; then=$(now); until [ $(now) != $then ]; do :; done
        pid=$(cat $JOBDIR_ROOT/jobs/job/pid); set -- $(cut -d' ' -f22 /proc/$pid/stat); kill -KILL $pid
        while [ -e /proc/$pid ]; do sleep .01; done
        for try in 1 2 3 4 5 6 7 8 9; do echo $((pid - 1)) >$last; sleep 60 & [ $! != $pid ] || break; kill -KILL $!; done
        [ $! = $pid ] || exit 77
        sweep; jobdir status job; reap --grace 0 $pid@$1; echo $?; kill -0 $pid && echo lives";
    let mut unshare = folder.command("unshare");
    let ran = run(unshare.args(["-pf", "--kill-child", "--mount-proc", "sh", "-c", line]).current_dir(folder.path("")));
    if ran.status == 77 || ran.err.contains("unshare") {
        return skip("no number can be given away again here");
    }
    let told: Vec<&str> = ran.out.lines().collect();
    assert_eq!(told.len(), 4, "{ran:?}");
    assert_eq!(json(told[0])["reason"], "worker-died");
    assert_eq!(told[1..], ["unknown", "0", "lives"], "{ran:?}");
}

#[test]
fn without_a_process_table_nothing_is_taken_for_dead_or_for_ended() {
    let folder = Folder::new();
    for id in ["live", "lost", "new"] {
        folder.claim(&["--id", id, "--grace", "0"]);
    }
    folder.start("live", &["sleep", "60"]);
    let mut dog = Kid::quiet(&mut folder.watchdog("lost", &[], "trap '' TERM; echo $$ >left; sleep 60; sleep 60"));
    let left = pid_in(&folder, "left");
    kill(dog.pid(), libc::SIGKILL);
    dog.end();
    let hidden = |line: &str| {
        let line = format!("mount -t tmpfs none /proc || exit 77; {line}");
        run(folder.command("unshare").args(["-Urm", "sh", "-c", &line]).current_dir(folder.path("")))
    };
    if hidden("true").status != 0 {
        return skip("the process table cannot be hidden here");
    }
    // Whoever cannot look says so in one line, and does nothing.
    let ran = hidden(&format!("exec reap --grace 0 {left}"));
    assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (125, "", 1), "{ran:?}");
    assert!(ran.err.starts_with("reap: cannot read the process table: "), "{ran:?}");
    let ran = hidden("exec watchdog --job new -- touch ran");
    assert!(ran.status == 0 || (ran.status == 125 && ran.err.lines().count() == 1), "{ran:?}");
    assert_eq!(ran.status == 0, folder.path("ran").exists());
    let ran = hidden("jobdir status live; exec sweep");
    assert!(ran.out.starts_with("running\n") && !ran.out.contains("\"job\":\"live\""), "{ran:?}");
    match ran.out.lines().skip(1).map(json).find(|line| line["job"] == "lost") {
        None => assert!(folder.word("lost") == "running" && is_alive(left), "neither told of nor touched: {ran:?}"),
        Some(line) => assert!(!is_alive(left) || line["warnings"] != Value::Array(vec![]), "{line}"),
    }
    // Once one can look again all is as it should be.
    assert_eq!(folder.run("reap", ["--grace", "0", &left.to_string()]).status, 0);
    assert!(!is_alive(left));
    assert_eq!(folder.run("jobdir", ["status", "live"]).out, "running\n");
    let all = swept(&folder);
    assert!(all.iter().any(|line| line["job"] == "lost" && line["reason"] == "worker-died"), "{all:?}");
    assert_eq!(folder.run("jobdir", ["cancel", "live"]).status, 0);
    assert_eq!(folder.ended("live"), "failed");
}

#[test]
fn a_failure_and_the_success_after_it_are_both_delivered() {
    // One name, two attempts: the second must not write over what became of the first.
    let folder = Folder::new();
    let first = folder.claim(&["--name", "nightly"]);
    let mut dog = Kid::quiet(&mut folder.watchdog(&first, &[], "echo up >up; exec sleep 60"));
    said(&folder, "up");
    kill(dog.pid(), libc::SIGTERM);
    assert_eq!(dog.end(), 143);
    let second = folder.claim(&["--name", "nightly"]);
    assert_eq!(folder.run("watchdog", ["--job", &second, "true"]).status, 0);
    let ran = folder
        .run("sweep", ["--name", "nightly", "--", "sh", "-c", &format!("cat >>'{}'", folder.path("got").display())]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let got = fs::read_to_string(folder.path("got")).unwrap();
    let reason = |id: &str| {
        let lines: Vec<Value> = got.lines().map(json).filter(|line| line["job"] == id).collect();
        assert_eq!(lines.len(), 1, "{got}");
        lines[0]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!((reason(&first).as_str(), reason(&second).as_str()), ("cancelled", "exited"));
}

// Its result, and its end.

#[test]
fn of_many_documents_put_at_once_one_stands_whole() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let documents: Vec<String> = (0..20).map(|n| format!("[{n},\"{}\"]\n", "x".repeat(5000 * (n % 3)))).collect();
    let puts: Vec<Kid> = documents
        .iter()
        .enumerate()
        .map(|(n, text)| {
            let path = folder.path(format!("document-{n}"));
            fs::write(&path, text).unwrap();
            Kid::heard(&mut folder.tool("jobdir", ["put", &id, path.to_str().unwrap()]))
        })
        .collect();
    for put in puts {
        assert_eq!(put.ran(), Ran { status: 0, out: String::new(), err: String::new() });
    }
    assert!(documents.contains(&fs::read_to_string(folder.file(&id, "output.json")).unwrap()), "a mixture");
    assert_eq!(unfinished(&folder, &id), [""; 0]);
}

#[test]
fn a_record_comes_once_the_tree_is_gone_and_holds_one_document_of_those_put_till_then() {
    let folder = Folder::new();
    let id = folder.claim(&["--hard", "1500ms", "--grace", "300ms"]);
    let line = "trap '' TERM; sh put & sh put & wait; sleep 60";
    fs::write(folder.path("put"), "n=0; while :; do n=$((n + 1)); echo \"{\\\"n\\\":$n}\" | jobdir put; done").unwrap();
    let mut dog = Kid::quiet(&mut folder.watchdog(&id, &[], line));
    until("there is a record", || folder.file(&id, "result.json").exists());
    let left = folder.living();
    assert!(left.iter().all(|&pid| pid == dog.pid()), "{left:?} at the time of the record");
    assert_eq!(dog.end(), 124);
    let record = folder.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&"timeout".into(), &"hard".into()));
    assert!(record["output"]["n"].as_u64().is_some_and(|n| n > 0), "{record}");
    let kept = fs::read_to_string(folder.file(&id, "output.json")).unwrap();
    assert_eq!(json(&kept), record["output"]);
    assert_eq!(folder.word(&id), "timeout");
}

#[test]
fn whoever_cannot_die_is_named_and_waited_for_no_longer_than_a_bound() {
    // A frozen process takes its death only when it is thawed, as one does that waits for a broken disk.
    let Some(group) = Group::new("cgroup", "freezer") else {
        return skip("no group that can be frozen may be made here");
    };
    let folder = Folder::new();
    let enter = format!("echo $$ >{}/cgroup.procs", group.0.display());
    let line = "sleep 60 & echo $! >kid; wait";
    let mut root = Kid::quiet(&mut caller(&folder, &enter, line));
    let kid = pid_in(&folder, "kid");
    group.set("freezer.state", "FROZEN");
    let frozen = || fs::read_to_string(group.0.join("freezer.state")).unwrap() == "FROZEN\n";
    until("all are frozen", frozen);
    let begin = Instant::now();
    let ran = folder.run("reap", ["--grace", "100ms", &root.pid().to_string()]);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let mut named: Vec<i32> = ran.out.lines().map(|pid| pid.parse().unwrap()).collect();
    named.sort_unstable();
    let mut members = vec![root.pid(), kid];
    members.sort_unstable();
    assert_eq!((ran.status, named), (1, members), "{ran:?}");
    group.set("freezer.state", "THAWED");
    assert_eq!(root.end(), 137);
    until("its kid has got its own", || !is_alive(kid));
}
