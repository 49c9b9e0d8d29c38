//! `--contain`: the same as without it, but that nothing outlives the watchdog.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Folder, Kid, Ran, bin, is_alive, kill, run, said, state, text, until};

/// Whether this kernel lets us have a pid namespace; one line where it does not.
fn is_possible() -> bool {
    let folder = Folder::new();
    let ran = folder.run("watchdog", ["--contain", "true"]);
    if ran.status != 0 {
        eprintln!("skipped: {}", ran.err.trim_end());
    }
    ran.status == 0
}

/// A watchdog around a line of sh, in the folder.
fn watchdog(folder: &Folder, words: &[&str], line: &str) -> Command {
    let words = words.iter().copied().chain(["--", "sh", "-c", line]);
    let mut command = folder.tool("watchdog", words);
    command.current_dir(folder.path(""));
    command
}

/// A contained job around a line of sh, to its end.
fn job(folder: &Folder, claim: &[&str], words: &[&str], line: &str) -> (Ran, Value) {
    let id = folder.claim(claim);
    let words: Vec<&str> = ["--job", &id, "--contain"].into_iter().chain(words.iter().copied()).collect();
    let ran = run(&mut watchdog(folder, &words, line));
    (ran, folder.record(&id))
}

fn verdict(record: &Value) -> (&str, &str, &Value, &Value) {
    let word = |key: &str| record[key].as_str().unwrap();
    (word("status"), word("reason"), &record["exit_code"], &record["signal"])
}

/// The session that the owner has written down, as soon as it has.
fn session(folder: &Folder, id: &str) -> i32 {
    let mut session = None;
    until("the session is written down", || {
        let owner: Value = serde_json::from_slice(&fs::read(folder.file(id, "owner.json")).unwrap()).unwrap();
        session = owner["session"].as_i64();
        session.is_some()
    });
    i32::try_from(session.unwrap()).unwrap()
}

/// The living processes whose words name this folder: a clean environment does not hide them.
fn named(folder: &Folder) -> Vec<i32> {
    let path = folder.path("").display().to_string();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&path) && is_alive(*pid)
    })
    .collect()
}

