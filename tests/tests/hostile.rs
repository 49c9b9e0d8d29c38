//! Neighbours who mean harm: another user at the root, and a job that lies about itself. Nobody is fooled, nothing
//! blocks, and the other jobs are delivered all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tests::{Folder, NOBODY, Ran, is_root, json, run, skip, until};

/// Within this nothing may hang: far more than any answer takes, settling included.
const SOON: &str = "15";

/// Runs a tool, killed where it hangs.
fn soon(folder: &Folder, words: &[&str]) -> Ran {
    let begin = Instant::now();
    let ran = run(folder.command("timeout").args(["-s", "KILL", SOON]).args(words));
    let took = begin.elapsed();
    assert!(ran.status < 128 || ran.status == 143, "{words:?} after {took:?}: {ran:?}");
    assert!(!ran.err.contains("panicked"), "{words:?}: {ran:?}");
    ran
}

/// Runs a line of sh as somebody without rights; `None` where that is impossible.
fn as_nobody(folder: &Folder, line: &str) -> Option<Ran> {
    if !is_root() {
        skip("only root can become another user");
        return None;
    }
    fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
    let drop = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    if run(folder.command("setpriv").args(drop).args(["jobdir", "--version"])).status != 0 {
        skip("another user cannot run the binaries where they are");
        return None;
    }
    Some(run(folder.command("setpriv").args(drop).args(["sh", "-c", line]).current_dir(folder.path(""))))
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Everything below a directory: its mode, owner, size and time.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, u32, u64, i64)> {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let meta = fs::symlink_metadata(entry.path()).unwrap();
            all.insert(entry.path(), (meta.mode(), meta.uid(), meta.len(), meta.mtime_nsec()));
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    all
}

/// Every way into a root: each is refused with 77, in one line, and changes nothing.
fn every_way_is_refused(folder: &Folder, root: &str, why: &str) {
    let path = format!("{root}/jobs/a");
    let ways: [&[&str]; 20] = [
        &["jobdir", "claim", "-r", root],
        &["jobdir", "claim", "-r", root, "--id", "a"],
        &["jobdir", "status", "-r", root, "a"],
        &["jobdir", "status", &path],
        &["jobdir", "wait", "-r", root, "--slice", "0", "a"],
        &["jobdir", "result", &path],
        &["jobdir", "cancel", "-r", root, "a"],
        &["jobdir", "cancel", "-r", root, "--name", "n"],
        &["jobdir", "finish", "-r", root, "a", "done"],
        &["jobdir", "touch", "-r", root, "a"],
        &["jobdir", "put", "-r", root, "a", "/dev/null"],
        &["jobdir", "list", "-r", root],
        &["jobdir", "path", "-r", root, "a"],
        &["jobdir", "prune", "-r", root, "--older-than", "0", "--undelivered"],
        &["watchdog", "-r", root, "--job", "a", "true"],
        &["watchdog", "--job", &path, "true"],
        &["sweep", "-r", root],
        &["sweep", "-r", root, "--in-flight"],
        &["sweep", "-r", root, "--follow"],
        &["sweep", "-r", root, "--", "cat"],
    ];
    for way in ways {
        // `put` looks at its document first.
        let way = if way[1] == "put" { &["sh", "-c", "echo [] | jobdir put -r $0 a", root][..] } else { way };
        let ran = soon(folder, way);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (77, "", 1), "{way:?}: {ran:?}");
        assert!(ran.err.contains("cannot use job root ") && ran.err.contains(why), "{way:?}: {ran:?}");
    }
    let ran = soon(folder, &["sh", "-c", "echo a | sweep -r $0 --ack", root]);
    assert_eq!((ran.status, ran.out.as_str()), (77, ""), "{ran:?}");
}

