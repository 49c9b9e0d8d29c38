//! sweep as its users meet it: lines, acknowledgements, handlers, damage, and more than one sweep at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::{Folder, Ran, bin, run, until};

/// sweep with its arguments, ended by force where it hangs: then its status is 137.
fn call<S: AsRef<OsStr>>(f: &Folder, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = f.command("timeout");
    command.args(["-s", "KILL", "60"]).arg(bin("sweep")).args(args);
    command
}

fn sweep<S: AsRef<OsStr>>(f: &Folder, args: impl IntoIterator<Item = S>) -> Ran {
    run(&mut call(f, args))
}

/// sweep --ack with these bytes on its standard input.
fn ack(f: &Folder, bytes: impl AsRef<[u8]>) -> Ran {
    let file = f.path("acks");
    fs::write(&file, bytes).unwrap();
    run(call(f, ["--ack"]).stdin(File::open(file).unwrap()))
}

#[track_caller]
fn quiet(ran: &Ran, status: i32, out: &str) {
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (status, out, ""), "{ran:?}");
}

/// It said no: this status, nothing on standard output, and one line that tells why.
#[track_caller]
fn refuses(ran: &Ran, status: i32, why: &str) {
    assert_eq!((ran.status, ran.out.as_str()), (status, ""), "{ran:?}");
    assert!(ran.err.starts_with("sweep: ") && ran.err.contains(why), "{ran:?}");
    assert!(ran.err.ends_with('\n') && ran.err.lines().count() == 1, "{ran:?}");
}

/// Claims a job of this id and ends it.
fn ended(f: &Folder, id: &str, word: &str) {
    f.claim(&["--id", id]);
    finish(f, id, word);
}