/// A line of sh that starts every kind of process that gets away, and says so in `up`.
fn escapers(folder: &Folder) -> String {
    let hidden = "trap '' TERM HUP INT; echo $0 >>\"$0.up\"; while :; do sleep .02; done\n";
    fs::write(folder.path("hidden"), hidden).unwrap();
    let hidden = folder.path("hidden").display().to_string();
    format!(
        ": >>{hidden}.up
         env -i PATH=\"$PATH\" setsid sh {hidden} &
         (env -i PATH=\"$PATH\" setsid sh -c 'sh {hidden} & sh {hidden} &' &)
         sh -c 'kill -STOP $$' {hidden} &
         detach -- sh {hidden}
         until [ $(wc -l <{hidden}.up) -eq 4 ]; do sleep .02; done; echo up >up"
    )
}

#[test]
fn statuses_words_and_records_are_those_without_it() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    fs::write(folder.path("plain"), "no program\n").unwrap();
    fs::write(folder.path("script"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(folder.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let [plain, script] = ["plain", "script"].map(|name| folder.path(name).display().to_string());
    for (status, line) in [
        (0, &["sh", "-c", "echo out; echo err >&2"][..]),
        (1, &["sh", "-c", "exit 1"]),
        (7, &["sh", "-c", "exit 7"]),
        (255, &["sh", "-c", "exit 255"]),
        (143, &["sh", "-c", "kill -TERM $$"]),
        (137, &["sh", "-c", "kill -KILL $$"]),
        (139, &["sh", "-c", "ulimit -c 0; kill -SEGV $$"]),
        (124, &["sleep", "30"]),
        (126, &[&plain]),
        (127, &[&script]),
        (127, &["no-such-program-anywhere"]),
    ] {
        let ran = |words: &[&str]| folder.run("watchdog", words.iter().chain(&["--hard", "400ms", "--"]).chain(line));
        let (without, with) = (ran(&[]), ran(&["--contain"]));
        assert_eq!(without.status, status, "{line:?}");
        assert_eq!(with, without, "{line:?}");
        let record = |words: &[&str]| {
            let id = folder.claim(&["--hard", "400ms"]);
            let ran = folder.run("watchdog", ["--job", &id].iter().chain(words).chain(&["--"]).chain(line));
            let record = folder.record(&id);
            let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
            let facts = ["status", "reason", "exit_code", "signal", "error", "warnings", "command", "log_bytes"];
            (ran, facts.map(|key| record[key].clone()), log)
        };
        assert_eq!(record(&["--contain"]), record(&[]), "{line:?}");
    }
    assert_eq!(folder.run("watchdog", ["--contain", "--keep-children", "true"]).status, 125);
}

#[test]
fn what_the_command_finds_is_what_it_finds_without() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line =
        "cat; pwd; umask; env | grep -v ^_= | sort; echo [$READY_FD]; ls /proc/$$/fd; grep ^Sig[BIC] /proc/self/status";
    let ran = |contain: &str| {
        let line = format!("echo hi | watchdog {contain} --hard 9 -- sh -c '{line}'");
        let mut command = folder.command("sh");
        // What the runner of the tests left open is not what the test is about.
        // SAFETY: close_range(2) with three integers.
        unsafe {
            command.pre_exec(|| {
                libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed());
                Ok(())
            });
        }
        run(command.args(["-c", &line]).current_dir(folder.path("")))
    };
    let without = ran("");
    assert!(without.out.starts_with("hi\n/") && without.out.contains("\n0\n1\n2\n"), "{}", without.out);
    assert_eq!(ran("--contain"), without);
    // A session of its own, with the command as its leader, where it is a job's.
    let (_, record) = job(&folder, &[], &[], "[ $(ps -o sid= -p $$) -eq $$ ]");
    assert_eq!(verdict(&record), ("done", "exited", &json!(0), &Value::Null));
}

#[test]
fn inside_there_is_nobody_else_and_the_command_is_not_pid_1() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line = "echo $$ $PPID; set -- /proc/[0-9]*; echo $#; kill -TERM 1; kill -KILL 1; echo on";
    let ran = run(&mut watchdog(&folder, &["--contain"], line));
    // The first process and sh.
    assert_eq!(ran, Ran { status: 0, out: "2 1\n2\non\n".into(), err: String::new() });
    // Our own tools see the right numbers too.
    let line =
        "sleep 60 & reap --grace 1s $!; echo $?; watchdog --hard 300ms -- sh -c 'setsid sleep 60 & sleep 60'; echo $?
        watchdog --contain -- sh -c 'echo $$; exit 5'; echo $?; set -- /proc/[0-9]*; echo $#";
    let ran = run(&mut watchdog(&folder, &["--contain"], line));
    // Some shells tell of a child that was terminated.
    assert_eq!((ran.status, ran.out.as_str()), (0, "0\n124\n2\n5\n2\n"), "{}", ran.err);
}

#[test]
fn a_watchdog_that_is_killed_leaves_no_process_however_it_hid() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line = format!("trap '' TERM; {}; while :; do sleep .02; done", escapers(&folder));
    // Without it they do get away: so this would be seen.
    let mut kid = Kid::quiet(&mut watchdog(&folder, &[], &line));
    said(&folder, "up");
    kill(kid.pid(), libc::SIGKILL);
    kid.end();
    assert!(named(&folder).len() >= 4, "{:?}", named(&folder));
    while !named(&folder).is_empty() {
        named(&folder).into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
    }
    for of_job in [false, true] {
        fs::remove_file(folder.path("hidden.up")).unwrap();
        fs::remove_file(folder.path("up")).unwrap();
        let id = folder.claim(&[]);
        let words: &[&str] = if of_job { &["--contain", "--job", &id] } else { &["--contain"] };
        let mut kid = Kid::quiet(&mut watchdog(&folder, words, &line));
        said(&folder, "up");
        assert!(named(&folder).len() >= 6, "{:?}", named(&folder));
        kill(kid.pid(), libc::SIGKILL);
        assert_eq!(kid.end(), 137);
        until("nothing is left, and nobody had to help", || named(&folder).is_empty() && folder.living().is_empty());
        if of_job {
            assert_eq!(folder.run("jobdir", ["status", &id]).out, "unknown\n");
            let record = folder.record(&id);
            assert_eq!((&record["reason"], &record["warnings"]), (&json!("worker-died"), &json!([])));
        }
    }
}

