//! `--max-log`: the head and the tail of a log stay, its middle goes, and the command never notices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use serde_json::{Value, json};
use tests::{Folder, Ran, bin, run, until};

const SIZE: u64 = 1 << 20;

/// A job under `--max-log 1M` around a line of sh, with the most that its log had on the disk while it ran.
fn job(folder: &Folder, claim: &[&str], line: &str) -> (i32, Value, u64) {
    let id = folder.claim(claim);
    let words = ["--job", &id, "--max-log", "1M", "--", "sh", "-c", line];
    let mut child = folder.tool("watchdog", words).current_dir(folder.path("")).spawn().unwrap();
    let mut most = 0;
    until("the watchdog has ended", || {
        most = most.max(on_disk(folder, &id));
        child.try_wait().unwrap().is_some()
    });
    (child.wait().unwrap().code().unwrap(), folder.record(&id), most)
}

fn on_disk(folder: &Folder, id: &str) -> u64 {
    fs::metadata(folder.file(id, "out.log")).map_or(0, |stat| stat.blocks() * 512)
}

fn id(record: &Value) -> &str {
    record["job"].as_str().unwrap()
}

/// The bytes of a log from `at` on.
fn part(folder: &Folder, record: &Value, at: u64, length: u64) -> String {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    File::open(folder.file(id(record), "out.log")).unwrap().read_exact_at(&mut bytes, at).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// What a record says of its log: released, head, tail.
fn kept(record: &Value) -> [u64; 3] {
    let [warning] = &record["warnings"].as_array().unwrap()[..] else { panic!("{record}") };
    let numbers = warning.as_str().unwrap().split(' ').filter_map(|word| word.parse().ok());
    numbers.collect::<Vec<u64>>().try_into().unwrap_or_else(|_| panic!("{warning}"))
}

#[test]
fn a_flood_leaves_its_head_and_its_tail_and_its_length() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let (status, record, most) = job(&folder, &[], "timeout 2 yes; exit 3");
    assert_eq!((status, &record["reason"]), (3, &json!("exited")), "never a kill: {record}");
    let length = record["log_bytes"].as_u64().unwrap();
    assert!(length > 50 * SIZE, "{length}");
    assert_eq!(fs::metadata(folder.file(id(&record), "out.log")).unwrap().len(), length);
    let [released, head, tail] = kept(&record);
    assert_eq!(released + head + tail, length, "{record}");
    assert!(on_disk(&folder, id(&record)) <= SIZE + 2 * 4096, "{}", on_disk(&folder, id(&record)));
    // What a flood of gigabytes a second writes in the milliseconds for which a busy machine lets us wait.
    assert!(most < length / 4, "{most} of {length}");
    eprintln!("{length} bytes, at most {most} of them on the disk");
}

#[test]
fn every_byte_of_the_head_and_the_tail_is_the_commands_own() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let (_, record, _) = job(&folder, &[], "seq 10000000 14999999");
    assert_eq!(record["log_bytes"], 45_000_000);
    let [released, head, tail] = kept(&record);
    assert!(head >= SIZE / 2 && tail >= SIZE / 2 && released > 45_000_000 - 2 * SIZE, "{record}");
    let expected = |from: u64, length: u64| {
        let lines: String = (from / 9..=(from + length) / 9).map(|n| format!("{}\n", 10_000_000 + n)).collect();
        let skip = usize::try_from(from % 9).unwrap();
        lines[skip..skip + usize::try_from(length).unwrap()].to_owned()
    };
    assert!(part(&folder, &record, 0, head) == expected(0, head), "the head");
    let from = 45_000_000 - tail;
    assert!(part(&folder, &record, from, tail) == expected(from, tail), "the tail");
    assert_eq!(part(&folder, &record, from - 4096, 4096), "\0".repeat(4096), "the end of the hole");
    // A sweep passes on its end, as ever.
    let (_, record, _) = job(&folder, &[], "seq 10000000 14999999; exit 1");
    let ran = folder.run("sweep", [""; 0]);
    let line = ran.out.lines().find(|line| line.contains(id(&record))).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert!(line["log_tail"].as_str().unwrap().ends_with("14999998\n14999999\n"));
}

#[test]
fn a_log_within_its_bound_is_untouched_and_one_just_past_it_is_cut_at_the_end() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    for size in [0, 1000, SIZE] {
        let (status, record, _) = job(&folder, &[], &format!("yes | head -c {size}"));
        assert_eq!((status, &record["warnings"], &record["log_bytes"]), (0, &json!([]), &json!(size)));
        assert_eq!(part(&folder, &record, 0, size), "y\n".repeat(usize::try_from(size / 2).unwrap()));
    }
    let (_, record, _) = job(&folder, &[], &format!("yes | head -c {}", SIZE + 100_000));
    let [released, head, tail] = kept(&record);
    assert_eq!((head, released + head + tail), (SIZE / 2, SIZE + 100_000));
    assert!(on_disk(&folder, id(&record)) <= SIZE + 2 * 4096);
}