#[test]
fn a_root_that_another_user_made_first_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.path("tmp")).unwrap();
    chmod(&folder.path("tmp"), 0o1777);
    // Before we come, the neighbour makes the root that we are about to use, with a job that calls itself done.
    let line = "mkdir -p tmp/root/jobs/a tmp/root/delivered && cd tmp/root/jobs/a && echo done >status &&
        echo '{\"job\":\"a\",\"claim\":\"c\",\"status\":\"done\"}' | tee result.json >meta.json && mkfifo pid";
    let Some(ran) = as_nobody(&folder, line) else { return };
    assert_eq!(ran, Ran { status: 0, out: String::new(), err: String::new() });
    let before = snapshot(&folder.path("tmp"));
    let root = folder.path("tmp/root").display().to_string();
    every_way_is_refused(&folder, &root, "it belongs to user 65534, not to us");
    // Open to all, or with a link in its place, it is no better.
    chmod(&folder.path("tmp/root"), 0o777);
    every_way_is_refused(&folder, &root, "it belongs to user 65534, not to us");
    chmod(&folder.path("tmp/root"), 0o755);
    assert_eq!(snapshot(&folder.path("tmp")), before);
}

#[test]
fn a_users_own_root_is_refused_to_root() {
    // A sweep by root in a user's root would kill and write for him, with the rights of root.
    let folder = Folder::new();
    fs::create_dir(folder.path("home")).unwrap();
    chown(folder.path("home"), Some(NOBODY).filter(|_| is_root()), None).unwrap();
    let line = "export JOBDIR_ROOT=$PWD/home/root; jobdir claim --id a --start-within 1ms && jobdir claim --id b &&
        jobdir finish b done";
    let Some(ran) = as_nobody(&folder, line) else { return };
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let before = snapshot(&folder.path("home"));
    every_way_is_refused(&folder, &folder.path("home/root").display().to_string(), "it belongs to user 65534");
    assert_eq!(snapshot(&folder.path("home")), before, "a is not even settled");
    let ran = as_nobody(&folder, "JOBDIR_ROOT=$PWD/home/root sweep").unwrap();
    assert_eq!((ran.status, ran.out.lines().count()), (0, 2), "to its owner it is as good as ever: {ran:?}");
}

#[test]
fn a_root_that_others_could_change_is_refused_by_every_tool() {
    let folder = Folder::new();
    folder.claim(&["--id", "a"]);
    let root = folder.root().display().to_string();
    for mode in [0o770, 0o707] {
        chmod(&folder.root(), mode);
        every_way_is_refused(&folder, &root, "group or others may write to it");
    }
    chmod(&folder.root(), 0o700);
    symlink(folder.root(), folder.path("link")).unwrap();
    let link = folder.path("link").display().to_string();
    every_way_is_refused(&folder, &link, "it is a symbolic link");
    every_way_is_refused(&folder, &format!("{link}/"), "it is a symbolic link");
    fs::create_dir_all(folder.path("open/inner")).unwrap();
    chmod(&folder.path("open"), 0o777);
    fs::rename(folder.root(), folder.path("open/inner/root")).unwrap();
    let before = snapshot(&folder.path("open"));
    let root = folder.path("open/inner/root").display().to_string();
    every_way_is_refused(&folder, &root, "has no sticky bit");
    assert_eq!(snapshot(&folder.path("open")), before);
    // A root that would have to be made there is not made.
    let new = folder.path("open/new/root").display().to_string();
    for way in [&["jobdir", "claim", "-r", &new][..], &["sweep", "--follow", "-r", &new]] {
        assert_eq!(soon(&folder, way).status, 77, "{way:?}");
    }
    assert!(!folder.path("open/new").exists());
}

