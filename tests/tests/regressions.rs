//! Faults that a review found, each told by what went wrong in the world, so that none of them comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tests::{Folder, Kid, NOBODY, Ran, bin, bin_dir, is_root, json, kill, run, skip, state, touch, until};

/// A watchdog in the foreground around a line of sh, in the folder.
fn watch(folder: &Folder, id: &str, options: &[&str], line: &str) -> Kid {
    Kid::heard(&mut folder.watchdog(id, options, line))
}

/// A watchdog that was stopped as soon as its command ran.
fn stopped(folder: &Folder, id: &str) -> Kid {
    let dog = watch(folder, id, &[], "exec sleep 300");
    until("it runs", || {
        folder.word(id) == "running"
            && fs::read_to_string(folder.file(id, "owner.json")).unwrap().contains("session\":")
    });
    kill(dog.pid(), libc::SIGSTOP);
    until("it is stopped", || state(dog.pid()) == Some('T'));
    dog
}

fn names(folder: &Folder, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.root().join(dir)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Where strace can be had and may trace.
fn can_trace() -> bool {
    let tried = Command::new("strace").args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Says exactly one line, which begins like this.
fn complains(ran: &Ran, status: i32, start: &str) {
    assert_eq!((ran.status, ran.err.lines().count()), (status, 1), "{ran:?}");
    assert!(ran.err.starts_with(start), "{ran:?}");
}

#[test]
fn a_question_that_comes_with_the_verdict_is_answered_while_the_tree_is_reaped() {
    // A cancelled job whose command took its grace was called wedged, though its owner was at work on it.
    let folder = Folder::new();
    let id = folder.claim(&["--idle", "600ms", "--grace", "3s"]);
    // Signs of life for the watchdog, which sees a change, and none for the supervisor, who sees an old time.
    let line = "trap '' TERM; while :; do touch -d '1 hour ago' \"$JOB_DIR/progress\"; sleep .01
        touch -d '2 hours ago' \"$JOB_DIR/progress\"; sleep .01; done";
    let dog = watch(&folder, &id, &[], line);
    until("it runs", || folder.file(&id, "progress").exists());
    let overdue = || folder.run("jobdir", ["list", "--json"]).out;
    until("it is silent for longer than three times idle and the grace", || {
        json(&overdue())["silent_s"].as_f64().unwrap() > 4.85
    });
    kill(dog.pid(), libc::SIGSTOP);
    until("it is stopped", || state(dog.pid()) == Some('T'));
    let asker = Kid::heard(&mut folder.tool("jobdir", ["status", &id]));
    until("the question is there", || {
        let status = fs::read_to_string(format!("/proc/{}/status", dog.pid())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim();
        u64::from_str_radix(pending, 16).unwrap() & (1 << (libc::SIGURG - 1)) != 0
    });
    kill(dog.pid(), libc::SIGTERM);
    kill(dog.pid(), libc::SIGCONT);
    assert_eq!(asker.ran(), Ran { status: 0, out: "running\n".into(), err: String::new() });
    assert_eq!(dog.ran().status, 143);
    let record = folder.record(&id);
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"cancelled".into()));
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn a_century_is_a_limit_like_any_other() {
    // Sums of windows overflowed: the claim or its watchdog panicked.
    let folder = Folder::new();
    let century = "36500d";
    let options = ["--idle", century, "--hard", century, "--grace", century, "--supervisor", century];
    for deadline in [None, Some("99999999999"), Some("99999999999999999999999")] {
        let with = |command: &mut Command| match deadline {
            Some(deadline) => run(command.env("JOB_DEADLINE", deadline)),
            None => run(command),
        };
        let ran = with(&mut folder.tool("jobdir", ["claim"].into_iter().chain(options)));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{deadline:?}");
        let id = ran.out.trim_end();
        assert_eq!(folder.run("jobdir", ["status", id]).out, "claimed\n");
        assert_eq!(with(&mut folder.tool("watchdog", ["--job", id, "true"])).status, 0, "{deadline:?}");
        assert_eq!(folder.run("jobdir", ["wait", "--slice", century, id]).status, 0);
        assert_eq!(folder.record(id)["warnings"], Value::Array(vec![]));
    }
}

#[test]
fn a_wait_does_not_spin_once_one_of_its_callers_deadlines_is_spent() {
    // It woke for the moment that was over, again and again, and took a whole processor until its slice was over.
    let folder = Folder::new();
    let spent = folder.claim(&["--hard", "1s", "--grace", "0"]);
    let other = folder.claim(&[]);
    let (_one, _two) = (stopped(&folder, &spent), stopped(&folder, &other));
    // As if it had started ten seconds ago: its caller's deadline of six is over, its supervisor's window is not.
    let path = folder.file(&spent, "owner.json");
    let mut owner = json(&fs::read_to_string(&path).unwrap());
    let started = owner["started_monotonic_s"].as_f64().unwrap();
    owner["started_monotonic_s"] = (started - 10.0).into();
    fs::write(&path, format!("{owner}\n")).unwrap();
    let line = format!("jobdir wait --slice 2 {spent} {other}; echo $?; times");
    let mut sh = folder.command("sh");
    let begin = Instant::now();
    let ran = run(sh.args(["-c", &line]));
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(6), "{took:?}");
    assert!(ran.err.contains("caller's deadline of 6 s is spent") && ran.err.contains("within 2 s"), "{ran:?}");
    // 75, the shell's own times, its children's.
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "75");
    let seconds = |text: &str| {
        let (minutes, seconds) = text.strip_suffix('s').unwrap().split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    let cpu: f64 = lines[2].split(' ').map(seconds).sum();
    assert!(cpu < 0.3, "{cpu} s of processor time: {ran:?}");
}

#[test]
fn a_job_inside_a_job_that_starts_late_still_ends_before_the_outer_one() {
    // Its time was measured from its claim, so that its end moved by as long as it had waited for its start.
    let folder = Folder::new();
    let deadline = now().as_secs() + 4;
    let mut claim = folder.tool("jobdir", ["claim", "--hard", "1h", "--grace", "200ms"]);
    let ran = run(claim.env("JOB_DEADLINE", deadline.to_string()));
    let id = ran.out.trim_end();
    until("half of its time is over", || now() > Duration::from_secs(deadline - 2));
    let mut dog = folder.tool("watchdog", ["--job", id, "sleep", "60"]);
    assert_eq!(run(dog.env("JOB_DEADLINE", deadline.to_string())).status, 124);
    assert!(now() < Duration::from_secs(deadline), "it ended {:?} late", now() - Duration::from_secs(deadline));
    assert_eq!(folder.record(id)["reason"], "hard");
}

#[test]
fn a_publication_that_loses_against_the_end_says_so() {
    // An end that ran out of patience with a publisher was recorded without the output that he then called published.
    if !can_trace() {
        return skip("strace cannot trace here");
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let dog = watch(&folder, &id, &[], "until [ -e go ]; do sleep .01; done");
    let making = || {
        let names = fs::read_dir(folder.file(&id, "")).unwrap();
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with(".tmp-")).count()
    };
    until("room is reserved", || folder.word(&id) == "running" && making() == 2);
    fs::write(folder.path("document"), "{\"late\":true}").unwrap();
    let mut put = folder.command("strace");
    let log = folder.path("strace").display().to_string();
    put.args(["-f", "-o", &log, "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=2500000:when=1"]);
    let put = Kid::heard(put.arg(bin("jobdir")).args(["put", &id, &folder.path("document").display().to_string()]));
    until("it is about to publish, with the lock", || making() == 3);
    touch(&folder, "go");
    assert_eq!(dog.ran().status, 0, "nobody holds an end up");
    let ran = put.ran();
    let output = &folder.record(&id)["output"];
    match ran.status {
        0 => assert_eq!(output["late"], true, "what was called published stands in the record"),
        _ => {
            complains(&ran, 3, "jobdir: cannot publish the output of job ");
            assert_eq!(*output, Value::Null);
        }
    }
}

#[test]
fn an_output_that_the_watchdog_would_not_take_is_refused_when_it_is_put() {
    // `jobdir put` said yes to a document that the end of the job then left out.
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let line = "echo '{\"n\":1}' | jobdir put; echo $?; printf '[%0100d]' 1 | tr 0 1 | jobdir put; echo $?";
    let dog = watch(&folder, &id, &["--max-output", "64"], line);
    assert_eq!(dog.ran().status, 0);
    let log = fs::read_to_string(folder.file(&id, "out.log")).unwrap();
    assert_eq!(log, "0\njobdir: cannot publish standard input: it is larger than 64 bytes\n1\n");
    let record = folder.record(&id);
    assert_eq!((&record["output"]["n"], &record["warnings"]), (&1.into(), &Value::Array(vec![])));
}

#[test]
fn a_log_that_is_a_fifo_does_not_hang_the_watchdog() {
    // Opening it waited for a reader, before any limit of the watchdog was in force.
    let folder = Folder::new();
    mkfifo(&folder.path("fifo"), Mode::S_IRWXU).unwrap();
    let fifo = folder.path("fifo").display().to_string();
    let line = "timeout -s KILL 10 watchdog --hard 1s --log \"$0\" true";
    let ran = run(folder.command("sh").args(["-c", line, &fifo]));
    complains(&ran, 125, "watchdog: cannot open log ");
    assert!(ran.err.trim_end().ends_with(": no such device or address"), "{ran:?}");
}

#[test]
fn four_owners_that_do_not_answer_cost_one_wait() {
    // They were asked one after the other, two seconds for each.
    let folder = Folder::new();
    let ids: Vec<String> = (0..4).map(|_| folder.claim(&["--idle", "300ms", "--grace", "0"])).collect();
    // Started while there is plenty of time, then cut short: a watchdog would end its job at once.
    let _dogs: Vec<Kid> = ids
        .iter()
        .map(|id| {
            let busy = "while :; do echo; sleep .01; done";
            let dog = watch(&folder, id, &[], busy);
            until("it speaks", || fs::metadata(folder.file(id, "out.log")).unwrap().len() > 0);
            kill(dog.pid(), libc::SIGSTOP);
            until("it is stopped", || state(dog.pid()) == Some('T'));
            dog
        })
        .collect();
    for &pid in &folder.living() {
        if state(pid) != Some('T') {
            kill(pid, libc::SIGKILL);
        }
    }
    until("all are silent for longer than their window", || {
        ids.iter().all(|id| {
            let log = fs::metadata(folder.file(id, "out.log")).unwrap();
            log.modified().unwrap().elapsed().is_ok_and(|silent| silent > Duration::from_millis(1000))
        })
    });
    let begin = Instant::now();
    let ran = folder.run("jobdir", ["status"].into_iter().chain(ids.iter().map(String::as_str)));
    let took = begin.elapsed();
    let said: String = ids.iter().map(|id| format!("{id}\tunknown\n")).collect();
    assert_eq!((ran.status, ran.out, ran.err.as_str()), (0, said, ""));
    assert!(ids.iter().all(|id| folder.record(id)["reason"] == "wedged"));
    assert!(took >= Duration::from_secs(2) && took < Duration::from_millis(3500), "{took:?}");
}

#[test]
fn a_follower_sees_a_new_claim_of_an_old_id_and_ends_with_its_limit() {
    // It knew jobs by their id alone, and --limit was a limit of each pass, so that it stayed for ever.
    let folder = Folder::new();
    let mut follow = Kid::heard(&mut folder.tool("sweep", ["--follow", "--limit", "2"]));
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    let finish = |word| {
        folder.claim(&["--id", "again"]);
        assert_eq!(folder.run("jobdir", ["finish", "again", word]).status, 0);
    };
    finish("done");
    let first = json(&next());
    assert_eq!(folder.sh("echo again | sweep --ack").status, 0);
    assert_eq!(folder.run("jobdir", ["prune", "--older-than", "0"]).out, "again\n");
    finish("failed");
    let second = json(&next());
    assert_eq!((&first["job"], &first["status"]), (&"again".into(), &"done".into()));
    assert_eq!((&second["job"], &second["status"]), (&"again".into(), &"failed".into()));
    assert_ne!(first["claim"], second["claim"]);
    until("it ends by itself", || follow.0.try_wait().unwrap().is_some());
    assert_eq!(follow.0.wait().unwrap().code(), Some(0));
    assert_eq!(next(), "");
}

#[test]
fn three_hundred_dead_jobs_are_settled_by_one_sweep_with_few_descriptors() {
    // Each dead job was held open until all were, and past the limit the rest was called unreadable.
    let folder = Folder::new();
    let line = "i=0; while [ $i -lt 300 ]; do jobdir claim --start-within 1ms >/dev/null || exit; i=$((i + 1)); done";
    let ran = run(folder.command("sh").args(["-c", line]).env("JOBDIR_SYNC", "0"));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let ran = run(folder.command("sh").args(["-c", "ulimit -n 256; sweep"]).env("JOBDIR_SYNC", "0"));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out.lines().filter(|line| json(line)["reason"] == "never-started").count(), 300);
}

