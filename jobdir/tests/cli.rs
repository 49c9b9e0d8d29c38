//! jobdir as its users meet it: every verb, every flag, every exit status, hostile files, and owners that are dead,
//! wedged, or somebody else's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Folder, Ran, bin, is_alive, kill, run, until};

/// jobdir with its arguments, ended by force where it hangs: then its status is 137.
fn call<S: AsRef<OsStr>>(f: &Folder, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = f.command("timeout");
    command.args(["-s", "KILL", "30"]).arg(bin("jobdir")).args(args);
    command
}

fn jobdir<S: AsRef<OsStr>>(f: &Folder, args: impl IntoIterator<Item = S>) -> Ran {
    run(&mut call(f, args))
}

/// jobdir with these bytes on its standard input.
fn fed(f: &Folder, args: &[&str], bytes: &[u8]) -> Ran {
    let file = f.path("stdin");
    fs::write(&file, bytes).unwrap();
    run(call(f, args).stdin(File::open(file).unwrap()))
}

#[track_caller]
fn says(ran: &Ran, status: i32, out: &str) {
    assert_eq!((ran.status, ran.out.as_str()), (status, out), "{ran:?}");
}

/// It said no: this status, nothing on standard output, and one line that tells why.
#[track_caller]
fn refuses(ran: &Ran, status: i32, why: &str) {
    assert_eq!((ran.status, ran.out.as_str()), (status, ""), "{ran:?}");
    assert!(ran.err.starts_with("jobdir: ") && ran.err.contains(why), "{ran:?}");
    assert!(ran.err.ends_with('\n') && ran.err.lines().count() == 1, "{ran:?}");
    assert!(!ran.err.contains("os error"), "{ran:?}");
}