#[test]
fn an_id_that_is_none_is_refused_by_every_tool_and_touches_nothing() {
    let folder = Folder::new();
    folder.claim(&["--id", "a"]);
    fs::create_dir(folder.path("x")).unwrap();
    let before = snapshot(&folder.path(""));
    let long = "i".repeat(300);
    for id in ["../x", "..", ".", "-rf", "a\nb", "", ".hidden", "a/../../x", "a b", "é", &long] {
        // With a slash it is a path, and then its last two parts must be jobs/ID.
        let want = [66, 77];
        for way in [
            &["jobdir", "status", "--", id][..],
            &["jobdir", "wait", "--slice", "0", "--", id],
            &["jobdir", "result", "--", id],
            &["jobdir", "cancel", "--", id],
            &["jobdir", "touch", "--", id],
            &["jobdir", "path", "--", id],
            &["jobdir", "finish", "--", id, "done"],
            &["watchdog", "--job", id, "true"],
        ] {
            let ran = soon(&folder, way);
            assert!(want.contains(&ran.status) && ran.out.is_empty(), "{way:?}: {ran:?}");
            assert_eq!(ran.err.lines().count(), 1, "{way:?}: {ran:?}");
        }
        let ran = soon(&folder, &["jobdir", "claim", "--id", id]);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (2, "", 1), "{id:?}: {ran:?}");
        let line = format!("{}\n", serde_json::json!({"job": id, "claim": "c"}));
        fs::write(folder.path("x/line"), line).unwrap();
        let path = folder.path("x/line").display().to_string();
        let ran = soon(&folder, &["sh", "-c", "sweep --ack <\"$0\"", &path]);
        assert_eq!((ran.status, ran.err.lines().count()), (1, 1), "{id:?}: {ran:?}");
        fs::remove_file(path).unwrap();
    }
    let after = snapshot(&folder.path(""));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}

#[test]
fn under_any_umask_nothing_is_writable_by_others() {
    for (mask, dir, file) in [("0", 0o755, 0o644), ("077", 0o700, 0o600), ("022", 0o755, 0o644)] {
        let folder = Folder::new();
        let line = format!(
            "umask {mask}; id=$(jobdir claim --id a --input /etc/passwd); jobdir touch a x
            watchdog --job a --capture sh -c 'echo []; echo [] | jobdir put; umask >seen'; sweep -- false; true"
        );
        let ran = run(folder.command("sh").args(["-c", &line]).current_dir(folder.path("")));
        assert_eq!(ran.status, 0, "{ran:?}");
        let root = fs::metadata(folder.root()).unwrap();
        assert_eq!(root.mode() & 0o7777, 0o700);
        let all = snapshot(&folder.root());
        assert!(all.len() >= 10, "{all:?}");
        for (path, (mode, ..)) in all {
            let want = if path.is_dir() { dir } else { file };
            assert_eq!(mode & 0o7777, want, "{path:?} under umask {mask}");
        }
        let seen = fs::read_to_string(folder.path("seen")).unwrap();
        assert_eq!(u32::from_str_radix(seen.trim(), 8), u32::from_str_radix(mask, 8), "the command's umask");
    }
}

/// The files of a job.
const FILES: [&str; 12] = [
    "meta.json",
    "input",
    "status",
    "pid",
    "owner.json",
    "out.log",
    "progress",
    "output.json",
    "stdout",
    "delivery.json",
    "result.json",
    "late.json",
];