#[test]
fn a_watchdog_that_finds_no_root_says_so_with_its_own_status() {
    // 2 is a status that its command may have had.
    let ran = run(Command::new("env").arg("-i").arg(bin("watchdog")).args(["--job", "x", "true"]));
    complains(&ran, 125, "watchdog: cannot choose a job root: ");
}

#[test]
fn an_endless_file_of_meta_is_refused_soon() {
    // It was read to its end before its size was looked at.
    let folder = Folder::new();
    let line = "ulimit -v 600000; timeout -s KILL 10 jobdir claim --meta-file /dev/zero";
    let ran = folder.sh(line);
    complains(&ran, 125, "jobdir: cannot read /dev/zero: ");
    assert_eq!(ran.out, "");
    assert!(!folder.root().exists(), "a claim that was refused leaves no trace");
}

#[test]
fn an_endless_line_of_acknowledgement_is_refused_and_the_next_counts() {
    // One line without an end filled the memory, and whatever came after it was lost.
    let folder = Folder::new();
    for id in ["before", "after"] {
        folder.claim(&["--id", id]);
        assert_eq!(folder.run("jobdir", ["finish", id, "done"]).status, 0);
    }
    let line = "{ echo before; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo after; } |
        { ulimit -v 600000; timeout -s KILL 20 sweep --ack; }";
    let ran = folder.sh(line);
    complains(&ran, 1, "sweep: cannot acknowledge a line that ");
    let mut delivered = names(&folder, "delivered");
    delivered.sort();
    assert_eq!(delivered, ["after", "before"]);
}