#[test]
fn the_death_of_a_watchdog_with_earlier_children_ends_all_too() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    fs::write(folder.path("line"), format!("{}; sleep 60", escapers(&folder))).unwrap();
    let line = "sleep 60 & echo $! >earlier; exec watchdog --contain -- sh line";
    let mut kid = Kid::quiet(folder.command("sh").args(["-c", line]).current_dir(folder.path("")));
    said(&folder, "up");
    kill(kid.pid(), libc::SIGKILL);
    kid.end();
    let earlier: i32 = said(&folder, "earlier").parse().unwrap();
    until("only the stranger is left", || folder.living() == [earlier] && named(&folder).is_empty());
}

#[test]
fn limits_and_requests_end_it_as_they_do_without() {
    if !is_possible() {
        return;
    }
    for (what, claim, end) in [
        ("idle", &["--idle", "700ms", "--grace", "4s"][..], ("timeout", 124)),
        ("hard", &["--hard", "1500ms", "--grace", "4s"], ("timeout", 124)),
        ("cancelled", &["--grace", "4s"], ("failed", 143)),
        ("term", &["--grace", "4s"], ("failed", 143)),
    ] {
        let folder = Folder::new();
        let id = folder.claim(claim);
        let line = "trap 'echo bye >end; exit 9' TERM; setsid sh -c 'trap \"echo child >child; exit\" TERM; echo up >up; while :; do sleep .02; done' &
            (sh -c 'kill -STOP $$' &) ; while :; do sleep .02; done";
        let since = Instant::now();
        let mut kid = Kid::quiet(&mut watchdog(&folder, &["--job", &id, "--contain"], line));
        said(&folder, "up");
        match what {
            "cancelled" => assert_eq!(folder.run("jobdir", ["cancel", &id]).status, 0),
            "term" => kill(kid.pid(), libc::SIGTERM),
            _ => {}
        }
        assert_eq!(kid.end(), end.1, "{what}");
        assert!(
            since.elapsed() < Duration::from_millis(4500),
            "{what}: the grace was not needed: {:?}",
            since.elapsed()
        );
        assert_eq!((said(&folder, "end").as_str(), said(&folder, "child").as_str()), ("bye", "child"), "{what}");
        let record = folder.record(&id);
        let reason = if what == "term" { "cancelled" } else { what };
        assert_eq!(verdict(&record), (end.0, reason, &json!(9), &Value::Null));
        assert_eq!((folder.living(), &record["warnings"]), (vec![], &json!([])));
    }
}

#[test]
fn whoever_ignores_term_is_gone_after_the_grace() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line = format!("trap '' TERM; {}; while :; do sleep .02; done", escapers(&folder));
    let id = folder.claim(&["--grace", "300ms"]);
    let mut kid = Kid::quiet(&mut watchdog(&folder, &["--job", &id, "--contain"], &line));
    said(&folder, "up");
    kill(kid.pid(), libc::SIGTERM);
    assert_eq!(kid.end(), 143);
    assert_eq!((named(&folder), folder.living()), (vec![], vec![]));
    assert_eq!(verdict(&folder.record(&id)), ("failed", "cancelled", &Value::Null, &json!(9)));
}

#[test]
fn what_the_command_leaves_behind_is_asked_first_and_ends_with_it() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let line = "(setsid sh -c 'trap \"echo term >end; exit\" TERM; echo up >up; while :; do sleep .02; done' &)
        until [ -e up ]; do sleep .02; done; exit 6";
    let (ran, record) = job(&folder, &[], &[], line);
    assert_eq!((ran.status, said(&folder, "end").as_str(), folder.living()), (6, "term", vec![]));
    assert_eq!(verdict(&record), ("failed", "exited", &json!(6), &Value::Null));
    fs::remove_file(folder.path("up")).unwrap();
    let line = format!("{}; kill -INT $$", escapers(&folder));
    let ran = run(&mut watchdog(&folder, &["--contain", "--grace", "200ms"], &line));
    assert_eq!((ran.status, ran.err.as_str(), named(&folder)), (130, "", vec![]));
    // Work of its own life cycle inside still gets its record.
    let line = "id=$(jobdir claim); detach --ready watchdog --job $id -- sleep 60; echo $id";
    let (_, record) = job(&folder, &["--grace", "2s"], &[], line);
    let inner = fs::read_to_string(folder.file(record["job"].as_str().unwrap(), "out.log")).unwrap();
    assert_eq!(verdict(&folder.record(inner.trim())).0, "failed");
}