/// Puts something in place of each file of a claimed job and of one that has ended, and lets every tool at them.
/// Nothing hangs or panics, the good job beside them is delivered, and prune and ack get on.
fn every_tool_meets(kind: &str, plant: &dyn Fn(&Path)) {
    let folder = Folder::new();
    let id = |name: &str, state: &str| format!("{}-{state}", name.replace('.', "-"));
    let claim = |id: &str| {
        let ran = run(folder.tool("jobdir", ["claim", "--grace", "0", "--id", id]).env("JOBDIR_SYNC", "0"));
        assert_eq!(ran.status, 0, "{ran:?}");
    };
    for name in FILES {
        for state in ["claimed", "ended"] {
            let id = id(name, state);
            claim(&id);
            if state == "ended" {
                assert_eq!(folder.run("jobdir", ["finish", &id, "failed"]).status, 0);
            }
            let path = folder.file(&id, name);
            let _ = fs::remove_file(&path);
            plant(&path);
        }
    }
    claim("zz-good");
    assert_eq!(folder.run("jobdir", ["finish", "zz-good", "failed"]).status, 0);
    for name in FILES {
        for state in ["claimed", "ended"] {
            let id = id(name, state);
            for way in [&["status"][..], &["wait", "--slice", "0"], &["result"], &["touch"]] {
                let ran = soon(&folder, &[&["jobdir"][..], way, &[&id]].concat());
                let known = [0, 1, 3, 66, 75, 125].contains(&ran.status);
                assert!(known, "{kind} for {name} of a job that is {state}: {way:?} {ran:?}");
            }
            let mark = folder.path("ran").join(&id).display().to_string();
            fs::create_dir_all(folder.path("ran")).unwrap();
            let words = ["watchdog", "--capture", "--job", &id, "sh", "-c", "cat >/dev/null; : >$0; echo []", &mark];
            let ran = soon(&folder, &words);
            assert!([0, 1, 3, 66, 125].contains(&ran.status), "{kind} for {name} of a {state} job: {ran:?}");
            let begun = Path::new(&mark).exists();
            assert!(state == "claimed" || !begun, "{kind} for {name}: what has ended was run");
            assert!(ran.status != 0 || begun, "{kind} for {name}: {ran:?}");
        }
    }
    let ran = soon(&folder, &["jobdir", "list", "--all"]);
    assert!([0, 1].contains(&ran.status) && ran.out.contains("zz-good"), "{kind}: {ran:?}");
    let ran = soon(&folder, &["sweep"]);
    assert!([0, 1].contains(&ran.status), "{kind}: {ran:?}");
    let good = |out: &str| out.lines().filter(|line| json(line)["job"] == "zz-good").count();
    assert_eq!(good(&ran.out), 1, "{kind}: {ran:?}");
    let sent = folder.path("sent").display().to_string();
    let ran = soon(&folder, &["sweep", "--", "sh", "-c", "cat >>$0", &sent]);
    assert!([0, 1].contains(&ran.status), "{kind}: {ran:?}");
    assert_eq!(good(&fs::read_to_string(&sent).unwrap()), 1, "{kind}");
    assert!(folder.root().join("delivered/zz-good").is_dir(), "{kind}");
    for way in [&["jobdir", "list", "--all", "--json"][..], &["jobdir", "prune", "--older-than", "0", "--undelivered"]]
    {
        let ran = soon(&folder, way);
        assert!([0, 1].contains(&ran.status), "{kind}: {way:?} {ran:?}");
    }
    assert_eq!(folder.living(), [0; 0], "{kind}");
}

#[test]
fn a_link_in_place_of_any_file_leads_no_tool_astray() {
    let outside = Folder::new();
    let victim = outside.path("victim");
    fs::write(&victim, "precious\n").unwrap();
    let before = snapshot(&outside.path(""));
    every_tool_meets("a link", &|path| symlink(&victim, path).unwrap());
    every_tool_meets("a dangling link", &|path| symlink(outside.path("new"), path).unwrap());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
    assert_eq!(snapshot(&outside.path("")), before, "nothing is made where a link points");
}

#[test]
fn a_fifo_in_place_of_any_file_blocks_no_tool() {
    every_tool_meets("a FIFO", &|path| mkfifo(path, Mode::from_bits_truncate(0o644)).unwrap());
}

#[test]
fn a_directory_in_place_of_any_file_stops_no_tool() {
    every_tool_meets("a directory", &|path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("in the way"), "").unwrap();
    });
}

#[test]
fn a_socket_in_place_of_any_file_stops_no_tool() {
    every_tool_meets("a socket", &|path| drop(UnixListener::bind(path).unwrap()));
}