#[test]
fn a_claim_that_may_write_nothing_says_so_and_leaves_nothing() {
    // SIGXFSZ killed it in the middle, without a word and with half a claim in the root.
    let folder = Folder::new();
    for input in ["", " --input /etc/passwd"] {
        let ran = folder.sh(&format!("ulimit -f 0; jobdir claim{input}"));
        complains(&ran, 125, "jobdir: cannot ");
        assert!(ran.err.contains("file too large"), "{ran:?}");
        assert_eq!((ran.out.as_str(), names(&folder, "jobs").len()), ("", 0));
    }
}

#[test]
fn an_odd_umask_does_not_lock_the_owner_out_of_his_own_jobs() {
    // Under umask 0277 the root was made unwritable for its own owner; a test as root would never notice.
    if !is_root() {
        return skip("only root can become another user");
    }
    let folder = Folder::new();
    let theirs = folder.path("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(folder.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let drop = "exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$0\"";
    let as_nobody = |line: &str| run(folder.command("sh").args(["-c", drop, line]).current_dir(&theirs));
    if as_nobody("exec jobdir --version").status != 0 {
        return skip("another user cannot run the binaries where they are");
    }
    for mask in ["0777", "0277", "0700", "0000"] {
        let root = theirs.join(mask).join("deep").display().to_string();
        let line = format!(
            "umask {mask}; export JOBDIR_ROOT={root}; set -e
            id=$(jobdir claim --name n --input /etc/passwd); jobdir touch $id x; jobdir status $id; umask 022
            watchdog --job $id sh -c 'cat >/dev/null; echo [1] | jobdir put'; jobdir result $id | grep -c output
            umask {mask}; sweep | sweep --ack; jobdir list --all | wc -l; jobdir prune --older-than 0 | grep -c $id"
        );
        let ran = as_nobody(&line);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "claimed\n1\n2\n1\n", ""), "umask {mask}");
    }
}