fn finish(f: &Folder, id: &str, word: &str) {
    let ran = f.run("jobdir", ["finish", id, word]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}

fn lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn jobs(text: &str) -> Vec<String> {
    lines(text).iter().map(|line| line["job"].as_str().unwrap().to_owned()).collect()
}

fn is_pending(f: &Folder, id: &str) -> bool {
    let (pending, delivered) = (f.root().join("jobs").join(id), f.root().join("delivered").join(id));
    assert!(pending.is_dir() != delivered.is_dir(), "{id} is in both places or in none");
    pending.is_dir()
}

/// A script in the folder, as an absolute path.
fn script(f: &Folder, name: &str, text: &str) -> String {
    fs::write(f.path(name), text).unwrap();
    fs::set_permissions(f.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    f.path(name).display().to_string()
}

/// Many claimed jobs, quickly: copies of one.
fn many(f: &Folder, count: usize) {
    f.claim(&["--id", "j0"]);
    let texts = ["meta.json", "status", "pid", "out.log"];
    let texts = texts.map(|name| (name, fs::read_to_string(f.file("j0", name)).unwrap()));
    for n in 1..count {
        let dir = f.root().join(format!("jobs/j{n}"));
        fs::create_dir(&dir).unwrap();
        for (name, text) in &texts {
            fs::write(dir.join(name), text.replace("\"j0\"", &format!("\"j{n}\""))).unwrap();
        }
    }
}

fn end_of(mut child: Child) -> Ran {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |stream: Option<&mut dyn std::io::Read>| {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            stream.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8(bytes).unwrap()
    };
    let out = read(out.as_mut().map(|s| s as _));
    let err = read(err.as_mut().map(|s| s as _));
    Ran { status: child.wait().unwrap().code().unwrap_or(-1), out, err }
}

// ---- the command line ----

#[test]
fn help_is_for_people_and_the_version_for_programs() {
    let f = Folder::new();
    for help in ["--help", "-h"] {
        let ran = sweep(&f, [help]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert!(ran.out.starts_with("Usage: sweep "));
        assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
        for option in ["--root", "--name", "--limit", "--ack", "--follow", "--in-flight", "HANDLER"] {
            assert!(ran.out.contains(option), "{option}");
        }
    }
    for version in ["--version", "-V"] {
        quiet(&sweep(&f, [version]), 0, concat!("sweep ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn a_wrong_call_is_2_and_says_why() {
    let f = Folder::new();
    let wrong: &[&[&str]] = &[
        &["--frob"],
        &["-x"],
        &["--limit"],
        &["--limit", "-1"],
        &["--limit", "many"],
        &["--limit", ""],
        &["--name"],
        &["--root"],
        &["--ack=yes"],
        &["--ack", "--follow"],
        &["--ack", "--in-flight"],
        &["--follow", "--in-flight"],
        &["--ack", "--", "true"],
        &["--in-flight", "--", "true"],
    ];
    for args in wrong {
        refuses(&sweep(&f, *args), 2, "--help");
    }
    let ran = run(f.command("env").arg("-i").arg(bin("sweep")));
    refuses(&ran, 2, "--root");
    assert!(!f.root().exists());
}

#[test]
fn an_empty_or_missing_root_has_nothing_to_say() {
    let f = Folder::new();
    for _ in 0..2 {
        quiet(&sweep(&f, [""; 0]), 0, "");
        quiet(&sweep(&f, ["--", "false"]), 0, "");
        quiet(&sweep(&f, ["--in-flight"]), 1, "");
        quiet(&ack(&f, ""), 0, "");
        quiet(&ack(&f, "\n\n  \n"), 0, "");
        if f.root().exists() {
            break;
        }
        fs::create_dir(f.root()).unwrap();
        fs::set_permissions(f.root(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    refuses(&ack(&f, "a\n"), 1, "no such job");
}

#[test]
fn a_root_that_is_not_safely_ours_is_refused() {
    let f = Folder::new();
    ended(&f, "a", "done");
    symlink(f.root(), f.path("link")).unwrap();
    let link = f.path("link").display().to_string();
    fs::set_permissions(f.root(), fs::Permissions::from_mode(0o770)).unwrap();
    let modes: [&[&str]; 5] = [&[], &["--ack"], &["--in-flight"], &["--follow"], &["--", "true"]];
    for mode in modes {
        refuses(&sweep(&f, mode), 77, "cannot use job root");
        refuses(&sweep(&f, ["-r", &link].iter().chain(mode)), 77, "cannot use job root");
    }
    fs::set_permissions(f.root(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(jobs(&sweep(&f, [""; 0]).out), ["a"]);
}

// ---- lines ----

#[test]
fn each_end_is_a_line_in_the_order_of_ids_until_it_is_acknowledged() {
    let f = Folder::new();
    for (id, word) in [("c", "failed"), ("a", "done"), ("d", "timeout"), ("b", "unknown")] {
        ended(&f, id, word);
    }
    f.claim(&["--id", "aa"]);
    let ran = sweep(&f, [""; 0]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(jobs(&ran.out), ["a", "b", "c", "d"]);
    let words: Vec<Value> = lines(&ran.out).iter().map(|line| line["status"].clone()).collect();
    assert_eq!(words, ["done", "unknown", "failed", "timeout"]);
    for line in lines(&ran.out) {
        assert_eq!(line.get("log_tail").is_some(), line["status"] != "done", "{line}");
        assert!(line.get("attempt").is_none(), "{line}");
    }
    // A line in a pipe is not delivered.
    assert_eq!(sweep(&f, [""; 0]), ran);
    for id in ["a", "b", "c", "d"] {
        assert!(is_pending(&f, id));
        assert!(!f.file(id, "delivery.json").exists(), "a plain sweep wrote something");
    }
    quiet(&ack(&f, &ran.out), 0, "");
    assert!(["a", "b", "c", "d"].iter().all(|id| !is_pending(&f, id)) && is_pending(&f, "aa"));
    quiet(&sweep(&f, [""; 0]), 0, "");
}

#[test]
fn a_record_goes_through_unharmed() {
    let f = Folder::new();
    ended(&f, "a", "done");
    ended(&f, "b", "failed");
    let text = |id: &str, word: &str| {
        format!(
            "{{\"z\" : 1.50,\r\n \"version\":9,\"n\":12345678901234567890,\n\t\"job\":\"{id}\", \"claim\":{},\n\
             \"new\":{{\"e\":1e400,\"s\":\"a  \\\" b\u{2028}\\u0000\"}},\"status\":\"{word}\"\n}}\n\n",
            f.record(id)["claim"]
        )
    };
    let expected = |id: &str, word: &str| {
        format!(
            "{{\"z\":1.50,\"version\":9,\"n\":12345678901234567890,\"job\":\"{id}\",\"claim\":{},\
             \"new\":{{\"e\":1e400,\"s\":\"a  \\\" b\u{2028}\\u0000\"}},\"status\":\"{word}\"",
            f.record(id)["claim"]
        )
    };
    let (a, b) = (expected("a", "done"), expected("b", "failed"));
    let (new_a, new_b) = (text("a", "done"), text("b", "failed"));
    fs::write(f.file("a", "result.json"), new_a).unwrap();
    fs::write(f.file("b", "result.json"), new_b).unwrap();
    quiet(&sweep(&f, [""; 0]), 0, &format!("{a}}}\n{b},\"log_tail\":\"\"}}\n"));
    // A record on one line stays as it is, byte for byte.
    ended(&f, "c", "done");
    let record = fs::read_to_string(f.file("c", "result.json")).unwrap();
    assert!(sweep(&f, [""; 0]).out.ends_with(&record));
}

#[test]
fn one_line_for_each_job_whatever_its_output_holds() {
    let f = Folder::new();
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let documents = [
        "{\n  \"t\": \"line1\\nline2\\r\\n\\ttab\"\r\n}\n".to_owned(),
        "{\"u\":\"a\u{2028}b\u{2029}c\u{85}d\\u0000e\u{1f600}\"}".to_owned(),
        format!("{{\"big\":\"{}\"}}", "y".repeat(2_000_000)),
        deep.clone(),
    ];
    for (n, text) in documents.iter().enumerate() {
        let id = f.claim(&["--id", &format!("doc-{n}")]);
        fs::write(f.path("doc"), text).unwrap();
        let ran = f.run("jobdir", ["put", &id, f.path("doc").to_str().unwrap()]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        finish(&f, &id, "done");
    }
    let ran = sweep(&f, [""; 0]);
    assert_eq!((ran.status, ran.out.matches('\n').count()), (0, 4));
    let out: Vec<&str> = ran.out.lines().take(4).collect();
    for n in 0..3 {
        let line: Value = serde_json::from_str(out[n]).unwrap();
        let published: Value = serde_json::from_str(&documents[n]).unwrap();
        assert!(line["output"] == published, "doc-{n} changed on the way");
    }
    assert!(out[3].contains(&format!("\"output\":{deep}")));
    quiet(&ack(&f, &ran.out), 0, "");
    assert!((0..4).all(|n| !is_pending(&f, &format!("doc-{n}"))));
}

#[test]
fn the_tail_of_the_log_is_short_and_valid_text() {
    let f = Folder::new();
    ended(&f, "a", "failed");
    let tail = |log: &[u8]| {
        fs::write(f.file("a", "out.log"), log).unwrap();
        let ran = sweep(&f, [""; 0]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        lines(&ran.out)[0]["log_tail"].as_str().unwrap().to_owned()
    };
    assert_eq!(tail(b""), "");
    assert_eq!(tail(b"the end\n"), "the end\n");
    assert_eq!(tail(b"\xffx\xfe"), "\u{fffd}x\u{fffd}");
    let long = format!("{}the end", "x".repeat(10_000));
    assert_eq!(tail(long.as_bytes()), long[long.len() - 2048..]);
    // Cut inside a character, at each of its bytes.
    for character in ["é", "€", "😀"] {
        for shift in 0..4 {
            let log = format!("{}{}", character.repeat(3000), "x".repeat(shift));
            let tail = tail(log.as_bytes());
            assert!(log.ends_with(&tail) && tail.len() > 2048 - 4 && tail.len() <= 2048, "{character} {shift}");
        }
    }
    let noise = tail(&[0xff; 5000]);
    assert!(!noise.is_empty() && noise.chars().count() <= 2048);
    let controls = tail(b"\x1b[31mred\x00\n");
    assert_eq!(controls, "\u{1b}[31mred\u{fffd}\n");
    // A log that is no file says nothing, and holds nobody up.
    fs::remove_file(f.file("a", "out.log")).unwrap();
    nix::unistd::mkfifo(&f.file("a", "out.log"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let ran = sweep(&f, [""; 0]);
    assert_eq!((ran.status, &lines(&ran.out)[0]["log_tail"]), (0, &json!("")));
    fs::remove_file(f.file("a", "out.log")).unwrap();
    symlink("/etc/passwd", f.file("a", "out.log")).unwrap();
    assert_eq!(lines(&sweep(&f, [""; 0]).out)[0]["log_tail"], "");
}

#[test]
fn what_died_is_settled_first_and_reported() {
    let f = Folder::new();
    f.claim(&["--id", "a", "--start-within", "10ms"]);
    f.claim(&["--id", "b"]);
    // Its owner is gone: the lock is free.
    fs::write(f.file("b", "pid"), "12345\n").unwrap();
    fs::write(f.file("b", "status"), "running\n").unwrap();
    ended(&f, "c", "done");
    // The view was left behind.
    fs::write(f.file("c", "status"), "running\n").unwrap();
    f.claim(&["--id", "d"]);
    until("the start window is over", || f.run("jobdir", ["status", "a"]).out == "unknown\n");
    let ran = sweep(&f, [""; 0]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let reasons: Vec<(Value, Value)> =
        lines(&ran.out).iter().map(|line| (line["status"].clone(), line["reason"].clone())).collect();
    let pair = |status: &str, reason: &str| (json!(status), json!(reason));
    assert_eq!(reasons, [pair("unknown", "never-started"), pair("unknown", "worker-died"), pair("done", "finished")]);
    assert_eq!([f.word("b"), f.word("c"), f.word("d")], ["unknown", "done", "claimed"]);
}

#[test]
fn a_name_and_a_limit_choose_the_lines() {
    let f = Folder::new();
    for (id, name) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        f.claim(&["--id", id, "--name", name]);
        finish(&f, id, "failed");
    }
    f.claim(&["--id", "e", "--name", "x"]);
    let chosen = |args: &[&str]| jobs(&sweep(&f, args).out);
    assert_eq!(chosen(&["--name", "x"]), ["a", "c", "d"]);
    assert_eq!(chosen(&["-n", "y"]), ["b"]);
    assert_eq!(chosen(&["-n", "nobody"]), [""; 0]);
    assert_eq!(chosen(&["--limit", "2"]), ["a", "b"]);
    assert_eq!(chosen(&["--limit", "0"]), [""; 0]);
    assert_eq!(chosen(&["--limit", "2", "-n", "x"]), ["a", "c"]);
    assert_eq!(chosen(&["--in-flight", "-n", "x"]), ["e"]);
    assert_eq!(sweep(&f, ["--in-flight", "-n", "y"]).status, 1);
    quiet(&sweep(&f, ["--limit", "1", "-n", "x", "--", "true"]), 0, "");
    assert_eq!([is_pending(&f, "a"), is_pending(&f, "b"), is_pending(&f, "c")], [false, true, true]);
}

#[test]
fn several_roots_are_swept_one_after_the_other() {
    let (f, g) = (Folder::new(), Folder::new());
    ended(&f, "b", "done");
    ended(&g, "a", "done");
    ended(&g, "c", "done");
    let (one, two) = (f.root().display().to_string(), g.root().display().to_string());
    let missing = f.path("missing").display().to_string();
    let roots = ["-r", &one, "--root", &missing, "-r", &two];
    assert_eq!(jobs(&sweep(&f, roots).out), ["b", "a", "c"]);
    assert_eq!(jobs(&sweep(&f, roots.iter().chain(&["--limit", "2"])).out), ["b", "a"]);
    fs::write(f.path("ids"), "b\nc\n").unwrap();
    let ran = run(call(&f, roots.iter().chain(&["--ack"])).stdin(File::open(f.path("ids")).unwrap()));
    quiet(&ran, 0, "");
    assert!(!is_pending(&f, "b") && !is_pending(&g, "c") && is_pending(&g, "a"));
}

#[test]
fn in_flight_is_the_guard_for_health_checks() {
    let f = Folder::new();
    ended(&f, "over", "done");
    quiet(&sweep(&f, ["--in-flight"]), 1, "");
    f.claim(&["--id", "here", "--name", "n"]);
    let ran = sweep(&f, ["-i"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let rows = lines(&ran.out);
    assert_eq!((rows.len(), &rows[0]["job"], &rows[0]["status"]), (1, &json!("here"), &json!("claimed")));
    finish(&f, "here", "failed");
    quiet(&sweep(&f, ["--in-flight"]), 1, "");
    // What is damaged does not run: it would keep every health check away until somebody mends it.
    for name in ["meta.json", "result.json"] {
        fs::remove_file(f.file("here", name)).unwrap();
    }
    fs::write(f.file("here", "status"), "rubbish\n").unwrap();
    quiet(&sweep(&f, ["--in-flight"]), 1, "");
}

// ---- acknowledgements ----

#[test]
fn a_line_or_an_id_acknowledges_and_twice_is_fine() {
    let f = Folder::new();
    for id in ["a", "b", "c"] {
        ended(&f, id, "failed");
    }
    let all = sweep(&f, [""; 0]).out;
    let first = all.lines().next().unwrap();
    quiet(&ack(&f, first), 0, "");
    assert!(!is_pending(&f, "a"));
    quiet(&ack(&f, "b\r\n\n  \n"), 0, "");
    assert!(!is_pending(&f, "b"));
    quiet(&ack(&f, &all), 0, "");
    quiet(&ack(&f, &all), 0, "");
    quiet(&ack(&f, "a\nb\nc\n"), 0, "");
    assert!(!is_pending(&f, "c"));
    assert_eq!(f.record("a")["status"], "failed");
}

#[test]
fn a_line_counts_only_for_the_claim_that_it_names() {
    let f = Folder::new();
    ended(&f, "a", "done");
    let old = sweep(&f, [""; 0]).out;
    quiet(&ack(&f, &old), 0, "");
    assert_eq!(f.run("jobdir", ["prune", "--older-than", "0"]).out, "a\n");
    // The id is used again: the late acknowledgement of the first claim is not for this one.
    ended(&f, "a", "failed");
    refuses(&ack(&f, &old), 1, "another claim");
    assert!(is_pending(&f, "a"));
    let claim = f.record("a")["claim"].clone();
    refuses(&ack(&f, "{\"job\":\"a\"}\n"), 1, "a");
    refuses(&ack(&f, "{\"job\":\"a\",\"claim\":null}\n"), 1, "a");
    refuses(&ack(&f, "{\"job\":\"a\",\"claim\":7}\n"), 1, "a");
    assert!(is_pending(&f, "a"));
    quiet(&ack(&f, format!("{{\"claim\":{claim},\"more\":[{{}}],\"job\":\"a\"}}")), 0, "");
    assert!(!is_pending(&f, "a"));
    refuses(&ack(&f, &old), 1, "another claim");
}

#[test]
fn a_line_of_no_use_is_reported_and_the_others_count() {
    let f = Folder::new();
    for id in ["a", "b", "z"] {
        ended(&f, id, "done");
    }
    f.claim(&["--id", "live"]);
    let mut input = b"a\nnot an id\n{\"job\":\"b\"\n\xff\xfe\n42\n[]\n{}\n../a\nmissing\nlive\n\x1b[31m\n".to_vec();
    input.extend(format!("{}\n", "x".repeat(1_000_000)).into_bytes());
    // The last line has no end.
    input.extend(b"z");
    let ran = ack(&f, &input);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    assert!(ran.err.lines().all(|line| line.starts_with("sweep: cannot acknowledge ")), "{:.2000}", ran.err);
    assert!(!ran.err.contains('\u{1b}') && ran.err.contains("live") && ran.err.contains("missing"));
    assert_eq!(ran.err.lines().count(), 11);
    assert!(!is_pending(&f, "a") && is_pending(&f, "b") && !is_pending(&f, "z") && is_pending(&f, "live"));
}

#[test]
fn a_job_that_has_not_ended_is_not_delivered() {
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    refuses(&ack(&f, "a\n"), 1, "has not ended");
    let claim = fs::read_to_string(f.file("a", "meta.json")).unwrap();
    let claim: Value = serde_json::from_str(&claim).unwrap();
    refuses(&ack(&f, format!("{{\"job\":\"a\",\"claim\":{}}}\n", claim["claim"])), 1, "has not ended");
    assert!(is_pending(&f, "a"));
    finish(&f, "a", "done");
    quiet(&ack(&f, "a\n"), 0, "");
}

#[test]
fn a_pipeline_of_sweeps_does_not_stall_on_itself() {
    let f = Folder::new();
    for n in 0..30 {
        ended(&f, &format!("j{n:02}"), "failed");
    }
    let ran = f.sh("timeout -s KILL 60 sh -c 'sweep | tee lines | sweep --ack' && rm lines");
    quiet(&ran, 0, "");
    assert!((0..30).all(|n| !is_pending(&f, &format!("j{n:02}"))));
    // While a handler sweep holds its turn, an acknowledgement goes through.
    ended(&f, "a", "done");
    ended(&f, "b", "done");
    let handler = script(&f, "handler", "#!/bin/sh\necho b | timeout -s KILL 30 sweep --ack\n");
    quiet(&sweep(&f, ["--limit", "1", "--", &handler]), 0, "");
    assert!(!is_pending(&f, "a") && !is_pending(&f, "b"));
}

// ---- handlers ----

#[test]
fn the_exit_status_of_a_handler_is_the_acknowledgement() {
    let f = Folder::new();
    for id in ["a", "b", "c"] {
        ended(&f, id, "failed");
    }
    // Takes all but b, and keeps what it got.
    let got = f.path("got").display().to_string();
    let handler = script(
        &f,
        "handler",
        "#!/bin/sh\nline=$(cat)\nprintf '%s\\n' \"$line\" >>\"$1\"\ncase $line in *'\"job\":\"b\"'*) exit 7;; esac\n",
    );
    for attempt in 1..=3 {
        let _ = fs::remove_file(&got);
        let ran = sweep(&f, ["--", &handler, &got]);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("job b") && ran.err.lines().count() == 1, "{ran:?}");
        assert_eq!([is_pending(&f, "a"), is_pending(&f, "b"), is_pending(&f, "c")], [false, true, false]);
        let text = fs::read_to_string(&got).unwrap();
        assert_eq!(jobs(&text), if attempt == 1 { vec!["a", "b", "c"] } else { vec!["b"] });
        for line in lines(&text) {
            assert_eq!(line["attempt"], json!(if line["job"] == "b" { attempt } else { 1 }));
            assert!(line["log_tail"].is_string() && line["claim"].is_string());
        }
        let row: Value = serde_json::from_str(&f.run("jobdir", ["list", "--json"]).out).unwrap();
        assert_eq!(row["attempt"], json!(attempt));
    }
    // A plain sweep is no attempt.
    assert!(lines(&sweep(&f, [""; 0]).out)[0].get("attempt").is_none());
    quiet(&sweep(&f, ["true"]), 0, "");
    assert!(!is_pending(&f, "b"));
    ended(&f, "d", "done");
    let ran = sweep(&f, ["sh", "-c", "kill -9 $$"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(is_pending(&f, "d"));
}

#[test]
fn a_handler_gets_its_arguments_and_may_ignore_its_input() {
    let f = Folder::new();
    let id = f.claim(&[]);
    fs::write(f.path("doc"), format!("[\"{}\"]", "x".repeat(1_000_000))).unwrap();
    assert_eq!(f.run("jobdir", ["put", &id, f.path("doc").to_str().unwrap()]).status, 0);
    finish(&f, &id, "done");
    let ran = sweep(&f, ["--", "sh", "-c", "printf '<%s>' \"$@\"", "--", "--ack", "a b", "", "-r"]);
    quiet(&ran, 0, "<--ack><a b><><-r>");
    assert!(!is_pending(&f, &id));
}

#[test]
fn a_caller_that_ignores_the_end_of_children_has_handlers_all_the_same() {
    // The handler had run, and the sweep said that it could not: no child processes.
    let f = Folder::new();
    ended(&f, "a", "done");
    quiet(&f.sh("trap '' CHLD; exec sweep -- true"), 0, "");
    assert!(!is_pending(&f, "a"));
}

#[test]
fn a_handler_that_cannot_be_run_ends_the_sweep() {
    let f = Folder::new();
    ended(&f, "a", "done");
    refuses(&sweep(&f, ["--", "/nonexistent/handler"]), 127, "/nonexistent/handler");
    refuses(&sweep(&f, ["no-such-handler"]), 127, "no-such-handler");
    fs::write(f.path("plain"), "#!/bin/sh\n").unwrap();
    let plain = f.path("plain").display().to_string();
    refuses(&sweep(&f, ["--", &plain]), 126, &plain);
    refuses(&sweep(&f, ["--", "/"]), 126, "/");
    assert!(is_pending(&f, "a"));
    quiet(&sweep(&f, ["--", "true"]), 0, "");
}

#[test]
fn a_handler_that_can_take_nothing_now_is_not_tried_again() {
    let f = Folder::new();
    for id in ["a", "b", "c"] {
        ended(&f, id, "done");
    }
    let handler = script(&f, "handler", "#!/bin/sh\ncat >>\"$1\"\nexit 75\n");
    let got = f.path("got").display().to_string();
    refuses(&sweep(&f, ["--", &handler, &got]), 75, "can take nothing now");
    assert_eq!(jobs(&fs::read_to_string(&got).unwrap()), ["a"]);
    quiet(&sweep(&f, ["--", "true"]), 0, "");
    assert!(["a", "b", "c"].iter().all(|id| !is_pending(&f, id)));
}

#[test]
fn a_missing_interpreter_of_a_handler_is_named() {
    let f = Folder::new();
    ended(&f, "a", "done");
    let handler = script(&f, "handler", "#!/nonexistent/interpreter -x\n");
    refuses(&sweep(&f, ["--", &handler]), 127, "/nonexistent/interpreter");
    assert!(is_pending(&f, "a"));
}

#[test]
fn overlapping_handler_sweeps_do_not_send_twice() {
    let f = Folder::new();
    for n in 0..8 {
        ended(&f, &format!("j{n}"), "failed");
    }
    let sent = f.path("sent").display().to_string();
    let handler = script(&f, "handler", "#!/bin/sh\ncat >>\"$1\"\nsleep 0.02\n");
    let ticks: Vec<Child> = (0..4).map(|_| call(&f, ["--", &handler, &sent]).spawn().unwrap()).collect();
    for tick in ticks {
        assert_eq!(end_of(tick).status, 0);
    }
    assert_eq!(jobs(&fs::read_to_string(&sent).unwrap()), (0..8).map(|n| format!("j{n}")).collect::<Vec<_>>());
    assert!((0..8).all(|n| !is_pending(&f, &format!("j{n}"))));
}

#[test]
fn a_handler_inherits_neither_locks_nor_job_files() {
    let f = Folder::new();
    ended(&f, "a", "done");
    let ran = sweep(&f, ["--", "sh", "-c", "ls -l /proc/$$/fd | grep -c outlive; cat >/dev/null"]);
    quiet(&ran, 0, "0\n");
}

// ---- damage ----

#[test]
fn one_damaged_job_never_stops_the_others() {
    let f = Folder::new();
    for id in ["a", "b", "c", "d", "e", "f", "g", "h", "z"] {
        ended(&f, id, "done");
    }
    let plant = |id: &str, bytes: &[u8]| fs::write(f.file(id, "result.json"), bytes).unwrap();
    plant("b", b"{\"job\":\"b\",\"trunc");
    plant("c", b"42\n");
    plant("d", b"\xff\xfe\n");
    fs::remove_file(f.file("e", "result.json")).unwrap();
    fs::create_dir(f.file("e", "result.json")).unwrap();
    fs::remove_file(f.file("f", "result.json")).unwrap();
    let other = fs::read(f.file("a", "result.json")).unwrap();
    plant("g", &other);
    fs::remove_file(f.file("h", "result.json")).unwrap();
    symlink(f.file("a", "result.json"), f.file("h", "result.json")).unwrap();
    let jobs_dir = f.root().join("jobs");
    fs::write(jobs_dir.join(".DS_Store"), "x").unwrap();
    fs::write(jobs_dir.join("notes.json"), "[]").unwrap();
    fs::create_dir(jobs_dir.join("empty")).unwrap();
    symlink("/nonexistent", jobs_dir.join("zz")).unwrap();
    use std::os::unix::ffi::OsStrExt;
    fs::create_dir(jobs_dir.join(OsStr::from_bytes(b"odd \xff"))).unwrap();

    let ran = sweep(&f, [""; 0]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let emitted = lines(&ran.out);
    assert_eq!(jobs(&ran.out), ["a", "b", "c", "d", "e", "f", "g", "h", "z"]);
    for line in &emitted {
        let id = line["job"].as_str().unwrap();
        if ["a", "z"].contains(&id) {
            assert_eq!(line["status"], "done");
            continue;
        }
        assert_eq!((&line["status"], &line["reason"]), (&json!("unknown"), &json!("damaged")), "{line}");
        assert!(
            line["log_tail"].is_string() && !line["error"].as_str().unwrap().is_empty() && line["claim"].is_string()
        );
        assert!(ran.err.contains(&format!("job {id}: ")), "{}", ran.err);
    }
    assert_eq!(ran.err.lines().count(), 7);
    for name in [".DS_Store", "notes.json", "empty"] {
        assert!(jobs_dir.join(name).exists(), "{name} is gone");
    }
    assert!(jobs_dir.join("zz").is_symlink());
    // Whoever has dealt with the damage says so like for any other line.
    quiet(&ack(&f, &ran.out), 0, "");
    quiet(&sweep(&f, [""; 0]), 0, "");
}

#[test]
fn a_damaged_end_goes_to_a_handler_too() {
    let f = Folder::new();
    for id in ["a", "b"] {
        ended(&f, id, "done");
    }
    fs::write(f.file("a", "result.json"), "42\n").unwrap();
    let got = f.path("got").display().to_string();
    let handler = script(&f, "handler", "#!/bin/sh\ncat >>\"$1\"\n");
    let ran = sweep(&f, ["--", &handler, &got]);
    assert!(ran.status == 1 && ran.err.contains("job a: "), "{ran:?}");
    let got = lines(&fs::read_to_string(&got).unwrap());
    assert_eq!((&got[0]["reason"], &got[0]["attempt"]), (&json!("damaged"), &json!(1)));
    assert_eq!(got[1]["job"], "b");
    assert!(!is_pending(&f, "a") && !is_pending(&f, "b"));
}

#[test]
fn every_line_that_is_emitted_can_be_acknowledged() {
    // Regression: a job whose meta.json is damaged was emitted at every sweep, and its acknowledgement refused.
    let f = Folder::new();
    for (id, status) in [("a", "claimed\n"), ("b", "running\n"), ("c", "runn"), ("d", "done\n")] {
        f.claim(&["--id", id]);
        fs::write(f.file(id, "status"), status).unwrap();
        fs::write(f.file(id, "meta.json"), "{\"job\":").unwrap();
    }
    let ran = sweep(&f, [""; 0]);
    assert_eq!(ran.status, 1, "{ran:?}");
    quiet(&ack(&f, &ran.out), 0, "");
    assert_eq!(sweep(&f, [""; 0]).out, "");
}

#[test]
fn a_result_that_cannot_be_read_now_is_mentioned_and_comes_later() {
    let f = Folder::new();
    ended(&f, "a", "done");
    ended(&f, "b", "done");
    let chmod = |mode| fs::set_permissions(f.file("a", "result.json"), fs::Permissions::from_mode(mode)).unwrap();
    chmod(0);
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() == 0 };
    let mut command = call(&f, [""; 0]);
    if root {
        let all = f.sh("chown -R 65534:65534 \"$JOBDIR_ROOT\" && chmod 711 \"$JOBDIR_ROOT/..\"");
        assert_eq!(all.status, 0, "{all:?}");
        command = f.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(bin("sweep"));
        if !run(f.command("setpriv").args(["--reuid", "65534", "--clear-groups"]).arg(bin("sweep")).arg("-V"))
            .out
            .starts_with("sweep ")
        {
            eprintln!("skipped: another user cannot run the tools here");
            return;
        }
    }
    let ran = run(&mut command);
    assert_eq!((ran.status, jobs(&ran.out)), (1, vec!["b".to_owned()]), "{ran:?}");
    assert!(ran.err.contains("job a: ") && ran.err.contains("permission denied"), "{ran:?}");
    chmod(0o600);
    let ran = run(&mut command);
    assert_eq!((ran.status, jobs(&ran.out)), (0, vec!["a".to_owned(), "b".to_owned()]), "{ran:?}");
}

#[test]
fn a_job_that_lives_is_never_emitted_or_delivered_for_want_of_descriptors() {
    // Regression: past the limit on descriptors live jobs were emitted as damaged, and moved by a handler's exit 0.
    let f = Folder::new();
    many(&f, 280);
    for handler in ["", "-- true"] {
        let ran = f.sh(&format!("ulimit -n 256; sweep {handler}"));
        assert_eq!(ran.out.lines().count(), 0, "live jobs were emitted, such as {:.200}", ran.out);
        assert_eq!(fs::read_dir(f.root().join("delivered")).unwrap().count(), 0, "a live job was delivered");
    }
    let ran = sweep(&f, [""; 0]);
    quiet(&ran, 0, "");
}

#[test]
fn a_job_that_was_claimed_anew_during_the_sweep_is_left_alone() {
    // Regression: between the settling and its turn its id came to stand for a new claim, which was emitted as
    // damaged, and moved to delivered/ while it lived.
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    ended(&f, "b", "done");
    ended(&f, "c", "done");
    let sent = f.path("sent").display().to_string();
    let text = "#!/bin/sh\nline=$(cat)\nprintf '%s\\n' \"$line\" >>\"$1\"\ncase $line in *'\"job\":\"b\"'*)\n\
                echo c | sweep --ack && jobdir prune --older-than 0 && jobdir claim --id c;; esac\n";
    let handler = script(&f, "handler", text);
    let ran = sweep(&f, ["--", &handler, &sent]);
    assert_eq!(ran.out, "c\nc\n", "{ran:?}");
    assert_eq!(jobs(&fs::read_to_string(&sent).unwrap()), ["b"], "a live job was emitted");
    assert!(is_pending(&f, "c"), "a live job was delivered");
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}

#[test]
fn a_record_whose_view_cannot_be_completed_is_emitted_all_the_same() {
    // Regression: on a root that takes no writes any more it was left out, without a word and with status 0.
    for first in ["a", "z"] {
        let f = Folder::new();
        f.claim(&["--id", first]);
        ended(&f, "c", "failed");
        fs::remove_file(f.file("c", "status")).unwrap();
        fs::create_dir(f.file("c", "status")).unwrap();
        let ran = sweep(&f, ["--name", "nobody"]);
        assert_eq!(ran.out, "");
        let ran = sweep(&f, [""; 0]);
        assert_eq!((ran.status, jobs(&ran.out)), (0, vec!["c".to_owned()]), "{ran:?}");
        quiet(&ack(&f, &ran.out), 0, "");
        assert!(!is_pending(&f, "c"));
    }
    // The first of them that is met is the occasion to settle all.
    let f = Folder::new();
    for id in ["a", "b"] {
        ended(&f, id, "done");
        fs::remove_file(f.file(id, "status")).unwrap();
        fs::create_dir(f.file(id, "status")).unwrap();
    }
    assert_eq!(jobs(&sweep(&f, [""; 0]).out), ["a", "b"]);
}

#[test]
fn a_job_whose_owner_lives_is_not_delivered_whatever_is_damaged() {
    // Regression: its end would come in delivered/, where nobody looks any more.
    let f = Folder::new();
    f.claim(&["--id", "a"]);
    fs::write(f.file("a", "status"), "running\n").unwrap();
    fs::write(f.file("a", "meta.json"), "{").unwrap();
    let owner = File::open(f.file("a", "pid")).unwrap();
    // SAFETY: flock(2) on a descriptor that `owner` keeps open.
    assert_eq!(unsafe { libc::flock(owner.as_raw_fd(), libc::LOCK_EX) }, 0);
    let ran = sweep(&f, ["--", "true"]);
    assert!(ran.err.contains("job a"), "{ran:?}");
    assert!(is_pending(&f, "a"), "a living job was delivered");
    refuses(&ack(&f, "a\n"), 1, "job a");
    assert!(is_pending(&f, "a"), "a living job was delivered");
    drop(owner);
    sweep(&f, ["--", "true"]);
    assert!(!is_pending(&f, "a"));
}

#[test]
fn a_limit_on_lines_is_no_limit_on_settling() {
    let f = Folder::new();
    ended(&f, "a", "done");
    f.claim(&["--id", "b"]);
    // Its owner is gone: the lock is free.
    fs::write(f.file("b", "pid"), "12345\n").unwrap();
    fs::write(f.file("b", "status"), "running\n").unwrap();
    assert_eq!(jobs(&sweep(&f, ["--limit", "1"]).out), ["a"]);
    assert_eq!(f.word("b"), "unknown");
}

#[test]
fn damaged_files_beside_a_good_record_do_not_matter() {
    let f = Folder::new();
    ended(&f, "a", "failed");
    for name in ["meta.json", "owner.json", "progress", "delivery.json", "out.log", "pid"] {
        let _ = fs::remove_file(f.file("a", name));
        fs::create_dir(f.file("a", name)).unwrap();
    }
    let ran = sweep(&f, [""; 0]);
    assert_eq!((ran.status, ran.err.as_str(), jobs(&ran.out)), (0, "", vec!["a".to_owned()]));
    let ran = sweep(&f, ["--", "true"]);
    assert!(ran.status == 0 && ran.err.lines().all(|line| line.starts_with("sweep: warning: ")), "{ran:?}");
    assert!(!is_pending(&f, "a"));
}

// ---- follow, and more than one at once ----

/// A follower, with its lines as they come.
struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(f: &Folder, args: &[&str]) -> Follower {
        let mut child = f.tool("sweep", args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Follower { child, lines }
    }

    fn next(&self) -> Value {
        let line = self.lines.recv_timeout(Duration::from_secs(20)).expect("a line within 20 s");
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }
}

#[test]
fn a_follower_emits_each_job_once_as_it_ends() {
    let f = Folder::new();
    ended(&f, "old", "done");
    f.claim(&["--id", "a"]);
    let follower = Follower::start(&f, &["--follow"]);
    assert_eq!(follower.next()["job"], "old");
    finish(&f, "a", "failed");
    let line = follower.next();
    assert_eq!((&line["job"], line["log_tail"].is_string()), (&json!("a"), true));
    // Claimed after its start, ended right away, and one that nobody starts.
    ended(&f, "b", "timeout");
    assert_eq!(follower.next()["job"], "b");
    f.claim(&["--id", "c", "--start-within", "100ms"]);
    let line = follower.next();
    assert_eq!((&line["job"], &line["reason"]), (&json!("c"), &json!("never-started")));
    quiet(&ack(&f, "a\nold\n"), 0, "");
    ended(&f, "d", "done");
    assert_eq!(follower.next()["job"], "d");
    assert!(is_pending(&f, "b") && !is_pending(&f, "a"));
    assert_eq!(follower.end(), [""; 0], "a job was emitted twice");
}

#[test]
fn a_follower_emits_a_new_claim_of_an_old_id() {
    let f = Folder::new();
    ended(&f, "a", "done");
    let follower = Follower::start(&f, &["-f"]);
    let first = follower.next();
    quiet(&ack(&f, format!("{first}\n")), 0, "");
    assert_eq!(f.run("jobdir", ["prune", "--older-than", "0"]).out, "a\n");
    ended(&f, "a", "failed");
    let second = follower.next();
    assert_eq!(second["status"], "failed");
    assert_ne!(first["claim"], second["claim"]);
    assert_eq!(follower.end(), [""; 0]);
}

#[test]
fn a_follower_makes_the_root_it_waits_for_and_may_have_a_handler() {
    let f = Folder::new();
    let sent = f.path("sent").display().to_string();
    let handler = script(&f, "handler", "#!/bin/sh\ncat >>\"$1\"\n");
    let follower = Follower::start(&f, &["--follow", "--", &handler, &sent]);
    until("the root is there", || f.root().join("jobs").is_dir());
    ended(&f, "a", "done");
    until("a is delivered", || f.root().join("delivered/a").is_dir());
    ended(&f, "b", "failed");
    until("b is delivered", || f.root().join("delivered/b").is_dir());
    assert_eq!(jobs(&fs::read_to_string(&sent).unwrap()), ["a", "b"]);
    assert_eq!(follower.end(), [""; 0]);
}

#[test]
fn two_sweeps_at_once_tear_no_line_and_miss_none() {
    let f = Folder::new();
    let names: Vec<String> = (0..12).map(|n| format!("j{n:02}")).collect();
    for id in &names {
        f.claim(&["--id", id, "--meta", &format!("pad={}", "p".repeat(30_000))]);
        finish(&f, id, "failed");
    }
    let both: Vec<Child> = (0..2).map(|_| call(&f, [""; 0]).stdout(Stdio::piped()).spawn().unwrap()).collect();
    for ran in both.into_iter().map(end_of) {
        assert_eq!((ran.status, jobs(&ran.out)), (0, names.clone()));
    }
}

#[test]
fn a_full_device_is_125_and_a_closed_pipe_is_quiet() {
    let f = Folder::new();
    ended(&f, "a", "failed");
    f.claim(&["--id", "b"]);
    for args in [&[][..], &["--in-flight"], &["--follow"], &["--help"]] {
        let ran = run(call(&f, args).stdout(File::create("/dev/full").unwrap()));
        refuses(&ran, 125, "standard output");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = run(call(&f, args).stdout(writer));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{args:?}");
    }
    assert!(is_pending(&f, "a"));
    quiet(&f.sh("sweep | head -c 1 >/dev/null"), 0, "");
}

#[test]
fn closed_standard_streams_do_no_harm() {
    let f = Folder::new();
    ended(&f, "a", "failed");
    fs::write(f.path("ids"), "a\n").unwrap();
    quiet(&f.sh("sweep <&- 2>&- | wc -l | tr -d ' '"), 0, "1\n");
    assert_eq!(f.sh("exec sweep <&- >&- 2>&-").status, 0);
    assert_eq!(f.record("a")["status"], "failed");
    let ran = run(f.command("sh").args(["-c", "exec sweep --ack >&- 2>&-"]).stdin(File::open(f.path("ids")).unwrap()));
    assert_eq!(ran.status, 0);
    assert!(!is_pending(&f, "a"));
}

#[test]
fn a_handler_sweep_waits_for_its_turn_and_a_plain_one_does_not() {
    let f = Folder::new();
    ended(&f, "a", "done");
    let turn = File::open(f.root().join("jobs")).unwrap();
    // SAFETY: flock(2) on a descriptor that `turn` keeps open.
    assert_eq!(unsafe { libc::flock(turn.as_raw_fd(), libc::LOCK_EX) }, 0);
    assert_eq!(jobs(&sweep(&f, [""; 0]).out), ["a"]);
    let mut waiting = call(&f, ["--", "true"]).spawn().unwrap();
    quiet(&ack(&f, "a\n"), 0, "");
    assert!(waiting.try_wait().unwrap().is_none(), "it did not wait");
    drop(turn);
    assert_eq!(end_of(waiting).status, 0);
    assert!(!is_pending(&f, "a"));
}