#[test]
fn a_hard_link_into_a_job_brings_no_strangers_text_out() {
    // The file of somebody else, linked in where a tool would replace, truncate, or read it.
    let outside = Folder::new();
    let root = outside.root();
    for name in ["status", "progress", "output.json", "owner.json", "delivery.json", "stdout", "late.json"] {
        let victim = outside.path("victim");
        fs::write(&victim, "precious\n").unwrap();
        let id = outside.claim(&["--grace", "0"]);
        let path = root.join("jobs").join(&id).join(name);
        let _ = fs::remove_file(&path);
        fs::hard_link(&victim, &path).unwrap();
        for way in [&["jobdir", "touch", &id, "x"][..], &["jobdir", "status", &id], &["watchdog", "--job", &id, "true"]]
        {
            soon(&outside, way);
        }
        soon(&outside, &["sh", "-c", "echo [] | jobdir put $0", &id]);
        soon(&outside, &["jobdir", "finish", &id, "failed"]);
        soon(&outside, &["sweep", "--", "false"]);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n", "{name}");
        soon(&outside, &["sh", "-c", "echo $0 | sweep --ack", &id]);
        soon(&outside, &["jobdir", "prune", "--older-than", "0", "--undelivered"]);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n", "{name}");
    }
}

#[test]
fn a_gigabyte_in_place_of_a_file_costs_no_gigabyte() {
    let folder = Folder::new();
    for name in ["result.json", "meta.json", "status", "owner.json", "progress", "delivery.json", "output.json", "pid"]
    {
        let id = folder.claim(&["--id", &name.replace('.', "-"), "--grace", "0"]);
        if name == "result.json" {
            fs::write(folder.file(&id, "status"), "done\n").unwrap();
        }
        let file = fs::File::options().write(true).create(true).truncate(false).open(folder.file(&id, name)).unwrap();
        file.set_len(1 << 30).unwrap();
    }
    folder.claim(&["--id", "zz-good"]);
    assert_eq!(folder.run("jobdir", ["finish", "zz-good", "done"]).status, 0);
    let bounded = |line: &str| {
        let begin = Instant::now();
        let ran = soon(&folder, &["sh", "-c", &format!("ulimit -v 700000; {line}")]);
        assert!(begin.elapsed() < Duration::from_secs(8), "{line}: {:?}", begin.elapsed());
        assert!(!ran.err.contains("memory allocation"), "{line}: {ran:?}");
        ran
    };
    let ran = bounded("jobdir list --all");
    assert!(ran.out.contains("zz-good") && ran.status == 1, "{ran:?}");
    for name in ["result-json", "meta-json", "status", "pid"] {
        bounded(&format!("jobdir status {name}; jobdir result {name}; jobdir wait --slice 0 {name}"));
        let ran = bounded(&format!("watchdog --job {name} true"));
        assert!([0, 3, 125].contains(&ran.status), "{name}: {ran:?}");
    }
    let ran = bounded("sweep");
    let lines: Vec<Value> = ran.out.lines().map(json).collect();
    let of = |id: &str| lines.iter().find(|line| line["job"] == id).unwrap_or_else(|| panic!("{id}: {ran:?}"));
    assert_eq!(of("result-json")["reason"], "damaged");
    assert_eq!(of("zz-good")["status"], "done");
    bounded("sweep | sweep --ack");
    bounded("jobdir prune --older-than 0 --undelivered");
}

/// Whether a terminal could be driven by it.
fn raw(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| (*b < 0x20 && !b"\n\r\t".contains(b)) || *b == 0x7f)
}