#[test]
fn with_root_first_the_command_hears_of_it_before_its_children() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let child = "trap 'echo child >>order; exit' TERM\necho up >>order\nwhile :; do sleep .02; done";
    fs::write(folder.path("child"), child).unwrap();
    let root = "sh child & trap 'echo root >>order; wait; exit' TERM; while :; do sleep .02; done";
    let mut kid = Kid::quiet(&mut watchdog(&folder, &["--contain", "--root-first", "--grace", "4s"], root));
    said(&folder, "order");
    kill(kid.pid(), libc::SIGTERM);
    assert_eq!(kid.end(), 143);
    assert_eq!(text(&folder, "order"), "up\nroot\nchild\n");
}

#[test]
fn the_job_is_reached_from_inside_and_judged_by_nobody_there() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    // It lives by a watched file alone, and so looks overdue from inside.
    fs::write(folder.path("own"), "").unwrap();
    let line = "(while :; do echo x >>own; sleep .05; done) & jobdir touch half-way; sleep 1.5
        jobdir status $JOB_ID >word; env -u JOB_CLAIM jobdir status $JOB_ID >>word; env -i JOBDIR_ROOT=$JOBDIR_ROOT setsid $(command -v jobdir) list >list
        echo '{\"n\":1}' | jobdir put; echo $? >put; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let (ran, record) = job(&folder, &["--idle", "400ms", "--grace", "0"], &["--watch", "own"], line);
    assert_eq!((ran.status, &record["output"]), (0, &json!({"n": 1})), "{record}");
    assert_eq!((text(&folder, "word").as_str(), text(&folder, "put").as_str()), ("running\nrunning\n", "0\n"));
    assert!(text(&folder, "list").contains("running"), "{}", text(&folder, "list"));
    let cpu = record["cpu_s"].as_f64().unwrap();
    assert!(cpu > 0.0, "the command's time counts");
    assert!(record["max_rss_kib"].as_u64().unwrap() > 100);
}

#[test]
fn readiness_is_said_and_a_stopped_watchdog_goes_on() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let dog = bin("watchdog").display().to_string();
    let line = "echo up; until [ -e go ]; do sleep .02; done; exit 4";
    let mut command = folder.tool("detach", ["--ready", "--", &dog, "--job", &id, "--contain", "--", "sh", "-c", line]);
    assert_eq!(run(command.current_dir(folder.path(""))).status, 0);
    let owner = folder.owner(&id);
    let session = session(&folder, &id);
    assert!(is_alive(session) && session != owner, "the recorded session is seen from outside");
    kill(owner, libc::SIGSTOP);
    until("it is stopped", || state(owner) == Some('T'));
    fs::write(folder.path("go"), "").unwrap();
    until("the command has ended by itself", || !is_alive(session));
    kill(owner, libc::SIGCONT);
    assert_eq!(folder.ended(&id), "failed");
    assert_eq!(verdict(&folder.record(&id)), ("failed", "exited", &json!(4), &Value::Null));
}

#[test]
fn a_first_process_that_is_killed_is_a_command_that_was_killed() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let mut kid = Kid::quiet(&mut watchdog(&folder, &["--job", &id, "--contain"], "sleep 60 & echo up >up; sleep 60"));
    said(&folder, "up");
    kill(session(&folder, &id), libc::SIGKILL);
    assert_eq!((kid.end(), folder.living()), (137, vec![]));
    assert_eq!(verdict(&folder.record(&id)), ("failed", "signaled", &Value::Null, &json!(9)));
}