/// What is in the root, hidden names too; empty where there is no root.
fn everything(f: &Folder) -> Vec<String> {
    fn walk(dir: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            found.push(entry.path().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&f.root(), &mut found);
    found.sort();
    found
}

fn entries(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

fn document(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn meta(f: &Folder, id: &str) -> Value {
    document(f.file(id, "meta.json"))
}

fn rewrite(f: &Folder, id: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = document(f.file(id, name));
    change(&mut value);
    fs::write(f.file(id, name), format!("{value}\n")).unwrap();
}

/// Acknowledges a job as sweep does.
fn deliver(f: &Folder, id: &str) {
    let ran = f.sh(&format!("echo {id} | sweep --ack"));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(f.root().join("delivered").join(id).is_dir());
}

fn is_root() -> bool {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

// ---- stand-ins for a watchdog ----

/// The start time of a process as proc(5) has it.
fn start_of(pid: i32) -> u64 {
    if cfg!(portable) {
        return reap::process::stat(pid).unwrap().proc.start;
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 2..].split(' ').nth(19).unwrap().parse().unwrap()
}

/// Makes a claimed job look owned by the process `pid`: fingerprint, number, and the word `running`.
fn sign(f: &Folder, id: &str, pid: i32, start: u64, change: impl FnOnce(&mut Value)) {
    let meta = meta(f, id);
    let mut owner = json!({
        "version": 1, "pid": pid, "start": start,
        "host": meta["host"], "machine_id": meta["machine_id"], "boot_id": meta["boot_id"],
        "pid_namespace": reap::here::pid_namespace().unwrap(),
        "slept_s": reap::here::slept().as_secs_f64(),
        "started_at": meta["claimed_at"], "started_monotonic_s": reap::here::monotonic().as_secs_f64(),
        "command": ["work"], "session": null, "session_start": null,
    });
    change(&mut owner);
    fs::write(f.file(id, "owner.json"), format!("{owner}\n")).unwrap();
    // Written in place: the lock is on this very file.
    fs::write(f.file(id, "pid"), format!("{pid}\n")).unwrap();
    fs::write(f.file(id, "status"), "running\n").unwrap();
}

/// A process that holds the lock on a job's `pid`.
struct Owner(Child);

impl Owner {
    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Lets `program` own the job.
    fn of(f: &Folder, id: &str, program: &[&str], change: impl FnOnce(&mut Value)) -> Owner {
        let file = File::options().read(true).write(true).open(f.file(id, "pid")).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: flock(2) on a descriptor that `file` keeps open.
        assert_eq!(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }, 0);
        let mut command = f.command(program[0]);
        command.args(&program[1..]);
        // SAFETY: fcntl(2) is async-signal-safe; the descriptor is open in the child, and the lock goes with it.
        unsafe {
            command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            })
        };
        let owner = Owner(command.spawn().unwrap());
        sign(f, id, owner.pid(), start_of(owner.pid()), change);
        owner
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pid that nobody has, and the start time that its owner had.
fn dead(f: &Folder) -> (i32, u64) {
    let mut child = f.command("sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let start = start_of(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    (pid, start)
}

/// Starts `jobdir wait` and returns once it watches something.
fn waiting(f: &Folder, args: &[&str]) -> Child {
    let mut command = f.tool("jobdir", args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let fds = format!("/proc/{}/fd", child.id());
    until("wait watches", || {
        let links = fs::read_dir(&fds).into_iter().flatten().flatten().filter_map(|e| fs::read_link(e.path()).ok());
        let watches = links.into_iter().any(|link| link.to_string_lossy().contains("inotify"));
        // Where nothing is told, it sleeps.
        watches || (cfg!(portable) && tests::state(i32::try_from(child.id()).unwrap()) == Some('S'))
    });
    child
}

/// The end of a child that must come within 15 seconds.
fn end_of(mut child: Child) -> Ran {
    until("the child ends", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

// ---- the command line ----

#[test]
fn help_is_for_people_and_the_version_for_programs() {
    let f = Folder::new();
    for help in [&["--help"][..], &["-h"], &["claim", "--help"]] {
        let ran = jobdir(&f, help);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert!(ran.out.starts_with("Usage: jobdir "));
        assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
        for verb in
            ["claim", "put", "touch", "finish", "status", "show", "wait", "result", "cancel", "list", "path", "prune"]
        {
            assert!(ran.out.contains(&format!("\n  {verb} ")), "{verb}");
        }
    }
    for version in ["--version", "-V"] {
        says(&jobdir(&f, [version]), 0, concat!("jobdir ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn a_wrong_call_is_2_says_why_and_makes_nothing() {
    let f = Folder::new();
    let wrong: &[&[&str]] = &[
        &[],
        &["frob"],
        &["claim", "operand"],
        &["claim", "--frob"],
        &["claim", "-x"],
        &["claim", "--id"],
        &["claim", "--path=yes"],
        &["claim", "--slice", "1"],
        &["claim", "--meta", "novalue"],
        &["claim", "--idle", "-5"],
        &["claim", "--idle", "nan"],
        &["claim", "--idle", "inf"],
        &["claim", "--hard", "5 s"],
        &["claim", "--hard", "1e3"],
        &["claim", "--grace", ""],
        &["claim", "--grace", "5sec"],
        &["claim", "--start-within", "1h30"],
        &["claim", "--supervisor", "30m1h"],
        &["claim", "--supervisor", "9999999d"],
        &["status"],
        &["wait"],
        &["wait", "--slice", "soon", "a"],
        &["result"],
        &["result", "a", "b"],
        &["path"],
        &["finish"],
        &["finish", "a"],
        &["finish", "a", "running"],
        &["finish", "a", "claimed"],
        &["finish", "a", "ended"],
        &["finish", "a", "done", "more"],
        &["finish", "--exit-code", "256", "a", "done"],
        &["finish", "--exit-code", "-1", "a", "done"],
        &["finish", "--exit-code", "+1", "a", "done"],
        &["cancel"],
        &["cancel", "--name", "n", "a"],
        &["list", "a"],
        &["list", "--watch"],
        &["list", "--watch", "--json"],
        &["show"],
        &["show", "a", "b"],
        &["list", "--limit", "-1"],
        &["list", "--limit", "many"],
        &["list", "--status", "dead"],
        &["put"],
        &["put", "a", "b", "c"],
        &["touch"],
        &["touch", "a", "b", "c"],
        &["prune"],
        &["prune", "--older-than", "yesterday"],
        &["prune", "--older-than", "1d", "a"],
    ];
    for args in wrong {
        refuses(&jobdir(&f, *args), 2, "jobdir");
    }
    assert!(!f.root().exists());
}

// ---- claim ----

#[test]
fn a_claim_prints_a_minted_id_and_leaves_a_whole_job() {
    let f = Folder::new();
    let ran = jobdir(&f, ["claim"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let id = ran.out.strip_suffix('\n').unwrap();
    let (stamp, random) = id.split_once('-').unwrap();
    let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "99999999T999999Z");
    assert!(random.len() == 12 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    assert_eq!(entries(&f.root()), ["delivered", "jobs"]);
    assert_eq!(entries(&f.root().join("jobs")), [id]);
    assert_eq!(fs::read_to_string(f.file(id, "status")).unwrap(), "claimed\n");
    assert_eq!(fs::read_to_string(f.file(id, "pid")).unwrap(), "");
    let meta = meta(&f, id);
    assert_eq!((&meta["job"], &meta["name"], &meta["meta"]), (&json!(id), &Value::Null, &json!({})));
    assert!(meta["claim"].as_str().unwrap().len() >= 16);
    for key in ["host", "boot_id", "claimed_at"] {
        assert!(!meta[key].as_str().unwrap().is_empty(), "{key}");
    }
    let claimed_at = meta["claimed_at"].as_str().unwrap();
    assert!(claimed_at.len() == 24 && claimed_at.ends_with('Z'), "{claimed_at}");
    assert!(!f.file(id, "input").exists() && !f.file(id, "result.json").exists());
}

#[test]
fn of_many_claims_of_one_id_exactly_one_wins() {
    let f = Folder::new();
    let children: Vec<Child> = (0..24)
        .map(|_| {
            let mut command = call(&f, ["claim", "--id", "same"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ends: Vec<Ran> = children.into_iter().map(end_of).collect();
    assert_eq!(ends.iter().filter(|ran| ran.status == 0 && ran.out == "same\n").count(), 1, "{ends:?}");
    assert_eq!(ends.iter().filter(|ran| ran.status == 3 && ran.out == "claimed\n").count(), 23, "{ends:?}");
    assert_eq!(entries(&f.root().join("jobs")), ["same"]);
    let minted: Vec<Child> = (0..12).map(|_| call(&f, ["claim"]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let mut ids: Vec<String> = minted.into_iter().map(|child| end_of(child).out).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 12);
}

#[test]
fn a_taken_id_is_3_with_the_settled_word() {
    let f = Folder::new();
    let taken = |id: &str, word: &str| {
        let before = fs::read(f.file(id, "meta.json")).unwrap();
        let ran = jobdir(&f, ["claim", "--id", id, "--name", "second"]);
        says(&ran, 3, &format!("{word}\n"));
        assert!(ran.err.starts_with("jobdir: ") && ran.err.contains(id), "{ran:?}");
        assert_eq!(fs::read(f.file(id, "meta.json")).unwrap(), before, "a lost claim changed the winner's job");
    };
    f.claim(&["--id", "fresh"]);
    taken("fresh", "claimed");
    f.claim(&["--id", "over"]);
    says(&jobdir(&f, ["finish", "over", "timeout"]), 0, "");
    taken("over", "timeout");
    // Nobody looked at this one since its start window ended.
    f.claim(&["--id", "lost", "--start-within", "10ms"]);
    until("the start window is over", || jobdir(&f, ["claim", "--id", "lost"]).out == "unknown\n");
    taken("lost", "unknown");
    deliver(&f, "over");
    taken("over", "timeout");
    assert!(!f.root().join("jobs/over").exists());
    assert!(everything(&f).iter().all(|path| !path.contains("/.")), "{:?}", everything(&f));
}

#[test]
fn a_refused_claim_never_looks_like_a_success() {
    // Regression: with nobody reading standard output, the claim of a taken id ended with 0.
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_ne!(run(call(&f, ["claim", "--id", "a"]).stdout(writer)).status, 0);
    let full = File::create("/dev/full").unwrap();
    assert_ne!(run(call(&f, ["claim", "--id", "a"]).stdout(full)).status, 0);
}

#[test]
fn an_id_that_could_leave_the_root_or_break_a_line_is_refused() {
    let f = Folder::new();
    let long = "x".repeat(300);
    let one_more = "x".repeat(129);
    let mut bad: Vec<OsString> =
        ["../victim", "a/b", "/abs", ".", "..", "", "a\nb", "a\tb", "x\r", "*", "-rf", "_x", "é"]
            .iter()
            .chain([&long.as_str(), &one_more.as_str(), &".hidden", &"a/../../evil"])
            .map(OsString::from)
            .collect();
    bad.push(OsString::from_vec(b"\xff".to_vec()));
    for id in bad {
        refuses(&jobdir(&f, [OsStr::new("claim"), OsStr::new("--id"), &id]), 2, "--id");
    }
    assert!(!f.root().exists(), "a wrong call made the root");
    let longest = "x".repeat(128);
    says(&jobdir(&f, ["claim", "--id", &longest]), 0, &format!("{longest}\n"));
    says(&jobdir(&f, ["claim", "-i", "213235788261.371110"]), 0, "213235788261.371110\n");
}

#[test]
fn a_path_is_absolute_and_a_job_like_its_id() {
    let f = Folder::new();
    fs::create_dir(f.path("odd \u{ff}\n")).unwrap();
    let odd = f.path(OsString::from_vec(b"odd \xc3\xbf\n/\xff root".to_vec()));
    let ran = call(&f, [OsStr::new("claim"), OsStr::new("--path"), OsStr::new("--root"), odd.as_os_str()]).output();
    let mut out = ran.unwrap().stdout;
    assert_eq!(out.pop(), Some(b'\n'));
    let path = OsString::from_vec(out);
    assert!(Path::new(&path).starts_with(odd.join("jobs")) && Path::new(&path).is_dir(), "{path:?}");
    says(&jobdir(&f, [OsStr::new("status"), &path]), 0, "claimed\n");
    let output = call(&f, [OsStr::new("path"), &path]).output().unwrap();
    assert_eq!(OsString::from_vec(output.stdout), {
        let mut line = path.clone();
        line.push("\n");
        line
    });
    refuses(&jobdir(&f, [OsStr::new("status"), odd.join("jobs/none").as_os_str()]), 66, "no such job");
    // A relative root.
    let ran = run(call(&f, ["claim", "--root", "near", "--path", "--id", "x"]).current_dir(f.path(".")));
    assert!(ran.status == 0 && ran.out.starts_with('/') && ran.out.ends_with("/near/jobs/x\n"), "{ran:?}");
    says(&run(call(&f, ["status", "near/jobs/x"]).current_dir(f.path("."))), 0, "claimed\n");
}

#[test]
fn meta_keeps_its_digits_and_its_order() {
    let f = Folder::new();
    fs::write(
        f.path("m"),
        "{\n  \"z\": 1.50,\n  \"big\": 12345678901234567890,\n  \"o\": {\"e\": 1e-7, \"t\": \"a\\n b\"}\n}\n",
    )
    .unwrap();
    let file = f.path("m").display().to_string();
    let id = f.claim(&["--name", "a \"b\"\n", "--meta-file", &file, "--meta", "k=v=w", "-m", "u=\u{1b}é"]);
    let text = fs::read_to_string(f.file(&id, "meta.json")).unwrap();
    let meta = "{\"z\":1.50,\"big\":12345678901234567890,\"o\":{\"e\":1e-7,\"t\":\"a\\n b\"},\"k\":\"v=w\",\"u\":\"\\u001bé\"}";
    assert!(text.contains(&format!("\"meta\":{meta}")), "{text}");
    assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
    assert_eq!(meta_name(&f, &id), "a \"b\"\n");
    says(&jobdir(&f, ["finish", &id, "done"]), 0, "");
    assert!(jobdir(&f, ["result", &id]).out.contains(&format!("\"meta\":{meta}")));
}

fn meta_name(f: &Folder, id: &str) -> String {
    meta(f, id)["name"].as_str().unwrap().to_owned()
}

#[test]
fn meta_that_is_not_one_object_with_each_key_once_is_refused() {
    let f = Folder::new();
    let cases: [(&str, &[&str]); 8] = [
        ("[]", &[]),
        ("42", &[]),
        ("{\"a\":1} {}", &[]),
        ("{\"a\":1", &[]),
        ("", &[]),
        ("{\"a\":1}", &["--meta", "a=2"]),
        ("{}", &["--meta", "a=1", "--meta", "a=1"]),
        ("{\"\\u0061\":1}", &["--meta", "a=2"]),
    ];
    for (text, more) in cases {
        fs::write(f.path("m"), text).unwrap();
        let file = f.path("m").display().to_string();
        let args = ["claim", "--meta-file", &file].into_iter().chain(more.iter().copied());
        refuses(&jobdir(&f, args), 2, "meta");
    }
    fs::write(f.path("m"), b"{\"a\":\"\xff\"}").unwrap();
    let file = f.path("m").display().to_string();
    assert_ne!(jobdir(&f, ["claim", "--meta-file", &file]).status, 0);
    assert_ne!(jobdir(&f, ["claim", "--meta-file", "/nonexistent"]).status, 0);
    assert!(!f.root().exists());
}

#[test]
fn a_meta_file_that_has_a_key_twice_is_refused() {
    let f = Folder::new();
    fs::write(f.path("m"), "{\"a\":1,\"a\":2}").unwrap();
    let file = f.path("m").display().to_string();
    refuses(&jobdir(&f, ["claim", "--meta-file", &file]), 2, "twice");
}

#[test]
fn the_input_is_stored_before_the_claim_returns() {
    let f = Folder::new();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let ran = fed(&f, &["claim", "--id", "a", "--input", "-"], &bytes);
    says(&ran, 0, "a\n");
    assert!(fs::read(f.file("a", "input")).unwrap() == bytes);
    let file = f.path("stdin").display().to_string();
    says(&jobdir(&f, ["claim", "--id", "b", "--input", &file]), 0, "b\n");
    assert!(fs::read(f.file("b", "input")).unwrap() == bytes);
    says(&fed(&f, &["claim", "--id", "c", "--input", "-"], b""), 0, "c\n");
    assert_eq!(fs::read(f.file("c", "input")).unwrap(), b"");
    // From a pipe, as of `<(cmd)`.
    says(&f.sh("{ sleep 0.1; echo late; } | jobdir claim --id d --input /dev/stdin"), 0, "d\n");
    assert_eq!(fs::read(f.file("d", "input")).unwrap(), b"late\n");
}

#[test]
fn a_claim_whose_input_cannot_be_read_leaves_nothing_behind() {
    let f = Folder::new();
    refuses(&jobdir(&f, ["claim", "--input", "/nonexistent/input"]), 125, "/nonexistent/input");
    assert!(!f.root().exists());
    f.claim(&["--id", "a"]);
    let before = everything(&f);
    refuses(&jobdir(&f, ["claim", "--input", "/nonexistent/input"]), 125, "no such file");
    refuses(&jobdir(&f, ["claim", "--input", "/tmp"]), 125, "/tmp");
    assert_eq!(everything(&f), before);
}

#[test]
fn windows_are_read_once_and_derived_from_there() {
    let f = Folder::new();
    let limits = |options: &[&str]| meta(&f, &f.claim(options))["limits"].clone();
    assert_eq!(
        limits(&[]),
        json!({"idle_s":600,"hard_s":null,"grace_s":5,"start_s":60,"deadline_s":null,"supervisor_idle_s":1805,
               "supervisor_hard_s":null})
    );
    assert_eq!(
        limits(&["--idle", "10m", "--hard", "20m", "--grace", "5"]),
        json!({"idle_s":600,"hard_s":1200,"grace_s":5,"start_s":60,"deadline_s":1210,"supervisor_idle_s":1805,
               "supervisor_hard_s":1230})
    );
    assert_eq!(
        limits(&["--idle", "0", "--hard", "0", "--grace", "0", "--start-within", "0", "--supervisor", "0"]),
        json!({"idle_s":null,"hard_s":null,"grace_s":0,"start_s":null,"deadline_s":null,"supervisor_idle_s":null,
               "supervisor_hard_s":null})
    );
    let odd = limits(&["--idle", "250ms", "--hard", "1h30m", "--grace", "0.5", "--start-within", "1d"]);
    assert_eq!((&odd["idle_s"], &odd["hard_s"], &odd["start_s"]), (&json!(0.25), &json!(5400), &json!(86400)));
    assert_eq!((&odd["grace_s"], &odd["deadline_s"]), (&json!(0.5), &json!(5405.5)));
    assert_eq!(odd["supervisor_idle_s"], json!(1.25));
    let explicit = |d: &str| limits(&["--hard", "100", "--grace", "5", "--supervisor", d])["supervisor_hard_s"].clone();
    assert_eq!((explicit("3m"), explicit("1"), explicit("110")), (json!(180), json!(110), json!(110)));
}

#[test]
fn a_flag_is_before_the_environment_and_that_before_the_default() {
    let f = Folder::new();
    let claimed = |environment: &[(&str, &str)], options: &[&str]| {
        let mut command = call(&f, std::iter::once("claim").chain(options.iter().copied()));
        let ran = run(command.envs(environment.iter().copied()));
        assert_eq!(ran.status, 0, "{ran:?}");
        (meta(&f, ran.out.trim_end())["limits"].clone(), ran.err)
    };
    let all = [
        ("JOB_IDLE_SECS", "1m"),
        ("JOB_HARD_SECS", "100"),
        ("JOB_GRACE_SECS", "2"),
        ("JOB_START_SECS", "9"),
        ("JOB_SUPERVISOR_SECS", "500"),
    ];
    let (limits, err) = claimed(&all, &[]);
    assert_eq!(
        limits,
        json!({"idle_s":60,"hard_s":100,"grace_s":2,"start_s":9,"deadline_s":107,"supervisor_idle_s":182,
               "supervisor_hard_s":500})
    );
    assert_eq!(err, "");
    let (limits, _) = claimed(&all, &["--idle", "5", "--hard", "0"]);
    assert_eq!((&limits["idle_s"], &limits["hard_s"], &limits["grace_s"]), (&json!(5), &Value::Null, &json!(2)));
    for (name, _) in all {
        for bad in ["soon", "-1", "", "nan", "1e9"] {
            let (limits, err) = claimed(&[(name, bad)], &[]);
            let default = json!({"idle_s":600,"hard_s":null,"grace_s":5,"start_s":60});
            for (key, value) in default.as_object().unwrap() {
                assert_eq!(&limits[key], value, "{name}={bad}");
            }
            assert_eq!(err.lines().count(), 1, "{err}");
            assert!(err.starts_with("jobdir: warning: ") && err.contains(name), "{err}");
        }
    }
}

#[test]
fn a_claim_inside_a_job_ends_before_it() {
    let f = Folder::new();
    let now = reap::here::wall().as_secs();
    let limits = |deadline: &str, options: &[&str]| {
        let mut command = call(&f, std::iter::once("claim").chain(options.iter().copied()));
        let ran = run(command.env("JOB_DEADLINE", deadline));
        assert_eq!(ran.status, 0, "{ran:?}");
        (meta(&f, ran.out.trim_end())["limits"].clone(), ran.err)
    };
    for options in [&[][..], &["--hard", "1h"], &["--hard", "10m", "--grace", "1h"], &["--hard", "0", "--grace", "0"]] {
        let (limits, err) = limits(&(now + 100).to_string(), options);
        let (hard, grace) = (limits["hard_s"].as_f64().unwrap(), limits["grace_s"].as_f64().unwrap());
        assert!(hard > 0.0 && hard + grace <= 100.0, "{options:?} {limits}");
        assert_eq!(err, "");
    }
    let (short, _) = limits(&(now + 100).to_string(), &["--hard", "10"]);
    assert_eq!((&short["hard_s"], &short["grace_s"]), (&json!(10), &json!(5)));
    // A deadline that is over leaves next to nothing, and never "unlimited".
    let (over, _) = limits(&(now - 100).to_string(), &[]);
    assert!(over["hard_s"].as_f64().unwrap() < 1.0, "{over}");
    let (bad, err) = limits("tomorrow", &[]);
    assert_eq!(bad["hard_s"], Value::Null);
    assert!(err.starts_with("jobdir: warning: JOB_DEADLINE") && err.lines().count() == 1, "{err}");
}

#[test]
fn a_claim_whose_id_cannot_be_told_is_withdrawn() {
    let f = Folder::new();
    let ran = run(call(&f, ["claim"]).stdout(File::create("/dev/full").unwrap()));
    refuses(&ran, 125, "standard output");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = run(call(&f, ["claim", "--id", "a"]).stdout(writer));
    assert_ne!(ran.status, 0);
    assert_eq!(entries(&f.root().join("jobs")), [""; 0]);
    says(&jobdir(&f, ["claim", "--id", "a"]), 0, "a\n");
}

#[test]
fn closed_standard_streams_do_not_get_into_the_files() {
    let f = Folder::new();
    says(&f.sh("exec jobdir claim --id a <&- 2>&-"), 0, "a\n");
    assert_eq!(fs::read_to_string(f.file("a", "status")).unwrap(), "claimed\n");
    says(&f.sh("exec jobdir claim --id a <&- 2>&-"), 3, "claimed\n");
    says(&f.sh("jobdir finish nothing done <&- >&- 2>&-; echo $?"), 0, "66\n");
    f.sh("exec jobdir finish a done <&- >&- 2>&-");
    assert_eq!(fs::read_to_string(f.file("a", "status")).unwrap(), "done\n");
    assert_eq!(f.record("a")["reason"], "finished");
    assert_eq!(meta(&f, "a")["job"], "a");
}

#[test]
fn under_any_umask_the_root_is_ours_alone_and_no_file_is_writable_by_others() {
    for mask in ["0", "002", "077"] {
        let f = Folder::new();
        let line = format!(
            "umask {mask}; jobdir claim --id a --input /etc/passwd && echo '{{}}' | jobdir put a && jobdir touch a x && jobdir finish a failed && echo a | sweep --ack && jobdir claim --id b"
        );
        let ran = f.sh(&line);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "umask {mask}");
        assert_eq!(fs::metadata(f.root()).unwrap().mode() & 0o7777, 0o700);
        for path in everything(&f) {
            let mode = fs::metadata(&path).unwrap().mode();
            assert_eq!(mode & 0o022, 0, "umask {mask}: {path} {mode:o}");
            assert!(mask != "077" || mode & 0o077 == 0, "umask {mask}: {path} {mode:o}");
        }
    }
}

#[test]
fn the_directories_above_a_new_root_are_made_safe_under_umask_0() {
    // Regression: .local and .local/state became 0777, and the root in them was refused at once.
    let f = Folder::new();
    fs::create_dir(f.path("home")).unwrap();
    let ran = run(f
        .command("sh")
        .args(["-c", "umask 0; exec jobdir claim --id a"])
        .env_remove("JOBDIR_ROOT")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", f.path("home")));
    says(&ran, 0, "a\n");
    for dir in [".local", ".local/state"] {
        assert_eq!(fs::metadata(f.path("home").join(dir)).unwrap().mode() & 0o022, 0, "{dir}");
    }
}

// ---- the root ----

#[test]
fn the_root_is_the_option_else_the_environment_else_the_state_directory() {
    let f = Folder::new();
    let at = |environment: &[(&str, &str)], options: &[&str]| {
        let mut command = call(&f, ["claim", "--path"].iter().chain(options));
        for name in ["JOBDIR_ROOT", "XDG_STATE_HOME", "HOME"] {
            command.env_remove(name);
        }
        for (name, dir) in environment {
            command.env(name, if dir.is_empty() { dir.into() } else { f.path(dir) });
        }
        let ran = run(&mut command);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        Path::new(ran.out.trim_end()).ancestors().nth(2).unwrap().to_owned()
    };
    let all = [("JOBDIR_ROOT", "r"), ("XDG_STATE_HOME", "x"), ("HOME", "h")];
    let option = f.path("o").display().to_string();
    assert_eq!(at(&all, &["-r", &option]), f.path("o"));
    assert_eq!(at(&all, &[]), f.path("r"));
    assert_eq!(at(&all[1..], &[]), f.path("x/jobdir"));
    assert_eq!(at(&all[2..], &[]), f.path("h/.local/state/jobdir"));
    assert_eq!(at(&[("JOBDIR_ROOT", ""), ("XDG_STATE_HOME", ""), ("HOME", "h")], &[]), f.path("h/.local/state/jobdir"));
    let ran = run(f.command("env").arg("-i").arg(bin("jobdir")).arg("claim"));
    refuses(&ran, 2, "--root");
    let ran = run(f.command("env").arg("-i").arg(bin("jobdir")).args(["claim", "--id", "a", "-r"]).arg(f.root()));
    assert_eq!(ran, Ran { status: 0, out: "a\n".into(), err: String::new() });
}

#[test]
fn a_root_that_is_not_safely_ours_is_refused_before_anything_in_it_is_read() {
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    says(&jobdir(&f, ["finish", "a", "done"]), 0, "");
    let refused = |root: &Path| {
        let job = root.join("jobs/a");
        let verbs: [&[&str]; 6] = [
            &["claim"],
            &["status", "a"],
            &["list"],
            &["result", "a"],
            &["wait", "a"],
            &["prune", "--older-than", "0"],
        ];
        for verb in verbs {
            let ran = jobdir(&f, verb.iter().map(OsStr::new).chain([OsStr::new("--root"), root.as_os_str()]));
            refuses(&ran, 77, "cannot use job root");
        }
        refuses(&jobdir(&f, [OsStr::new("status"), job.as_os_str()]), 77, "cannot use job root");
    };
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o770, 0o720, 0o702, 0o777, 0o1777] {
        chmod(&f.root(), mode);
        refused(&f.root());
    }
    chmod(&f.root(), 0o755);
    says(&jobdir(&f, ["status", "a"]), 0, "done\n");
    // A link, with and without a slash behind it.
    symlink(f.root(), f.path("link")).unwrap();
    refused(&f.path("link"));
    refused(&f.path("link/"));
    symlink("/nonexistent", f.path("dangling")).unwrap();
    refuses(&jobdir(&f, [OsStr::new("claim"), OsStr::new("-r"), f.path("dangling").as_os_str()]), 77, "link");
    // An ancestor that anybody may rename things in, reached straight or through a link.
    for dir in ["open", "open/safe", "sticky"] {
        fs::create_dir(f.path(dir)).unwrap();
    }
    fs::rename(f.root(), f.path("open/safe/root")).unwrap();
    chmod(&f.path("open"), 0o777);
    symlink(f.path("open/safe"), f.path("detour")).unwrap();
    refused(&f.path("open/safe/root"));
    refused(&f.path("detour/root"));
    chmod(&f.path("open"), 0o1777);
    let root = f.path("detour/root").display().to_string();
    says(&jobdir(&f, ["status", "a", "-r", &root]), 0, "done\n");
}

#[test]
fn the_root_of_another_user_is_refused() {
    let f = Folder::new();
    if is_root() {
        fs::create_dir_all(f.path("theirs/jobs")).unwrap();
        std::os::unix::fs::chown(f.path("theirs"), Some(65534), Some(65534)).unwrap();
        let theirs = f.path("theirs").display().to_string();
        refuses(&jobdir(&f, ["list", "-r", &theirs]), 77, "belongs to user 65534");
        refuses(&jobdir(&f, ["claim", "-r", &theirs]), 77, "belongs to user 65534");
        assert_eq!(entries(&f.path("theirs/jobs")), [""; 0]);
    } else if fs::metadata("/usr").unwrap().uid() == fs::metadata(f.path(".")).unwrap().uid() {
        eprintln!("skipped: in this user namespace nothing belongs to another user");
    } else {
        refuses(&jobdir(&f, ["list", "-r", "/usr"]), 77, "belongs to user");
    }
}

#[test]
fn a_claim_refused_for_its_root_leaves_nothing_behind() {
    // Regression: the root was made first and judged then, and stayed.
    let f = Folder::new();
    fs::create_dir(f.path("open")).unwrap();
    fs::set_permissions(f.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let root = f.path("open/new/root").display().to_string();
    refuses(&jobdir(&f, ["claim", "-r", &root]), 77, "sticky");
    assert_eq!(entries(&f.path("open")), [""; 0]);
}

#[test]
fn a_missing_root_is_an_empty_one() {
    let f = Folder::new();
    says(&jobdir(&f, ["list"]), 0, "");
    says(&jobdir(&f, ["list", "--json"]), 0, "");
    says(&jobdir(&f, ["prune", "--older-than", "0"]), 0, "");
    assert_eq!(jobdir(&f, ["cancel", "--name", "n"]).status, 1);
    for verb in ["status", "show", "wait", "result", "cancel", "path"] {
        refuses(&jobdir(&f, [verb, "a"]), 66, "cannot open job a: no such job");
    }
    refuses(&jobdir(&f, ["finish", "a", "done"]), 66, "no such job");
    refuses(&jobdir(&f, ["touch", "a"]), 66, "no such job");
    refuses(&fed(&f, &["put", "a"], b"{}"), 66, "no such job");
    assert!(!f.root().exists(), "a look made the root");
    f.claim(&["--id", "b"]);
    for bad in ["a", "../jobs/b", "jobs", ".", "b/", "/", "b\n"] {
        assert_eq!(jobdir(&f, ["status", bad]).status, 66, "{bad:?}");
    }
    assert_eq!(jobdir(&f, [OsStr::new("status"), f.root().join("other/b").as_os_str()]).status, 66);
}

#[test]
fn foreign_entries_are_no_jobs_and_stay_as_they_are() {
    let f = Folder::new();
    f.claim(&["--id", "ours"]);
    says(&jobdir(&f, ["finish", "ours", "done"]), 0, "");
    let jobs = f.root().join("jobs");
    fs::write(jobs.join(".DS_Store"), "x").unwrap();
    fs::write(jobs.join("notes.json"), "[]").unwrap();
    fs::create_dir(jobs.join("empty")).unwrap();
    fs::create_dir(jobs.join("theirs")).unwrap();
    fs::write(jobs.join("theirs/file"), "x").unwrap();
    fs::create_dir(jobs.join(OsString::from_vec(b"odd \xff".to_vec()))).unwrap();
    symlink("/nonexistent", jobs.join("zz")).unwrap();
    symlink(jobs.join("ours"), jobs.join("alias")).unwrap();
    fs::create_dir(jobs.join("left")).unwrap();
    let before = everything(&f);
    let ran = jobdir(&f, ["list", "--json"]);
    assert_eq!((ran.status, ran.err.as_str(), ran.out.lines().count()), (0, "", 1), "{ran:?}");
    for id in ["notes.json", "empty", "theirs", "zz", "alias", "left"] {
        refuses(&jobdir(&f, ["status", id]), 66, "no such job");
        refuses(&jobdir(&f, ["result", id]), 66, "no such job");
        refuses(&jobdir(&f, ["wait", "--slice", "0", id]), 66, "no such job");
        refuses(&jobdir(&f, ["cancel", id]), 66, "job");
        let ran = jobdir(&f, ["claim", "--id", id]);
        assert_ne!(ran.status, 0, "a claim of a foreign name: {ran:?}");
        for args in [&["touch", id][..], &["put", id], &["finish", id, "done"]] {
            assert_ne!(jobdir(&f, args).status, 0, "{args:?}");
        }
    }
    assert_eq!(jobdir(&f, ["cancel", "--name", "n"]).status, 1);
    says(&jobdir(&f, ["prune", "--older-than", "0"]), 0, "");
    assert_eq!(everything(&f), before);
}

#[test]
fn a_foreign_directory_is_no_job_to_any_verb() {
    let f = Folder::new();
    f.claim(&["--id", "ours"]);
    fs::create_dir(f.root().join("jobs/empty")).unwrap();
    for args in [&["path", "empty"][..], &["touch", "empty"], &["put", "empty"], &["finish", "empty", "done"]] {
        let ran = fed(&f, args, b"{}");
        assert_eq!((ran.status, ran.out.as_str()), (66, ""), "{args:?} {ran:?}");
    }
    assert_eq!(entries(&f.root().join("jobs/empty")), [""; 0]);
}

// ---- put, touch, finish ----

#[test]
fn the_output_is_exactly_one_json_document() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let pretty = "{\r\n  \"z\" : 1.50,\n\t\"a\": [ 12345678901234567890, \"x\\n\u{2028}\" ]\n}\n";
    says(&fed(&f, &["put", &id], pretty.as_bytes()), 0, "");
    let kept = fs::read(f.file(&id, "output.json")).unwrap();
    let bad: [&[u8]; 14] = [
        b"",
        b"\n",
        b"42",
        b"\"text\"",
        b"null",
        b"true",
        b"{} {}",
        b"{}\n{}\n",
        b"warning: x\n{}",
        b"{}\ntrailer",
        b"\xef\xbb\xbf{}",
        b"[NaN]",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":1",
    ];
    for bytes in bad {
        refuses(&fed(&f, &["put", &id], bytes), 1, "cannot publish");
        assert_eq!(fs::read(f.file(&id, "output.json")).unwrap(), kept);
    }
    says(&jobdir(&f, ["finish", &id, "failed"]), 0, "");
    let result = jobdir(&f, ["result", &id]).out;
    assert!(result.contains("\"output\":{\"z\":1.50,\"a\":[12345678901234567890,\"x\\n\u{2028}\"]}"), "{result}");
    assert!(everything(&f).iter().all(|path| !path.contains("/.")), "{:?}", everything(&f));
}

#[test]
fn the_latest_output_wins_and_after_the_verdict_none_is_taken() {
    let f = Folder::new();
    let id = f.claim(&[]);
    says(&fed(&f, &["put", &id], b"[1]"), 0, "");
    fs::write(f.path("doc"), "{\"n\":2}").unwrap();
    let file = f.path("doc").display().to_string();
    says(&jobdir(&f, ["put", &id, &file]), 0, "");
    assert_eq!(fs::read_to_string(f.file(&id, "output.json")).unwrap(), "{\"n\":2}\n");
    says(&fed(&f, &["put", &id, "-"], b"[3]"), 0, "");
    refuses(&jobdir(&f, ["put", &id, "/nonexistent"]), 125, "/nonexistent");
    says(&jobdir(&f, ["finish", &id, "done"]), 0, "");
    assert_eq!(f.record(&id)["output"], json!([3]));
    refuses(&fed(&f, &["put", &id], b"[4]"), 3, "has ended");
    assert_eq!(fs::read_to_string(f.file(&id, "output.json")).unwrap(), "[3]\n");
    deliver(&f, &id);
    refuses(&fed(&f, &["put", &id], b"[4]"), 3, "has ended");
}

#[test]
fn an_output_may_be_nested_deeply_and_be_large() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let deep = format!("{{\"d\":{}{},\"big\":\"{}\"}}", "[".repeat(5000), "]".repeat(5000), "y".repeat(2_000_000));
    says(&fed(&f, &["put", &id], deep.as_bytes()), 0, "");
    says(&jobdir(&f, ["finish", &id, "done"]), 0, "");
    let ran = jobdir(&f, ["result", &id]);
    assert!(ran.status == 0 && ran.out.contains(&deep) && ran.out.matches('\n').count() == 1);
}

#[test]
fn inside_a_job_put_and_touch_need_no_job() {
    let f = Folder::new();
    let path = f.claim(&["--path"]);
    let id = path.rsplit('/').next().unwrap();
    let inside = |args: &[&str], bytes: &[u8]| {
        fs::write(f.path("stdin"), bytes).unwrap();
        let stdin = File::open(f.path("stdin")).unwrap();
        run(call(&f, args).env("JOB_DIR", &path).env("JOBDIR_ROOT", "/nonexistent").stdin(stdin))
    };
    says(&inside(&["put"], b"[1]"), 0, "");
    assert_eq!(fs::read_to_string(f.file(id, "output.json")).unwrap(), "[1]\n");
    fs::write(f.path("doc"), "[2]").unwrap();
    says(&inside(&["put", f.path("doc").to_str().unwrap()], b""), 0, "");
    assert_eq!(fs::read_to_string(f.file(id, "output.json")).unwrap(), "[2]\n");
    says(&inside(&["put", "-"], b"[3]"), 0, "");
    says(&inside(&["touch"], b""), 0, "");
    says(&inside(&["touch", "half\nway"], b""), 0, "");
    assert_eq!(fs::read_to_string(f.file(id, "progress")).unwrap().trim_end(), "half\nway");
    // With two operands the first is the job.
    let other = f.claim(&["--path"]);
    says(&inside(&["touch", &other, "elsewhere"], b""), 0, "");
    assert_eq!(fs::read_to_string(Path::new(&other).join("progress")).unwrap(), "elsewhere\n");
    assert_eq!(inside(&["touch", "a", "b", "c"], b"").status, 2);
}

#[test]
fn a_stamp_is_a_sign_of_life_until_the_end() {
    let f = Folder::new();
    let id = f.claim(&[]);
    says(&jobdir(&f, ["touch", &id, "3 of 7"]), 0, "");
    assert_eq!(fs::read_to_string(f.file(&id, "progress")).unwrap(), "3 of 7\n");
    let row: Value = serde_json::from_str(&jobdir(&f, ["list", "--json"]).out).unwrap();
    assert_eq!(row["progress"], "3 of 7");
    says(&jobdir(&f, ["touch", &id]), 0, "");
    assert!(f.file(&id, "progress").exists());
    assert_eq!(jobdir(&f, ["touch", &id, &"x".repeat(100_000)]).status, 2);
    says(&jobdir(&f, ["finish", &id, "done"]), 0, "");
    refuses(&jobdir(&f, ["touch", &id, "late"]), 3, "has ended");
}

#[test]
fn an_end_is_recorded_by_hand_once() {
    let f = Folder::new();
    for word in ["done", "failed", "timeout", "unknown"] {
        let id = f.claim(&["--name", "n"]);
        says(&jobdir(&f, ["finish", &id, word, "--exit-code", "7", "--error", "the host\nburned"]), 0, "");
        let record = f.record(&id);
        assert_eq!((&record["status"], &record["reason"]), (&json!(word), &json!("finished")));
        assert_eq!((&record["exit_code"], &record["error"]), (&json!(7), &json!("the host\nburned")));
        assert_eq!((&record["job"], &record["claim"]), (&json!(id), &meta(&f, &id)["claim"]));
        assert_eq!((&record["name"], &record["version"]), (&json!("n"), &json!(1)));
        for key in [
            "signal",
            "claimed_at",
            "started_at",
            "ended_at",
            "progress_at",
            "duration_s",
            "host",
            "pid",
            "command",
            "cpu_s",
            "max_rss_kib",
            "log",
            "log_bytes",
            "warnings",
            "output",
            "meta",
        ] {
            assert!(record.get(key).is_some(), "{key}");
        }
        assert_eq!(f.word(&id), word);
        let before = fs::read(f.file(&id, "result.json")).unwrap();
        refuses(&jobdir(&f, ["finish", &id, "done"]), 3, "has ended already");
        assert_eq!(fs::read(f.file(&id, "result.json")).unwrap(), before);
        says(&jobdir(&f, ["status", &id]), 0, &format!("{word}\n"));
    }
}

#[test]
fn of_many_hands_exactly_one_records_the_end() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let words = ["done", "failed", "timeout", "unknown"];
    let hands: Vec<Child> =
        (0..16).map(|n| call(&f, ["finish", &id, words[n % 4]]).stderr(Stdio::piped()).spawn().unwrap()).collect();
    let ends: Vec<i32> = hands.into_iter().map(|child| end_of(child).status).collect();
    let won: Vec<usize> = (0..16).filter(|&at| ends[at] == 0).collect();
    assert_eq!((won.len(), ends.iter().filter(|&&end| end == 3).count()), (1, 15), "{ends:?}");
    assert_eq!(
        (f.record(&id)["status"].as_str().unwrap(), f.word(&id).as_str()),
        (words[won[0] % 4], words[won[0] % 4])
    );
}

#[test]
fn a_job_whose_owner_lives_is_not_finished_by_hand() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    refuses(&jobdir(&f, ["finish", &id, "done"]), 3, "its owner lives");
    says(&jobdir(&f, ["status", &id]), 0, "running\n");
    assert!(!f.file(&id, "result.json").exists());
    owner.end();
    says(&jobdir(&f, ["finish", &id, "failed"]), 0, "");
    assert_eq!(f.record(&id)["pid"], json!(owner.pid()));
}

#[test]
fn what_put_has_reported_as_published_stands_in_the_record() {
    // Regression: a hand that ended the job while the document was being written left it out of the record.
    for end in [&["finish", "a", "done"][..], &["cancel", "a"]] {
        let f = Folder::new();
        f.claim(&["--id", "a"]);
        fs::write(f.path("doc"), format!("[\"{}\"]", "x".repeat(10_000_000))).unwrap();
        let doc = f.path("doc").display().to_string();
        let mut put = call(&f, ["put", "a", &doc]).stderr(Stdio::piped()).spawn().unwrap();
        let dir = f.root().join("jobs/a");
        until("the document is being written", || {
            put.try_wait().unwrap().is_some()
                || entries(&dir).iter().any(|name| name.to_string_lossy().starts_with(".tmp-"))
        });
        says(&jobdir(&f, end), 0, "");
        let put = end_of(put);
        let kept = f.record("a")["output"] != Value::Null;
        assert!(put.status == 3 || (put.status == 0 && kept), "{end:?}: {put:?}, and the record has no output");
    }
}

#[test]
fn a_damaged_output_does_not_keep_a_job_from_its_end() {
    let plants: [fn(&Path); 3] = [
        |path| fs::write(path, "{").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap(),
    ];
    for plant in plants {
        let f = Folder::new();
        f.claim(&["--id", "a"]);
        plant(&f.file("a", "output.json"));
        says(&jobdir(&f, ["finish", "a", "failed"]), 0, "");
        assert_eq!((f.word("a").as_str(), &f.record("a")["output"]), ("failed", &Value::Null));
    }
}

// ---- status, result, path ----

#[test]
fn status_is_one_word_and_of_several_jobs_id_tab_word() {
    let f = Folder::new();
    for id in ["a", "b"] {
        f.claim(&["--id", id]);
    }
    says(&jobdir(&f, ["finish", "b", "failed"]), 0, "");
    says(&jobdir(&f, ["status", "a"]), 0, "claimed\n");
    says(&jobdir(&f, ["status", "a", "b"]), 0, "a\tclaimed\nb\tfailed\n");
    let ran = jobdir(&f, ["status", "a", "missing", "b"]);
    says(&ran, 66, "a\tclaimed\nb\tfailed\n");
    assert!(ran.err.contains("cannot open job missing: no such job"), "{ran:?}");
    let path = f.root().join("jobs/b").display().to_string();
    says(&jobdir(&f, ["status", &path]), 0, "failed\n");
    deliver(&f, "b");
    // The path that a caller remembers goes on to work.
    says(&jobdir(&f, ["status", &path]), 0, "failed\n");
    says(&jobdir(&f, ["status", "b"]), 0, "failed\n");
    says(&jobdir(&f, ["path", "b"]), 0, &format!("{}\n", f.root().join("delivered/b").display()));
    says(&jobdir(&f, ["path", "a"]), 0, &format!("{}\n", f.root().join("jobs/a").display()));
    says(&jobdir(&f, ["wait", &path]), 1, "");
    let ran = jobdir(&f, ["result", &path]);
    assert!(ran.status == 0 && ran.out.contains("\"job\":\"b\""), "{ran:?}");
}

#[test]
fn a_view_that_was_left_behind_is_completed_by_whoever_looks() {
    let looks: [(&str, &[&str]); 5] =
        [("status", &[]), ("wait", &[]), ("result", &[]), ("list", &["--json"]), ("claim", &["--id"])];
    for (verb, options) in looks {
        for word in ["running\n", "claimed\n", "done\r\n", "runn", ""] {
            let f = Folder::new();
            f.claim(&["--id", "a"]);
            says(&jobdir(&f, ["finish", "a", "timeout"]), 0, "");
            fs::write(f.file("a", "status"), word).unwrap();
            let args: Vec<&str> = match verb {
                "list" => vec!["list", "--json"],
                _ => [verb].into_iter().chain(options.iter().copied()).chain(["a"]).collect(),
            };
            let ran = jobdir(&f, args);
            let status = match verb {
                "wait" => 124,
                "claim" => 3,
                _ => 0,
            };
            assert_eq!(ran.status, status, "{verb} {word:?} {ran:?}");
            assert_eq!(fs::read_to_string(f.file("a", "status")).unwrap(), "timeout\n", "{verb} {word:?}");
        }
    }
}

#[test]
fn a_terminal_word_without_a_record_is_damage() {
    let f = Folder::new();
    let id = f.claim(&[]);
    fs::write(f.file(&id, "status"), "done\n").unwrap();
    let ran = jobdir(&f, ["status", &id]);
    says(&ran, 0, "unknown\n");
    assert!(ran.err.starts_with("jobdir: ") && ran.err.contains(&id) && ran.err.lines().count() == 1, "{ran:?}");
    let ran = jobdir(&f, ["wait", &id]);
    assert!(ran.status == 1 && ran.err.contains(&id), "{ran:?}");
    let ran = jobdir(&f, ["result", &id]);
    assert!(ran.status != 0 && ran.status != 75 && ran.out.is_empty() && ran.err.contains(&id), "{ran:?}");
    let ran = jobdir(&f, ["list", "--json"]);
    let row: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(row["status"], "unknown");
    says(&jobdir(&f, ["list", "--json", "--status", "done"]), 0, "");
}

#[test]
fn a_terminal_word_with_an_unreadable_record_is_damage_too() {
    // Regression: a record that holds `42` beside `done` was a success to status and wait.
    for bytes in [&b"{\"job\":\"a\",\"trunc"[..], b"42\n", b"\xff\xfe\n", b"", &vec![b'x'; 3 << 20]] {
        let f = Folder::new();
        f.claim(&["--id", "a"]);
        says(&jobdir(&f, ["finish", "a", "done"]), 0, "");
        fs::write(f.file("a", "result.json"), bytes).unwrap();
        let ran = jobdir(&f, ["result", "a"]);
        assert!(ran.status == 125 && ran.out.is_empty() && ran.err.contains("job a"), "{ran:?}");
        let ran = jobdir(&f, ["wait", "a"]);
        assert!(ran.status == 1 && ran.err.contains("job a"), "{ran:?}");
        let ran = jobdir(&f, ["status", "a"]);
        assert!(ran.status == 0 && ran.out == "unknown\n" && ran.err.contains("job a"), "{ran:?}");
    }
}

#[test]
fn a_status_that_is_not_one_word_and_a_newline_never_means_an_end() {
    let f = Folder::new();
    for (n, text) in ["done\r\n", "done", "done\n\n", "DONE\n", "done done\n", "runn", "", "\n"].iter().enumerate() {
        let id = f.claim(&["--id", &format!("j{n}")]);
        fs::write(f.file(&id, "status"), text).unwrap();
        let ran = jobdir(&f, ["status", &id]);
        says(&ran, 0, "claimed\n");
        assert_eq!(jobdir(&f, ["wait", "--slice", "0", &id]).status, 75, "{text:?}");
    }
}

#[test]
fn there_is_no_result_before_the_end() {
    let f = Folder::new();
    let id = f.claim(&[]);
    refuses(&jobdir(&f, ["result", &id]), 75, "it is claimed");
    says(&jobdir(&f, ["finish", &id, "failed"]), 0, "");
    let ran = jobdir(&f, ["result", &id]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, fs::read_to_string(f.file(&id, "result.json")).unwrap());
}

#[test]
fn a_closed_pipe_is_quiet_and_a_full_device_is_125() {
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    says(&jobdir(&f, ["finish", "a", "done"]), 0, "");
    for args in [&["list"][..], &["list", "--json"], &["status", "a"], &["result", "a"], &["path", "a"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(call(&f, args).stdout(writer)).err, "", "{args:?}");
        refuses(&run(call(&f, args).stdout(File::create("/dev/full").unwrap())), 125, "standard output");
    }
}

// ---- wait ----

#[test]
fn each_end_has_its_own_answer() {
    let f = Folder::new();
    for (word, status) in [("done", 0), ("failed", 1), ("unknown", 1), ("timeout", 124)] {
        let id = f.claim(&[]);
        says(&jobdir(&f, ["finish", &id, word]), 0, "");
        assert_eq!(jobdir(&f, ["wait", &id]), Ran { status, out: String::new(), err: String::new() });
        assert_eq!(jobdir(&f, ["wait", "--slice", "0", &id]).status, status);
        deliver(&f, &id);
        assert_eq!(jobdir(&f, ["wait", &id]).status, status);
    }
    refuses(&jobdir(&f, ["wait", "none"]), 66, "cannot open job none: no such job");
}

#[test]
fn a_wait_ends_with_its_slice() {
    let f = Folder::new();
    let id = f.claim(&[]);
    for (slice, least) in [("0", 0), ("200ms", 200), ("1s", 1000)] {
        let began = Instant::now();
        let ran = jobdir(&f, ["wait", "--slice", slice, &id]);
        let took = began.elapsed();
        refuses(&ran, 75, "has not ended");
        assert!(took >= Duration::from_millis(least) && took < Duration::from_secs(8), "{slice}: {took:?}");
    }
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    refuses(&jobdir(&f, ["wait", "-s", "0.2", &id]), 75, "has not ended");
    owner.end();
}

#[test]
fn a_wait_ends_when_the_job_does() {
    let f = Folder::new();
    for (word, status) in [("done", 0), ("failed", 1), ("timeout", 124)] {
        let id = f.claim(&[]);
        let began = Instant::now();
        let child = waiting(&f, &["wait", "--slice", "60s", &id]);
        says(&jobdir(&f, ["finish", &id, word]), 0, "");
        assert_eq!(end_of(child), Ran { status, out: String::new(), err: String::new() });
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn a_wait_ends_when_the_owner_dies() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    let child = waiting(&f, &["wait", "--slice", "60s", &id]);
    owner.end();
    assert_eq!(end_of(child).status, 1);
    assert_eq!(f.record(&id)["reason"], "worker-died");
}

#[test]
fn a_wait_for_a_job_that_goes_away_ends_soon() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let child = waiting(&f, &["wait", "--slice", "60s", &id]);
    fs::rename(f.root().join("jobs").join(&id), f.path("away")).unwrap();
    let ran = end_of(child);
    refuses(&ran, 66, &id);
    // With a living owner too.
    let id = f.claim(&[]);
    let _owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    let child = waiting(&f, &["wait", "--slice", "60s", &id]);
    fs::rename(f.root().join("jobs").join(&id), f.path("away too")).unwrap();
    refuses(&end_of(child), 66, &id);
}

#[test]
fn a_wait_goes_on_when_another_delivers_the_job() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let child = waiting(&f, &["wait", "--slice", "60s", &id]);
    let ran = f.sh(&format!("jobdir finish {id} done; echo {id} | sweep --ack"));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(end_of(child).status, 0);
}

#[test]
fn a_claimed_job_that_nobody_starts_ends_the_wait_by_itself() {
    let f = Folder::new();
    let id = f.claim(&["--start-within", "300ms"]);
    let began = Instant::now();
    let ran = jobdir(&f, ["wait", &id]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let record = f.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&json!("unknown"), &json!("never-started")));
    assert_eq!((&record["started_at"], &record["pid"]), (&Value::Null, &Value::Null));
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    // Without a start window it waits for its turn for ever.
    let queued = f.claim(&["--start-within", "0"]);
    assert_eq!(jobdir(&f, ["wait", "--slice", "300ms", &queued]).status, 75);
}

#[test]
fn of_several_jobs_the_worst_counts() {
    let f = Folder::new();
    for (id, word) in [("d", "done"), ("t", "timeout"), ("f", "failed")] {
        f.claim(&["--id", id]);
        says(&jobdir(&f, ["finish", id, word]), 0, "");
    }
    f.claim(&["--id", "c"]);
    let wait = |jobs: &[&str]| jobdir(&f, ["wait", "--slice", "0"].iter().chain(jobs)).status;
    assert_eq!(wait(&["d", "d"]), 0);
    assert_eq!(wait(&["t", "d"]), 124);
    assert_eq!(wait(&["d", "t", "f"]), 1);
    assert_eq!(wait(&["f", "c", "d"]), 75);
    assert_eq!(wait(&["d", "t", "f", "c", "missing"]), 66);
    // One goes away during the wait.
    let child = waiting(&f, &["wait", "--slice", "60s", "c", "f"]);
    fs::rename(f.root().join("jobs/c"), f.path("away")).unwrap();
    assert_eq!(end_of(child).status, 66);
}

#[test]
fn any_of_several_jobs_ends_the_wait_and_is_named() {
    let f = Folder::new();
    for id in ["a", "b", "c"] {
        f.claim(&["--id", id]);
    }
    assert_eq!(jobdir(&f, ["wait", "--any", "--slice", "0", "a", "b"]).status, 75);
    let child = waiting(&f, &["wait", "--any", "--slice", "60s", "a", "b", "c"]);
    says(&jobdir(&f, ["finish", "b", "failed"]), 0, "");
    assert_eq!(end_of(child), Ran { status: 1, out: "b\tfailed\n".into(), err: String::new() });
    says(&jobdir(&f, ["finish", "c", "done"]), 0, "");
    says(&jobdir(&f, ["wait", "--any", "a", "b", "c"]), 1, "b\tfailed\nc\tdone\n");
    says(&jobdir(&f, ["wait", "--any", "a", "c"]), 0, "c\tdone\n");
}

#[test]
fn a_failed_job_never_looks_done_because_nobody_reads() {
    // Regression: `wait --any` of a failed job ended with 0 where standard output was closed.
    let f = Folder::new();
    let id = f.claim(&[]);
    says(&jobdir(&f, ["finish", &id, "failed"]), 0, "");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = run(call(&f, ["wait", "--any", &id]).stdout(writer));
    assert_ne!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.err, "");
}

#[test]
fn a_wait_ends_with_the_callers_deadline() {
    let f = Folder::new();
    let id = f.claim(&["--hard", "1", "--grace", "0"]);
    // The deadline is 6 s after the start, and the supervisor's window 26 s.
    let _owner = Owner::of(&f, &id, &["sleep", "300"], |owner| {
        owner["started_monotonic_s"] = json!(reap::here::monotonic().as_secs_f64() - 10.0);
    });
    let ran = jobdir(&f, ["wait", &id]);
    refuses(&ran, 75, "deadline");
    assert!(!ran.err.contains("error"), "{ran:?}");
    says(&jobdir(&f, ["status", &id]), 0, "running\n");
    let other = f.claim(&["--hard", "1", "--grace", "0"]);
    refuses(&jobdir(&f, ["wait", "--slice", "0", &other]), 75, "has not ended");
}

// ---- cancel ----

#[test]
fn cancel_ends_what_was_not_started_and_lets_an_end_stand() {
    let f = Folder::new();
    let id = f.claim(&["--name", "n"]);
    says(&jobdir(&f, ["cancel", &id]), 0, "");
    let record = f.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&json!("failed"), &json!("cancelled")));
    assert_eq!(f.word(&id), "failed");
    let before = fs::read(f.file(&id, "result.json")).unwrap();
    says(&jobdir(&f, ["cancel", &id]), 0, "");
    assert_eq!(fs::read(f.file(&id, "result.json")).unwrap(), before);
    refuses(&jobdir(&f, ["cancel", "none"]), 66, "no such job");
    // By name: the live ones alone, and 1 where there is none.
    assert_eq!(jobdir(&f, ["cancel", "--name", "n"]).status, 1);
    assert_eq!(jobdir(&f, ["cancel", "-n", "other"]).status, 1);
    let (one, two, three) = (f.claim(&["--name", "n"]), f.claim(&["--name", "n"]), f.claim(&["--name", "m"]));
    says(&jobdir(&f, ["cancel", "--name", "n"]), 0, "");
    says(&jobdir(&f, ["status", &one, &two, &three]), 0, &format!("{one}\tfailed\n{two}\tfailed\n{three}\tclaimed\n"));
    // Each is asked, whatever became of the one before.
    let ran = jobdir(&f, ["cancel", "none", &three]);
    assert_eq!((ran.status, f.word(&three).as_str()), (66, "failed"), "{ran:?}");
}

#[test]
fn cancel_asks_the_verified_owner_and_nobody_else() {
    let f = Folder::new();
    let id = f.claim(&[]);
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    says(&jobdir(&f, ["cancel", &id]), 0, "");
    until("the owner got its TERM", || owner.0.try_wait().unwrap().is_some());
    // A number that belongs to a stranger by now: another start time, another namespace.
    for change in [("start", json!(1)), ("pid_namespace", json!(1)), ("boot_id", json!("another"))] {
        let id = f.claim(&[]);
        let mut stranger = Owner::of(&f, &id, &["sleep", "300"], |owner| {
            owner[change.0] = change.1.clone();
            owner["machine_id"] = json!("another");
            owner["host"] = json!("another");
        });
        assert_ne!(jobdir(&f, ["cancel", &id]).status, 0, "{change:?}");
        assert!(stranger.0.try_wait().unwrap().is_none(), "{change:?}: a stranger was signalled");
        stranger.end();
    }
}

// ---- list and prune ----

#[test]
fn list_is_a_table_for_people_and_json_lines_for_programs() {
    let f = Folder::new();
    let ids = ["c", "a", "b"];
    for id in ids {
        f.claim(&["--id", id, "--name", &format!("name-{id}"), "--meta", "k=v"]);
        std::thread::sleep(Duration::from_millis(3));
    }
    says(&jobdir(&f, ["finish", "a", "timeout"]), 0, "");
    says(&jobdir(&f, ["touch", "b", "3 of 7"]), 0, "");
    let ran = jobdir(&f, ["list"]);
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["ID", "NAME", "STATUS", "REASON", "AGE", "SILENT", "ATTEMPT", "PROGRESS"]);
    let firsts: Vec<&str> = lines[1..].iter().map(|line| line[0]).collect();
    assert_eq!(firsts, ["b", "a", "c"], "newest first: {}", ran.out);
    assert_eq!(lines[2][1..4], ["name-a", "timeout", "finished"]);
    assert!(ran.out.contains("3 of 7"));
    let rows = |args: &[&str]| -> Vec<Value> {
        let ran = jobdir(&f, ["list", "--json"].iter().chain(args));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let names = |args: &[&str]| -> Vec<String> {
        rows(args).iter().map(|row| row["job"].as_str().unwrap().to_owned()).collect()
    };
    let all = rows(&[]);
    assert_eq!(all.len(), 3);
    for key in ["job", "claim", "name", "status", "reason", "claimed_at", "progress", "attempt", "meta", "silent_s"] {
        assert!(all.iter().all(|row| row.get(key).is_some()), "{key}");
    }
    assert_eq!((&all[0]["status"], &all[0]["progress"]), (&json!("claimed"), &json!("3 of 7")));
    assert_eq!((&all[1]["status"], &all[1]["reason"]), (&json!("timeout"), &json!("finished")));
    assert_eq!((&all[1]["meta"], &all[1]["claim"]), (&json!({"k":"v"}), &meta(&f, "a")["claim"]));
    assert_eq!(names(&["--name", "name-c"]), ["c"]);
    assert_eq!(names(&["--status", "timeout,done"]), ["a"]);
    assert_eq!(names(&["--status", "claimed", "--limit", "1"]), ["b"]);
    assert_eq!(names(&["--limit", "0"]), [""; 0]);
    deliver(&f, "a");
    assert_eq!(names(&[]), ["b", "c"]);
    assert_eq!(names(&["--all"]), ["b", "a", "c"]);
    assert_eq!(names(&["-a", "-n", "name-a"]), ["a"]);
    says(&jobdir(&f, ["list", "--name", "nobody"]), 0, "");
}

#[test]
fn control_characters_never_reach_a_terminal() {
    let f = Folder::new();
    let id = f.claim(&["--name", "a\u{1b}[31m\nb\u{9b}c\u{7f}"]);
    says(&jobdir(&f, ["touch", &id, "x\u{1b}]0;y\u{7}\nz\r"]), 0, "");
    for args in [&["list"][..], &["list", "--json"]] {
        let ran = jobdir(&f, args);
        assert!(ran.status == 0 && ran.out.chars().all(|c| c == '\n' || !c.is_control()), "{ran:?}");
        assert_eq!(ran.out.lines().count(), if args.len() == 1 { 2 } else { 1 });
    }
    let ran = jobdir(&f, ["status", "no\u{1b}[31m\nwhere"]);
    assert!(ran.err.trim_end().chars().all(|c| !c.is_control()), "{ran:?}");
}

#[test]
fn a_long_history_can_be_listed() {
    // Regression: every directory was held open, and past the usual 1024 descriptors jobs were left out.
    let f = Folder::new();
    f.claim(&["--id", "j0"]);
    says(&jobdir(&f, ["finish", "j0", "done"]), 0, "");
    deliver(&f, "j0");
    let texts = ["meta.json", "result.json", "status", "pid"];
    let texts = texts.map(|name| (name, fs::read_to_string(f.file("j0", name)).unwrap()));
    for n in 1..1100 {
        let dir = f.root().join(format!("delivered/j{n}"));
        fs::create_dir(&dir).unwrap();
        for (name, text) in &texts {
            fs::write(dir.join(name), text.replace("\"j0\"", &format!("\"j{n}\""))).unwrap();
        }
    }
    let ran = f.sh("ulimit -n 1024; jobdir list --all --json | wc -l");
    assert_eq!((ran.out.trim(), ran.err.lines().next()), ("1100", None));
}

#[test]
fn prune_removes_what_was_delivered_long_ago_and_nothing_else() {
    let f = Folder::new();
    for id in ["delivered", "pending", "live", "owned"] {
        f.claim(&["--id", id]);
    }
    for id in ["delivered", "pending", "owned"] {
        says(&jobdir(&f, ["finish", id, "done"]), 0, "");
    }
    deliver(&f, "delivered");
    let jobs = f.root().join("jobs");
    fs::create_dir(jobs.join(".claim-x")).unwrap();
    fs::write(jobs.join(".claim-x/status"), "claimed\n").unwrap();
    fs::create_dir(jobs.join(".claim-busy")).unwrap();
    fs::create_dir(jobs.join(".prune-y")).unwrap();
    fs::create_dir(jobs.join(".theirs")).unwrap();
    fs::write(f.file("pending", ".tmp-0123"), "x").unwrap();
    let busy = File::open(jobs.join(".claim-busy")).unwrap();
    // SAFETY: flock(2) on a descriptor that `busy` keeps open.
    assert_eq!(unsafe { libc::flock(busy.as_raw_fd(), libc::LOCK_EX) }, 0);
    let owner = File::open(f.file("owned", "pid")).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::flock(owner.as_raw_fd(), libc::LOCK_EX) }, 0);

    let before = everything(&f);
    says(&jobdir(&f, ["prune", "--older-than", "0", "--dry-run"]), 0, "delivered\n");
    says(&jobdir(&f, ["prune", "--older-than", "0", "--dry-run", "--undelivered"]), 0, "delivered\npending\n");
    assert_eq!(everything(&f), before, "a dry run changed something");
    says(&jobdir(&f, ["prune", "--older-than", "1h", "--undelivered"]), 0, "");
    assert!(f.file("delivered", "status").exists() && f.file("pending", "status").exists());
    assert!(!jobs.join(".claim-x").exists() && !jobs.join(".prune-y").exists(), "leftovers stayed");
    assert!(jobs.join(".claim-busy").exists(), "a claim in the making was removed");
    assert!(jobs.join(".theirs").exists());
    assert!(!f.file("pending", ".tmp-0123").exists());
    says(&jobdir(&f, ["prune", "--older-than", "0"]), 0, "delivered\n");
    assert_eq!(entries(&f.root().join("delivered")), [""; 0]);
    says(&jobdir(&f, ["prune", "--older-than", "0", "--undelivered"]), 0, "pending\n");
    says(&jobdir(&f, ["status", "live", "owned"]), 0, "live\tclaimed\nowned\tdone\n");
    drop(owner);
    says(&jobdir(&f, ["prune", "--older-than", "0", "--undelivered"]), 0, "owned\n");
    says(&jobdir(&f, ["claim", "--id", "pending"]), 0, "pending\n");
}

// ---- hostile files ----

const NAMES: [&str; 7] = ["status", "pid", "meta.json", "owner.json", "result.json", "progress", "delivery.json"];

/// Puts something hostile in place of each file of a claimed, a running and an ended job, and calls every verb.
fn every_verb_on(kind: &str, plant: impl Fn(&Path)) {
    let f = Folder::new();
    let (pid, start) = dead(&f);
    for name in NAMES {
        for state in ["claimed", "running", "ended"] {
            let id = format!("{}-{state}", name.replace('.', "-"));
            for (n, args) in [
                &["status"][..],
                &["status", "healthy"],
                &["wait", "--slice", "0"],
                &["result"],
                &["path"],
                &["touch"],
                &["put"],
                &["cancel"],
                &["finish"],
            ]
            .iter()
            .enumerate()
            {
                let id = format!("{id}-{n}");
                if n == 1 {
                    continue;
                }
                let ran = run(call(&f, ["claim", "--id", &id]).env("JOBDIR_SYNC", "0"));
                assert_eq!(ran.status, 0, "{ran:?}");
                match state {
                    "running" => sign(&f, &id, pid, start, |_| ()),
                    "ended" => says(&jobdir(&f, ["finish", &id, "done"]), 0, ""),
                    _ => {}
                }
                let path = f.file(&id, name);
                let _ = fs::remove_file(&path);
                plant(&path);
                let mut args: Vec<&str> = args.to_vec();
                args.push(&id);
                if args[0] == "finish" {
                    args.push("failed");
                }
                let ran = fed(&f, &args, b"{}");
                assert!([0, 1, 3, 66, 75, 125].contains(&ran.status), "{kind} for {name}: {args:?} {ran:?}");
                assert!(!ran.err.contains("panicked"), "{kind} for {name}: {args:?} {ran:?}");
                let spoken = ran.err.lines().all(|line| line.starts_with("jobdir: "));
                assert!(spoken, "{kind} for {name}: {args:?} {ran:?}");
                if ran.status > 1 {
                    assert!(!ran.err.is_empty(), "{kind} for {name}: {args:?} {ran:?}");
                }
            }
        }
    }
    for args in [&["list"][..], &["list", "--json", "--all"], &["prune", "--older-than", "0", "--undelivered"]] {
        let ran = jobdir(&f, args);
        assert!([0, 1].contains(&ran.status) && !ran.err.contains("panicked"), "{kind}: {args:?} {ran:?}");
    }
}

#[test]
fn a_fifo_in_place_of_a_file_neither_blocks_nor_breaks_a_verb() {
    every_verb_on("a FIFO", |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap());
}

#[test]
fn a_directory_in_place_of_a_file_breaks_no_verb() {
    every_verb_on("a directory", |path| fs::create_dir(path).unwrap());
}

#[test]
fn a_link_in_place_of_a_file_is_never_followed() {
    let aim = Folder::new();
    fs::write(aim.path("victim"), "done\n").unwrap();
    every_verb_on("a link", |path| symlink(aim.path("victim"), path).unwrap());
    assert_eq!(fs::read_to_string(aim.path("victim")).unwrap(), "done\n");
}

#[test]
fn a_huge_file_in_place_of_a_small_one_breaks_no_verb() {
    let huge = vec![b'7'; 3 << 20];
    every_verb_on("3 MiB", |path| fs::write(path, &huge).unwrap());
}

#[test]
fn damaged_text_in_place_of_a_file_breaks_no_verb() {
    every_verb_on("damage", |path| fs::write(path, b"{\"\xff\0").unwrap());
}

#[test]
fn one_bad_job_does_not_hide_the_others() {
    let f = Folder::new();
    for id in ["bad", "good"] {
        f.claim(&["--id", id]);
    }
    fs::write(f.file("bad", "meta.json"), "{").unwrap();
    let ran = jobdir(&f, ["list", "--json"]);
    assert!(ran.out.contains("\"job\":\"good\"") && ran.err.contains("bad"), "{ran:?}");
    let ran = jobdir(&f, ["status", "bad", "good"]);
    assert!(ran.out.contains("good\tclaimed\n") && ran.err.contains("bad"), "{ran:?}");
}

#[test]
fn a_job_without_its_meta_can_be_ended_by_hand_or_pruned() {
    // It is emitted as damaged at every sweep; somebody must be able to be done with it.
    let f = Folder::new();
    f.claim(&["--id", "bad"]);
    fs::write(f.file("bad", "meta.json"), "{").unwrap();
    let finished = jobdir(&f, ["finish", "bad", "failed"]).status == 0;
    let pruned = jobdir(&f, ["prune", "--older-than", "0", "--undelivered"]).out == "bad\n";
    let taken = f.sh("sweep 2>/dev/null | sweep --ack").status == 0;
    assert!(finished || pruned || taken, "nobody can be done with it");
}

// ---- owners that are dead, wedged, or not ours to judge ----

#[test]
fn a_job_whose_owner_died_is_unknown_and_never_run_twice() {
    let f = Folder::new();
    let (pid, start) = dead(&f);
    for verb in ["status", "wait", "result", "list", "claim"] {
        let id = f.claim(&[]);
        sign(&f, &id, pid, start, |_| ());
        match verb {
            "list" => drop(jobdir(&f, ["list"])),
            "claim" => says(&jobdir(&f, ["claim", "--id", &id]), 3, "unknown\n"),
            _ => drop(jobdir(&f, [verb, &id])),
        }
        assert_eq!(f.word(&id), "unknown", "{verb}");
        let record = f.record(&id);
        assert_eq!((&record["status"], &record["reason"]), (&json!("unknown"), &json!("worker-died")));
        assert_eq!((&record["pid"], &record["command"]), (&json!(pid), &json!(["work"])));
        assert!(record["started_at"].is_string());
    }
    // One that died between its number and its word.
    let id = f.claim(&[]);
    fs::write(f.file(&id, "pid"), format!("{pid}\n")).unwrap();
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert_eq!(f.record(&id)["reason"], "worker-died");
}

#[test]
fn what_is_left_of_a_dead_job_is_ended_and_strangers_live() {
    let f = Folder::new();
    let id = f.claim(&["--grace", "0"]);
    let token = meta(&f, &id)["claim"].as_str().unwrap().to_owned();
    let sleeper = |claim: &str| {
        let child = f.command("sleep").arg("300").env("JOB_CLAIM", claim).spawn().unwrap();
        Owner(child)
    };
    let (mut member, stranger, other) =
        (sleeper(&token), sleeper("another"), Owner(f.command("sleep").arg("300").spawn().unwrap()));
    // The number in `pid` and the session belong to strangers by now.
    sign(&f, &id, other.pid(), 1, |owner| {
        owner["session"] = json!(stranger.pid());
        owner["session_start"] = json!(1);
    });
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert_eq!(f.record(&id)["reason"], "worker-died");
    assert!(member.0.try_wait().unwrap().is_some(), "a member of the job was left");
    assert!(is_alive(stranger.pid()) && is_alive(other.pid()), "a stranger was ended");
}

#[test]
fn the_verified_session_of_a_dead_job_is_ended_too() {
    let f = Folder::new();
    let id = f.claim(&["--grace", "0"]);
    let mut leader = f.command("setsid");
    leader.args(["sh", "-c", "env -u JOB_CLAIM sleep 300 & exec sleep 300"]);
    let mut leader = Owner(leader.spawn().unwrap());
    until("the session is there", || f.living().len() == 2);
    let start = start_of(leader.pid());
    let (pid, dead_start) = dead(&f);
    sign(&f, &id, pid, dead_start, |owner| {
        owner["session"] = json!(leader.pid());
        owner["session_start"] = json!(start);
    });
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert!(leader.0.try_wait().unwrap().is_some());
    until("the session is gone", || f.living().is_empty());
}

#[test]
fn nothing_of_an_earlier_boot_lives() {
    if tests::is_portable("another boot is told from a step of the clock") {
        return;
    }
    let f = Folder::new();
    let stranger = Owner(f.command("sleep").arg("300").spawn().unwrap());
    let earlier = |value: &mut Value| value["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    let id = f.claim(&[]);
    rewrite(&f, &id, "meta.json", earlier);
    sign(&f, &id, stranger.pid(), start_of(stranger.pid()), earlier);
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert_eq!(f.record(&id)["reason"], "worker-died");
    assert!(is_alive(stranger.pid()));
    // Claimed then, and never started.
    let id = f.claim(&["--start-within", "0"]);
    rewrite(&f, &id, "meta.json", earlier);
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert_eq!(f.record(&id)["reason"], "worker-died");
}

#[test]
fn a_job_of_another_host_is_listed_and_never_judged() {
    let f = Folder::new();
    let (pid, start) = dead(&f);
    let id = f.claim(&["--idle", "10ms", "--grace", "0"]);
    let elsewhere = |value: &mut Value| {
        value["host"] = json!("elsewhere");
        value["machine_id"] = json!("00000000000000000000000000000000");
        value["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    };
    rewrite(&f, &id, "meta.json", |value| {
        elsewhere(value);
        value["claimed_at"] = json!("2020-01-01T00:00:00.000Z");
    });
    sign(&f, &id, pid, start, |owner| {
        elsewhere(owner);
        owner["started_at"] = json!("2020-01-01T00:00:00.000Z");
    });
    until("it is overdue", || jobdir(&f, ["list"]).out.contains("running (overdue)"));
    says(&jobdir(&f, ["status", &id]), 0, "running\n");
    refuses(&jobdir(&f, ["wait", "--slice", "100ms", &id]), 75, "");
    assert!(!f.file(&id, "result.json").exists());
    assert_eq!(jobdir(&f, ["cancel", &id]).status, 1);
    // A person who knows may say so.
    says(&jobdir(&f, ["finish", &id, "unknown", "--error", "the host burned"]), 0, "");
    assert_eq!(f.record(&id)["host"], "elsewhere");
}

#[test]
fn an_owner_that_is_not_overdue_is_left_alone_however_old_it_is() {
    let f = Folder::new();
    let id = f.claim(&["--idle", "0"]);
    let _owner = Owner::of(&f, &id, &["sleep", "300"], |owner| {
        owner["started_monotonic_s"] = json!(0);
        owner["started_at"] = json!("2020-01-01T00:00:00.000Z");
    });
    let began = Instant::now();
    says(&jobdir(&f, ["status", &id]), 0, "running\n");
    assert!(began.elapsed() < Duration::from_secs(1), "it was asked");
}

#[test]
fn an_overdue_owner_that_does_not_answer_is_wedged() {
    let f = Folder::new();
    // Two of them: they are asked side by side.
    let ids = [0, 1].map(|_| f.claim(&["--idle", "50ms", "--grace", "0"]));
    let owners = ids.each_ref().map(|id| Owner::of(&f, id, &["sleep", "300"], |_| ()));
    until("the window is over", || {
        let row = document_of_list(&f);
        row.iter().all(|row| row["silent_s"].as_f64().is_none_or(|s| s > 0.15))
    });
    let began = Instant::now();
    let ran = jobdir(&f, ["status", &ids[0], &ids[1]]);
    let took = began.elapsed();
    assert!(ran.out.lines().all(|line| line.ends_with("\tunknown")) && ran.status == 0, "{ran:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for (id, owner) in ids.iter().zip(&owners) {
        let record = f.record(id);
        assert_eq!((&record["status"], &record["reason"]), (&json!("unknown"), &json!("wedged")));
        assert_eq!(record["pid"], json!(owner.pid()));
        assert!(is_alive(owner.pid()), "a wedged owner is left alone");
        refuses(&jobdir(&f, ["finish", id, "done"]), 3, "");
    }
}

#[test]
fn what_a_wedged_owner_left_behind_ends_before_its_job_is_pruned() {
    let f = Folder::new();
    let id = f.claim(&["--idle", "50ms", "--grace", "0"]);
    let token = meta(&f, &id)["claim"].as_str().unwrap().to_owned();
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |_| ());
    let mut left = Owner(f.command("sleep").arg("300").env("JOB_CLAIM", token).spawn().unwrap());
    until("it is found wedged", || jobdir(&f, ["status", &id]).out == "unknown\n");
    assert_eq!(f.record(&id)["reason"], "wedged");
    let prune = ["prune", "--undelivered", "--older-than", "0"];
    says(&jobdir(&f, prune), 0, "");
    assert!(is_alive(left.pid()), "its owner may yet wake and end it");
    owner.end();
    says(&jobdir(&f, prune), 0, &format!("{id}\n"));
    assert!(left.0.try_wait().unwrap().is_some(), "it outlived its job");
}

/// The rows of list, as they are without settling anything twice.
fn document_of_list(f: &Folder) -> Vec<Value> {
    jobdir(f, ["list", "--json"]).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_overdue_owner_that_answers_is_believed() {
    let f = Folder::new();
    let id = f.claim(&["--idle", "10ms", "--grace", "0"]);
    let pid = f.file(&id, "pid").display().to_string();
    let script = "trap 'touch \"$0\"' URG; : >\"$1\"; while :; do sleep 0.05; done";
    let ready = f.path("ready").display().to_string();
    let _owner = Owner::of(&f, &id, &["sh", "-c", script, &pid, &ready], |_| ());
    until("the owner listens", || f.path("ready").exists());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(40));
        says(&jobdir(&f, ["status", &id]), 0, "running\n");
    }
    assert!(!f.file(&id, "result.json").exists());
}

#[test]
fn an_owner_that_cannot_be_asked_is_listed_and_not_judged() {
    let f = Folder::new();
    let id = f.claim(&["--idle", "10ms", "--grace", "0"]);
    let mut owner = Owner::of(&f, &id, &["sleep", "300"], |owner| owner["pid_namespace"] = json!(1));
    until("it is overdue", || jobdir(&f, ["list"]).out.contains("running (overdue)"));
    says(&jobdir(&f, ["status", &id]), 0, "running\n");
    assert_eq!(jobdir(&f, ["wait", "--slice", "0", &id]).status, 75);
    // The lock tells its death in any namespace.
    owner.end();
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    // Claimed and locked, without a fingerprint: nobody to ask.
    let id = f.claim(&["--start-within", "10ms"]);
    let file = File::open(f.file(&id, "pid")).unwrap();
    // SAFETY: flock(2) on a descriptor that `file` keeps open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    until("it is overdue", || jobdir(&f, ["list"]).out.contains("claimed (overdue)"));
    says(&jobdir(&f, ["status", &id]), 0, "claimed\n");
}

#[test]
fn a_process_never_settles_the_job_that_it_belongs_to() {
    let f = Folder::new();
    let (pid, start) = dead(&f);
    let id = f.claim(&[]);
    sign(&f, &id, pid, start, |_| ());
    let token = meta(&f, &id)["claim"].as_str().unwrap().to_owned();
    says(&run(call(&f, ["status", &id]).env("JOB_CLAIM", &token)), 0, "running\n");
    // Also from deeper inside, where the token is an inner job's.
    let line = format!("JOB_CLAIM=inner sh -c 'jobdir status {id}; :'; :");
    let ran = run(f.command("sh").args(["-c", &line]).env("JOB_CLAIM", &token));
    says(&ran, 0, "running\n");
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
}

#[test]
fn a_stranger_that_holds_no_lock_is_not_the_owner() {
    let f = Folder::new();
    let stranger = Owner(f.command("sleep").arg("300").spawn().unwrap());
    let id = f.claim(&[]);
    // Pid and start time of a living process, as after a forced reuse; the lock is free.
    sign(&f, &id, stranger.pid(), start_of(stranger.pid()), |_| ());
    says(&jobdir(&f, ["status", &id]), 0, "unknown\n");
    assert!(is_alive(stranger.pid()));
    kill(stranger.pid(), libc::SIGKILL);
}