#[test]
fn nothing_that_a_job_says_drives_the_terminal_of_whoever_looks() {
    let folder = Folder::new();
    if run(folder.command("script").args(["-qec", "true", "/dev/null"])).status != 0 {
        return skip("there is no script(1) to give us a terminal");
    }
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{8}";
    let id = folder.claim(&["--name", &format!("n{evil}\n"), "--meta", &format!("k{evil}=v{evil}")]);
    let bad = folder.claim(&["--id", "bad"]);
    fs::write(folder.file(&bad, "status"), evil.as_bytes()).unwrap();
    fs::write(folder.file(&bad, "meta.json"), evil.as_bytes()).unwrap();
    let mut dog = folder.tool("watchdog", ["--job", &id, "sh", "-c"]);
    let line = "printf '%s' \"$0\" >&2; printf '\\377\\033[2J\\n'; jobdir touch \"$0\"; exec sleep 60";
    let mut dog = dog.args([line, evil]).stdout(Stdio::null()).spawn().unwrap();
    until("it has stamped", || fs::read(folder.file(&id, "progress")).is_ok_and(|text| !text.is_empty()));
    // What the tools draw with themselves, and nothing else of that kind: colours, up, and erase.
    let ours = ["", "1", "2", "31", "32", "33", "35", "36"].map(|style| format!("\u{1b}[{style}m"));
    let ours = ours.into_iter().chain(["K", "J", "1A"].map(|end| format!("\u{1b}[{end}")));
    let ours: Vec<String> = ours.collect();
    for line in [
        "jobdir list",
        "jobdir list --json",
        "jobdir status bad",
        "jobdir wait --slice 1500ms ID",
        "jobdir wait --slice 0 bad",
        "sweep --in-flight",
        "jobdir cancel ID; jobdir wait --slice 10 ID; jobdir list --all",
        "jobdir result ID; sweep",
        "jobdir status \"$(printf 'x\\033[2J')\"",
    ] {
        let line = line.replace("ID", &id);
        let output = folder.command("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output().unwrap();
        let shown = output.stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let own = ours.iter().fold(shown, |text, sequence| text.replace(sequence, ""));
        assert_eq!(raw(own.as_bytes()), None, "{line}: {own:?}");
        assert!(!own.contains('\u{9b}'), "{line}: {own:?}");
        assert!(!own.is_empty(), "{line} says nothing");
        if line.contains("1500ms") {
            assert!(own.contains("silent") && own.contains("\u{fffd}]0;owned"), "the live line: {own:?}");
        }
    }
    until("it has ended", || dog.try_wait().unwrap().is_some());
    assert_eq!(folder.record(&id)["reason"], "cancelled");
}

/// A job that does this to itself, a good one beside it, and what becomes of both.
fn beside_a_good_one(folder: &Folder, options: &[&str], line: &str) -> (Ran, Vec<Value>) {
    folder.claim(&[&["--id", "bad", "--grace", "200ms"], options].concat());
    folder.claim(&["--id", "good"]);
    let bad = soon(folder, &["watchdog", "--job", "bad", "sh", "-c", line]);
    assert_eq!(soon(folder, &["watchdog", "--job", "good", "sh", "-c", "echo [7] | jobdir put"]).status, 0);
    let begin = Instant::now();
    let ran = soon(folder, &["sweep"]);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let lines: Vec<Value> = ran.out.lines().map(json).collect();
    assert_eq!(lines.iter().map(|line| line["job"].as_str().unwrap()).collect::<Vec<_>>(), ["bad", "good"]);
    assert_eq!((&lines[1]["status"], &lines[1]["output"][0]), (&"done".into(), &7.into()));
    assert_eq!(folder.living(), [0; 0]);
    (bad, lines)
}

#[test]
fn a_job_that_makes_ten_thousand_files_is_delivered_and_pruned() {
    let folder = Folder::new();
    let line = "cd $JOB_DIR && mkdir deep && seq 10000 | xargs touch && mkdir -p deep/er/still; exit 3";
    let (bad, lines) = beside_a_good_one(&folder, &[], line);
    assert_eq!((bad.status, &lines[0]["status"], &lines[0]["exit_code"]), (3, &"failed".into(), &3.into()));
    assert!(fs::read_dir(folder.file("bad", "")).unwrap().count() > 10_000);
    assert_eq!(folder.sh("sweep | sweep --ack").status, 0);
    let ran = soon(&folder, &["jobdir", "prune", "--older-than", "0"]);
    assert_eq!((ran.status, ran.out.lines().count(), ran.err.as_str()), (0, 2, ""));
    assert_eq!(fs::read_dir(folder.root().join("delivered")).unwrap().count(), 0);
}

#[test]
fn a_job_of_a_thousand_processes_leaves_none() {
    let folder = Folder::new();
    let line = "trap '' TERM; i=0; while [ $i -lt 1000 ]; do sleep 90 & i=$((i + 1)); done; exit 4";
    let (bad, lines) = beside_a_good_one(&folder, &[], line);
    assert_eq!((bad.status, &lines[0]["exit_code"]), (4, &4.into()));
    // Where orphans have to be looked for, the record says that there were some.
    assert!(cfg!(portable) || lines[0]["warnings"] == Value::Array(vec![]), "{}", lines[0]);
}

/// The record that a job would like to have.
const FORGED: &str = "printf '{\"job\":\"%s\",\"claim\":\"%s\",\"status\":\"done\",\"reason\":\"exited\",\"output\":\"forged\"}\\n' \
     $JOB_ID $JOB_CLAIM";

#[test]
fn a_job_that_writes_its_own_status_and_pid_is_ended_by_its_owners_word() {
    let folder = Folder::new();
    // A word of its own, a stranger's pid, and nobody for an owner.
    let line = "cd $JOB_DIR; echo done >status; echo 1 >pid; echo '{}' >owner.json; rm -f progress; exit 5";
    let (bad, lines) = beside_a_good_one(&folder, &[], line);
    assert_eq!(bad.status, 5, "{bad:?}");
    let end = (&lines[0]["status"], &lines[0]["reason"], &lines[0]["exit_code"]);
    assert_eq!(end, (&"failed".into(), &"exited".into(), &5.into()));
    assert_eq!(folder.word("bad"), "failed");
}

#[test]
fn a_job_that_says_done_before_it_has_ended_is_damaged_until_it_has() {
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "0"]);
    let mut dog = folder.tool("watchdog", ["--job", &id, "sh", "-c", "echo done >$JOB_DIR/status; exec sleep 60"]);
    let mut dog = dog.spawn().unwrap();
    until("it says so", || folder.word(&id) == "done");
    let ran = soon(&folder, &["jobdir", "status", &id]);
    assert_eq!((ran.status, ran.out.as_str()), (0, "unknown\n"), "a word without a record is no end: {ran:?}");
    assert_eq!(soon(&folder, &["jobdir", "result", &id]).out, "");
    tests::kill(i32::try_from(dog.id()).unwrap(), libc::SIGTERM);
    until("it has ended", || dog.try_wait().unwrap().is_some());
    assert_eq!((folder.word(&id).as_str(), &folder.record(&id)["reason"]), ("failed", &"cancelled".into()));
}