#[test]
fn an_odd_umask_of_the_watchdog_or_the_sweep_does_not_hide_the_end() {
    // The claim mends the mode of its files, the owner did not: result.json had mode 0, and the end could be read by
    // nobody.
    if !is_root() {
        return skip("only root can become another user");
    }
    let folder = Folder::new();
    let theirs = folder.path("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(folder.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let drop = "exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$0\"";
    let as_nobody = |line: &str| run(folder.command("sh").args(["-c", drop, line]).current_dir(&theirs));
    if as_nobody("exec jobdir --version").status != 0 {
        return skip("another user cannot run the binaries where they are");
    }
    let root = theirs.join("root").display().to_string();
    let line = format!(
        "umask 0777; export JOBDIR_ROOT={root}; one=$(jobdir claim --id one); two=$(jobdir claim --start-within 1ms --id two)
        watchdog --job $one true; sweep >/dev/null; jobdir status $one $two"
    );
    let said = Ran { status: 0, out: "one\tdone\ntwo\tunknown\n".into(), err: String::new() };
    assert_eq!(as_nobody(&line), said);
}

#[test]
fn a_long_name_does_not_cost_a_job_its_end_on_a_full_disk() {
    // Room was reserved for the usual record, and the name of this one alone was longer.
    let folder = Folder::new();
    fs::create_dir(folder.path("full")).unwrap();
    let inside = "mount -t tmpfs -o size=256k,mode=700 none full 2>&1 || exit 77
        export JOBDIR_ROOT=$PWD/full/root; id=$(jobdir claim --name \"$(printf '%020000d' 0)\" --grace 0) || exit 1
        watchdog --job $id sh -c 'dd if=/dev/zero of=full/fill bs=4096 2>/dev/null
            df --output=avail full | tail -n 1 >avail; exit 7'; echo $?; cat avail; jobdir status $id; jobdir result $id | wc -c; cat full/root/jobs/$id/status
        jobdir result $id";
    let mut unshare = folder.command("unshare");
    let ran = run(unshare.args(["-Urm", "--propagation", "private", "sh", "-c", inside]).current_dir(folder.path("")));
    if ran.status == 77 || ran.err.contains("unshare") {
        return skip("no small file system can be mounted here");
    }
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
    let lines: Vec<&str> = ran.out.lines().map(str::trim).collect();
    assert_eq!((lines[0], lines[1], lines[2], lines[4]), ("7", "0", "failed", "failed"));
    assert_eq!((lines[3].parse::<usize>().unwrap(), lines.len()), (lines[5].len() + 1, 6));
    let record = json(lines[5]);
    assert_eq!((&record["reason"], &record["exit_code"]), (&"exited".into(), &7.into()));
    assert_eq!(record["name"].as_str().unwrap().len(), 20_000);
}

#[test]
fn a_strangers_directory_with_the_id_is_no_job_and_stays() {
    // The claim answered "no such job" to somebody who wanted to make one.
    let folder = Folder::new();
    folder.claim(&[]);
    for place in ["delivered", "jobs"] {
        let theirs = folder.root().join(place).join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("letter"), "dear").unwrap();
        let before = names(&folder, "jobs").len();
        let ran = folder.run("jobdir", ["claim", "--id", "theirs"]);
        complains(&ran, 125, "jobdir: cannot claim a job in ");
        assert!(ran.err.contains("'theirs' is the name of something that is no job"), "{ran:?}");
        assert_eq!((ran.out.as_str(), names(&folder, "jobs").len()), ("", before));
        assert_eq!(fs::read_to_string(theirs.join("letter")).unwrap(), "dear");
        fs::remove_dir_all(theirs).unwrap();
    }
    folder.claim(&["--id", "theirs"]);
}

#[test]
fn noise_on_a_captured_stdout_does_not_hide_what_was_put() {
    // The job had failed by its noise, though it had handed in a valid output.
    let folder = Folder::new();
    for options in [&["--capture"][..], &["--capture", "--require-output"]] {
        let id = folder.claim(&[]);
        let dog = watch(&folder, &id, options, "echo loading...; echo '{\"n\":1}' | jobdir put; echo bye");
        assert_eq!(dog.ran().status, 0);
        let record = folder.record(&id);
        assert_eq!((&record["status"], &record["output"]["n"]), (&"done".into(), &1.into()));
    }
    let id = folder.claim(&[]);
    let dog = watch(&folder, &id, &["--capture"], "echo loading...; echo '{' | jobdir put; true");
    assert_eq!(dog.ran().status, 1);
    assert_eq!(folder.record(&id)["reason"], "invalid-output");
}

#[test]
fn a_document_that_was_captured_survives_the_death_of_the_watchdog() {
    // Only what had been put stood in the record of a dead worker; a captured output was paid for and lost.
    let folder = Folder::new();
    let id = folder.claim(&["--grace", "0"]);
    let dog = watch(&folder, &id, &["--capture"], "echo '{\"paid\":1.50}'; touch up; exec sleep 300");
    until("it has said it", || folder.path("up").exists());
    kill(dog.pid(), libc::SIGKILL);
    assert_eq!(dog.ran().status, 137);
    let ran = folder.run("sweep", [""; 0]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(json(&ran.out)["reason"], "worker-died");
    assert!(ran.out.contains("\"output\":{\"paid\":1.50}"), "{}", ran.out);
}

#[test]
fn a_wait_goes_on_over_a_read_that_fails_once() {
    // A disk that hiccupped ended the wait, as if the job had failed.
    if !can_trace() {
        return skip("strace cannot trace here");
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let dog = watch(&folder, &id, &[], "until [ -e go ]; do sleep .01; done");
    until("it runs", || folder.word(&id) == "running");
    let log = folder.path("strace").display().to_string();
    let mut strace = folder.command("strace");
    strace.args(["-o", &log, "-e", "trace=openat"]).arg(bin("jobdir")).args(["wait", "--slice", "0", &id]);
    assert_eq!(run(&mut strace).status, 75);
    let calls = fs::read_to_string(&log).unwrap();
    let waits: Vec<(&str, Kid)> = ["status", "result.json", "meta.json", "pid"]
        .into_iter()
        .map(|name| {
            let nth = 1 + calls.lines().position(|line| line.contains(&format!("\"{name}\""))).expect("it is read");
            let mut strace = folder.command("strace");
            strace.args([
                "-o",
                "/dev/null",
                "-e",
                "trace=openat",
                "-e",
                &format!("inject=openat:error=EIO:when={nth}"),
            ]);
            (name, Kid::heard(strace.arg(bin("jobdir")).args(["wait", "--slice", "15s", &id])))
        })
        .collect();
    // A word on standard error is the sign that the fault has happened.
    let mut heard = Vec::new();
    for (name, mut kid) in waits {
        let mut err = BufReader::new(kid.0.stderr.take().unwrap());
        if name != "pid" {
            let mut line = String::new();
            err.read_line(&mut line).unwrap();
            assert!(
                line.contains("warning: cannot read job") && line.to_lowercase().contains("i/o error"),
                "{name}: {line}"
            );
        }
        heard.push((name, kid, err));
    }
    touch(&folder, "go");
    assert_eq!(dog.ran().status, 0);
    for (name, mut kid, _err) in heard {
        until("the wait has ended", || kid.0.try_wait().unwrap().is_some());
        assert_eq!(kid.0.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn the_tail_of_a_log_of_rubbish_is_no_longer_than_its_bound() {
    // Each byte that is no text becomes three, so that a tail of 2 KiB grew to six.
    let folder = Folder::new();
    for (log, text) in [(vec![0xff; 4096], "\u{fffd}"), ("é".repeat(2001).into_bytes(), "é")] {
        let id = folder.claim(&[]);
        fs::File::create(folder.path("rubbish")).unwrap().write_all(&log).unwrap();
        assert_eq!(watch(&folder, &id, &[], "cat rubbish; exit 1").ran().status, 1);
        let ran = folder.run("sweep", [""; 0]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        let line = json(&ran.out);
        let tail = line["log_tail"].as_str().unwrap();
        assert!(tail.len() <= 2048 && tail.len() > 2040, "{} bytes", tail.len());
        assert_eq!(tail.replace(text, ""), "");
        assert_eq!(folder.sh("sweep | sweep --ack").status, 0);
    }
}

#[test]
fn the_binaries_are_where_the_tests_expect_them() {
    for tool in ["detach", "jobdir", "watchdog", "reap", "sweep"] {
        assert!(bin_dir().join(tool).is_file(), "{tool}");
    }
}