#[test]
fn without_root_a_user_namespace_does_the_same() {
    const NOBODY: u32 = 65534;
    let folder = Folder::new();
    let nobody = |line: &str| {
        let mut command = folder.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", line]);
        command.current_dir(folder.path("own")).env("JOBDIR_ROOT", folder.path("own/root"));
        command
    };
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path("own")).unwrap();
    if chown(folder.path("own"), Some(NOBODY), Some(NOBODY)).is_err() {
        return eprintln!("skipped: we are not root, and the other tests are this one");
    }
    let ran = run(&mut nobody("watchdog --contain -- true"));
    if ran.status != 0 {
        return eprintln!("skipped: {}", ran.err.trim_end());
    }
    let ran = run(&mut nobody(
        "watchdog --contain -- sh -c 'id -u; id -g; grep CapEff /proc/self/status; set -- /proc/[0-9]*; echo $#; exit 7'",
    ));
    assert_eq!(ran, Ran { status: 7, out: "65534\n65534\nCapEff:\t0000000000000000\n2\n".into(), err: String::new() });
    for (status, line) in [(0, "true"), (126, "/etc/passwd"), (127, "no-such"), (137, "sh -c 'kill -KILL $$'")] {
        let [without, with] = ["", "--contain"].map(|word| run(&mut nobody(&format!("watchdog {word} -- {line}"))));
        assert_eq!((with.status, &with), (status, &without), "{line}");
    }
    fs::write(folder.path("line"), format!("{}; sleep 60", escapers(&folder))).unwrap();
    let hidden = folder.path("hidden");
    let line = format!(
        "cp {} .; sed s,{},$PWD/hidden,g ../line >line; id=$(jobdir claim); echo $id >id; exec watchdog --job $id --contain -- sh line",
        hidden.display(),
        hidden.display()
    );
    let mut kid = Kid::quiet(&mut nobody(&line));
    said(&folder, "own/up");
    assert!(named(&folder).len() >= 4, "{:?}", named(&folder));
    kill(kid.pid(), libc::SIGKILL);
    kid.end();
    until("nothing is left", || named(&folder).is_empty() && folder.living().is_empty());
    assert_eq!(run(&mut nobody("jobdir status $(cat id)")).out, "unknown\n");
}

#[test]
fn where_it_is_forbidden_it_says_so_and_runs_nothing() {
    if tests::is_portable("a command can be contained") {
        return;
    }
    let folder = Folder::new();
    // Inside a user namespace of our own we may forbid it.
    let forbidden = |line: &str| {
        let line = format!("echo 0 >/proc/sys/user/max_pid_namespaces && {line}");
        run(folder.command("unshare").args(["-Ur", "sh", "-c", &line]).current_dir(folder.path("")))
    };
    if forbidden("true").status != 0 {
        return eprintln!("skipped: no user namespace to forbid it in");
    }
    let text = "cannot make a pid namespace for the command: no more namespaces are allowed here";
    let said = Ran { status: 125, out: String::new(), err: format!("watchdog: {text}\n") };
    assert_eq!(forbidden("watchdog --contain -- touch ran"), said);
    let id = folder.claim(&[]);
    assert_eq!(forbidden(&format!("watchdog --contain --job {id} -- touch ran")), said);
    let record = folder.record(&id);
    assert_eq!(verdict(&record), ("failed", "spawn-failed", &Value::Null, &Value::Null));
    assert_eq!((record["error"].as_str().unwrap(), folder.path("ran").exists()), (text, false));
}

#[test]
fn where_no_fresh_proc_can_be_had_it_goes_on_and_says_so() {
    if tests::is_portable("a command can be contained") {
        return;
    }
    let folder = Folder::new();
    // A /proc with a part of it covered, as in many containers, is not given out anew.
    let covered = |line: &str| {
        let line = format!("mount -t tmpfs none /proc/tty && exec unshare -Urm sh -c \"{line}\"");
        run(folder.command("unshare").args(["-Urm", "sh", "-c", &line]).current_dir(folder.path("")))
    };
    if covered("true").status != 0 {
        return eprintln!("skipped: no user namespace to cover a part of /proc in");
    }
    let ran = covered("watchdog --contain -- sh -c 'exit 3'");
    assert_eq!(ran.status, 3, "{}", ran.err);
    assert!(ran.err.starts_with("watchdog: warning: cannot mount a /proc for the command: "), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let id = folder.claim(&[]);
    assert_eq!(covered(&format!("watchdog --contain --job {id} -- true")).status, 0);
    assert_eq!(folder.record(&id)["warnings"].as_array().unwrap().len(), 1);
}