#[test]
fn a_record_that_a_job_forges_is_the_first_and_its_owner_says_that_it_lost() {
    let folder = Folder::new();
    let line = format!("{FORGED} >$JOB_DIR/.forged; ln $JOB_DIR/.forged $JOB_DIR/result.json; exit 6");
    let (bad, lines) = beside_a_good_one(&folder, &[], &line);
    assert_eq!((bad.status, bad.err.lines().count()), (125, 1), "{bad:?}");
    assert!(bad.err.contains("watchdog: job bad was lost: another end is recorded; ours is in late.json"), "{bad:?}");
    assert_eq!((&lines[0]["status"], &lines[0]["output"]), (&"done".into(), &"forged".into()));
    let late = json(&fs::read_to_string(folder.file("bad", "late.json")).unwrap());
    // Whether it saw the forgery or the end first.
    assert!(["failed", "unknown"].contains(&late["status"].as_str().unwrap()) && late["exit_code"] == 6, "{late}");
    assert_eq!(folder.word("bad"), "done", "word and record agree");
}

#[test]
fn a_record_that_is_none_is_damage_and_not_an_end() {
    for line in [
        "echo '{\"status\":\"done\"}' >$JOB_DIR/result.json",
        "echo >$JOB_DIR/result.json",
        "mkfifo $JOB_DIR/result.json",
        "mkdir $JOB_DIR/result.json",
        "ln -s /etc/passwd $JOB_DIR/result.json",
    ] {
        let folder = Folder::new();
        let (bad, lines) = beside_a_good_one(&folder, &[], &format!("{line}; exit 6"));
        assert_eq!((bad.status, bad.err.lines().count()), (125, 1), "{line}: {bad:?}");
        assert_eq!((&lines[0]["status"], &lines[0]["reason"]), (&"unknown".into(), &"damaged".into()), "{line}");
        let late = json(&fs::read_to_string(folder.file("bad", "late.json")).unwrap());
        assert_eq!(late["exit_code"], 6, "{line}");
    }
}