#[test]
fn a_log_that_the_command_cuts_itself_begins_anew() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let line = "yes | head -c 9000000; : >$JOB_DIR/out.log; seq 1000000 1009999";
    let (status, record, _) = job(&folder, &[], line);
    assert_eq!((status, &record["log_bytes"]), (0, &json!(80_000)), "{record}");
    assert!(part(&folder, &record, 0, 80_000).starts_with("1000000\n1000001\n"));
    assert!(part(&folder, &record, 0, 80_000).ends_with("1009998\n1009999\n"));
}

#[test]
fn silence_after_a_flood_is_silence_and_a_flood_is_life() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let line = "timeout 2 yes; touch quiet; sleep 60";
    let (status, record, _) = job(&folder, &["--idle", "1s"], line);
    assert_eq!((status, &record["reason"]), (124, &json!("idle")));
    let moment = |path: std::path::PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let quiet = moment(folder.path("quiet"));
    let took = moment(folder.file(id(&record), "result.json")).duration_since(quiet).unwrap().as_secs_f64();
    assert!((0.9..3.0).contains(&took), "{took}");
}

#[test]
fn a_watch_over_the_log_does_not_hide_that_the_command_began() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let ran =
        folder.run("detach", ["--ready", "watchdog", "--job", &id, "--max-log", "64k", "--", "sh", "-c", "sleep .1"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    until("it ends", || folder.word(&id) == "done");
}

#[test]
fn whoever_ignores_term_does_not_fill_the_disk_in_its_grace() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let line = "trap '' TERM; yes & sleep .5; yes";
    let (status, record, most) = job(&folder, &["--hard", "300ms", "--grace", "2s"], line);
    assert_eq!((status, &record["reason"]), (124, &json!("hard")));
    let length = record["log_bytes"].as_u64().unwrap();
    assert!(length > 50 * SIZE && most < length / 4, "{most} of {length}");
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn it_goes_together_with_a_namespace_and_a_captured_output() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let line = "seq 10000000 10999999 >&2; echo '[1]'";
    let words = ["--job", &id, "--max-log", "256k", "--capture", "--contain", "--", "sh", "-c", line];
    let ran = folder.run("watchdog", words);
    if ran.err.contains("cannot make a pid namespace") {
        return eprintln!("skipped: {}", ran.err.trim_end());
    }
    let record = folder.record(&id);
    assert_eq!((ran.status, &record["output"], &record["log_bytes"]), (0, &json!([1]), &json!(9_000_000)));
    let [_, head, tail] = kept(&record);
    assert!(head + tail <= (256 << 10) + 4096, "{record}");
}

#[test]
fn where_no_hole_can_be_made_twice_the_bound_ends_the_job() {
    if tests::is_portable("the middle of a log is released") {
        return;
    }
    let folder = Folder::new();
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped: there is no strace to refuse a hole with");
    }
    let refused = |id: &str, line: &str| {
        let dog = bin("watchdog").display().to_string();
        let words =
            ["-qq", "-o", "/dev/null", "-e", "trace=fallocate", "-e", "inject=fallocate:error=EOPNOTSUPP", &dog];
        run(folder.command("strace").args(words).args(["--job", id, "--max-log", "1M", "--", "sh", "-c", line]))
    };
    let id = folder.claim(&[]);
    let ran = refused(&id, "yes");
    if ran.err.starts_with("strace: ") {
        return eprintln!("skipped: {}", ran.err.trim_end());
    }
    assert_eq!(ran, Ran { status: 1, out: String::new(), err: String::new() });
    let record = folder.record(&id);
    let word = |key: &str| record[key].as_str().unwrap();
    assert_eq!((word("status"), word("reason"), &record["signal"]), ("failed", "log-limit", &json!(15)));
    assert!(word("error").contains("its log is past 2097152 bytes, and cannot be shortened: "), "{record}");
    assert_eq!((folder.word(&id).as_str(), folder.living()), ("failed", vec![]));
    // Between once and twice the bound it is a warning.
    let id = folder.claim(&[]);
    assert_eq!(refused(&id, "yes | head -c 1500000").status, 0);
    let record = folder.record(&id);
    assert!(record["warnings"].to_string().contains("the log's middle could not be released: "), "{record}");
}

#[test]
fn a_bound_needs_a_job_and_a_size() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    for words in [
        &["--max-log", "1M", "true"][..],
        &["--job", &id, "--max-log", "0", "true"],
        &["--job", &id, "--max-log", "63k", "true"],
        &["--job", &id, "--max-log", "1.5M", "true"],
        &["--job", &id, "--max-log", "1T", "true"],
    ] {
        let ran = folder.run("watchdog", words);
        assert!(ran.status == 125 && ran.err.contains("--max-log"), "{words:?}: {ran:?}");
    }
    assert_eq!(folder.run("watchdog", ["--job", &id, "--max-log", "1G", "true"]).status, 0);
}