#[test]
fn a_second_name_for_the_reserved_record_does_not_make_a_lost_commit_a_won_one() {
    // Two names of our own file mean that link(2) had worked and its reply was lost, unless a job has made the second
    // name itself.
    let folder = Folder::new();
    let line = format!("cd $JOB_DIR; for f in .tmp-*; do ln $f x$f; done; {FORGED} >result.json; exit 6");
    let (bad, lines) = beside_a_good_one(&folder, &[], &line);
    assert_eq!((bad.status, &lines[0]["status"]), (125, &"done".into()), "{bad:?}");
    assert_eq!(folder.word("bad"), "done", "word and record agree");
}

#[test]
fn a_job_that_takes_its_own_directory_away_does_not_stop_the_others() {
    for line in ["rm -rf $JOB_DIR", "mv $JOB_DIR $JOB_DIR.gone", "chmod 0 $JOB_DIR"] {
        let folder = Folder::new();
        folder.claim(&["--id", "bad", "--grace", "200ms"]);
        folder.claim(&["--id", "good"]);
        let words = ["--job", "bad", "sh", "-c", &format!("{line}; sleep 60 & : >\"$0\"; exit 2")].map(str::to_owned);
        let mark = folder.path("ran").display().to_string();
        let mut bad = folder.tool("watchdog", words).arg(&mark).spawn().unwrap();
        // Where nothing can be written any more its owner goes on trying for a minute: nobody waits for it.
        let owner = i32::try_from(bad.id()).unwrap();
        until("its tree is gone", || Path::new(&mark).exists() && folder.living().iter().all(|&pid| pid == owner));
        if !line.starts_with("rm") {
            until("it has ended", || bad.try_wait().unwrap().is_some());
            assert!([2, 125].contains(&bad.wait().unwrap().code().unwrap()), "{line}");
        }
        assert_eq!(soon(&folder, &["watchdog", "--job", "good", "true"]).status, 0);
        let ran = soon(&folder, &["sweep"]);
        assert!(ran.out.lines().any(|line| json(line)["job"] == "good"), "{line}: {ran:?}");
        assert!([0, 1].contains(&ran.status), "{line}: {ran:?}");
        if line.starts_with("chmod") {
            chmod(&folder.file("bad", ""), 0o755);
        }
        let _ = bad.kill();
        bad.wait().unwrap();
    }
}

#[test]
fn a_stranger_can_neither_ask_nor_cancel_nor_lock() {
    // The neighbour may look, at most: a root has mode 0700, and his signals do not reach us.
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "0"]);
    let mut dog = folder.tool("watchdog", ["--job", &id, "sleep", "60"]).spawn().unwrap();
    until("it runs", || folder.word(&id) == "running");
    let line = format!(
        "for verb in status result cancel touch; do jobdir $verb -r {0} {id}; echo $?; done; sweep -r {0}; echo $?
        reap --grace 0 {1}; echo $?; ls {0}; :",
        folder.root().display(),
        dog.id()
    );
    if let Some(ran) = as_nobody(&folder, &line) {
        assert_eq!(ran.out.lines().take(5).collect::<Vec<_>>(), ["77"; 5], "{ran:?}");
        assert!(ran.out.lines().nth(5).is_some_and(|survivor| survivor.contains("1") || !survivor.is_empty()));
        assert_eq!(ran.out.lines().last(), Some("1"), "reap names whom it could not end: {ran:?}");
    }
    assert_eq!(dog.try_wait().unwrap(), None, "nobody has felt anything");
    assert_eq!(folder.run("jobdir", ["status", &id]).out, "running\n");
    assert_eq!(run(Command::new("true").stdin(Stdio::null())).status, 0);
    assert_eq!(folder.run("jobdir", ["cancel", &id]).status, 0);
    until("it has ended", || dog.try_wait().unwrap().is_some());
}
