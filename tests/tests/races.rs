//! Many at once: one winner, whole lines, and nothing that was said is taken back.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Folder, Ran, json, run, until};

/// Starts them all, then waits for each.
fn at_once(commands: impl Iterator<Item = Command>) -> Vec<Ran> {
    let running: Vec<Child> =
        commands.map(|mut command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).collect();
    let end = |child: Child| {
        let output = child.wait_with_output().unwrap();
        Ran {
            status: output.status.code().expect("no signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    };
    running.into_iter().map(end).collect()
}

#[test]
fn of_fifty_claims_of_one_id_one_wins() {
    let folder = Folder::new();
    let claims = (0..50).map(|n| folder.tool("jobdir", ["claim", "--id", "one", "--meta", &format!("n={n}")]));
    let ran = at_once(claims);
    let winners: Vec<usize> = (0..50).filter(|&n| ran[n].status == 0).collect();
    assert_eq!(winners.len(), 1, "{ran:?}");
    for (n, ran) in ran.iter().enumerate() {
        if n == winners[0] {
            assert_eq!((ran.out.as_str(), ran.err.as_str()), ("one\n", ""));
        } else {
            assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (3, "claimed\n", 1), "{}", ran.err);
        }
    }
    let meta = json(&fs::read_to_string(folder.file("one", "meta.json")).unwrap());
    assert_eq!(meta["meta"]["n"], winners[0].to_string());
    let names: Vec<_> =
        fs::read_dir(folder.root().join("jobs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"], "a refused claim leaves nothing behind");
}

#[test]
fn eight_sweeps_at_once_say_every_result_in_whole_lines() {
    let folder = Folder::new();
    let ids: HashSet<String> = (0..30)
        .map(|n| {
            let note = format!("note={}", "é".repeat(3000));
            let id = folder.claim(&["--start-within", if n % 2 == 0 { "1ms" } else { "1h" }, "--meta", &note]);
            if n % 2 == 1 {
                let ran = folder.run("jobdir", ["finish", &id, ["done", "failed"][n % 4 / 2], "--error", "x"]);
                assert_eq!(ran.status, 0, "{}", ran.err);
            }
            id
        })
        .collect();
    let mut seen: HashMap<String, String> = HashMap::new();
    for ran in at_once((0..8).map(|_| folder.tool("sweep", [""; 0]))) {
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert!(ran.out.is_empty() || ran.out.ends_with('\n'));
        let mut mine = HashSet::new();
        for line in ran.out.lines() {
            let id = json(line)["job"].as_str().unwrap().to_owned();
            assert!(mine.insert(id.clone()), "one sweep says it once");
            let before = seen.entry(id).or_insert_with(|| line.to_owned());
            assert_eq!(before, line, "all say the same");
        }
    }
    assert_eq!(seen.into_keys().collect::<HashSet<_>>(), ids);
}

#[test]
fn four_handler_sweeps_at_once_send_nothing_twice() {
    let folder = Folder::new();
    let ids: HashSet<String> = (0..12)
        .map(|_| {
            let id = folder.claim(&[]);
            assert_eq!(folder.run("jobdir", ["finish", &id, "done"]).status, 0);
            id
        })
        .collect();
    let sent = folder.path("sent").display().to_string();
    let handler = format!("cat >>'{sent}'");
    for ran in at_once((0..4).map(|_| folder.tool("sweep", ["--", "sh", "-c", &handler]))) {
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    }
    let lines = fs::read_to_string(&sent).unwrap();
    assert_eq!(lines.lines().count(), 12);
    assert_eq!(lines.lines().map(|line| json(line)["job"].as_str().unwrap().to_owned()).collect::<HashSet<_>>(), ids);
    assert_eq!(folder.run("sweep", [""; 0]).out, "");
}

#[test]
fn of_fifty_records_of_one_job_the_first_stands() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let words = ["done", "failed", "timeout", "unknown"];
    let ran =
        at_once((0..50).map(|n| folder.tool("jobdir", ["finish", &id, words[n % 4], "--error", &format!("n {n}")])));
    let winners: Vec<usize> = (0..50).filter(|&n| ran[n].status == 0).collect();
    assert_eq!(winners.len(), 1, "{ran:?}");
    assert!(ran.iter().all(|ran| ran.status == 0 || (ran.status == 3 && ran.err.lines().count() == 1)), "{ran:?}");
    let record = folder.record(&id);
    assert_eq!(record["status"], words[winners[0] % 4]);
    assert_eq!(record["error"], format!("n {}", winners[0]));
    assert_eq!(folder.word(&id), words[winners[0] % 4]);
    let before = fs::read(folder.file(&id, "result.json")).unwrap();
    assert_eq!(folder.run("jobdir", ["finish", &id, "done"]).status, 3);
    assert_eq!(folder.run("watchdog", ["--job", &id, "true"]).status, 3);
    assert_eq!(fs::read(folder.file(&id, "result.json")).unwrap(), before);
    let left: Vec<_> = fs::read_dir(folder.file(&id, "")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".tmp-")), "{left:?}");
}

#[test]
fn a_cancel_against_a_natural_end_has_one_outcome() {
    let folder = Folder::new();
    let mut outcomes: HashMap<i32, u32> = HashMap::new();
    for round in 0..30_u64 {
        let id = folder.claim(&["--grace", "300ms"]);
        let mut dog = folder.tool("watchdog", ["--job", &id, "--", "sleep", ".02"]).spawn().unwrap();
        until("it has begun", || folder.word(&id) != "claimed");
        thread::sleep(Duration::from_millis(round));
        assert_eq!(folder.run("jobdir", ["cancel", &id]).status, 0, "round {round}");
        until("it has ended", || dog.try_wait().unwrap().is_some());
        let status = dog.wait().unwrap().code().unwrap();
        let record = folder.record(&id);
        let end = (record["status"].as_str().unwrap(), record["reason"].as_str().unwrap());
        match status {
            0 => assert_eq!((end, &record["exit_code"]), (("done", "exited"), &0.into()), "round {round}"),
            143 => assert_eq!(end, ("failed", "cancelled"), "round {round}"),
            other => panic!("round {round}: {other}, {record}"),
        }
        assert_eq!(folder.word(&id), end.0, "round {round}");
        *outcomes.entry(status).or_default() += 1;
    }
    assert_eq!(outcomes.len(), 2, "the race is one: {outcomes:?}");
}

#[test]
fn a_cancel_against_the_start_has_one_outcome() {
    let folder = Folder::new();
    for round in 0..30_u64 {
        let id = folder.claim(&["--grace", "300ms"]);
        let mut dog =
            folder.tool("watchdog", ["--job", &id, "--", "sleep", "30"]).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(round * 200));
        let ran = folder.run("jobdir", ["cancel", &id]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "round {round}");
        until("it has ended", || dog.try_wait().unwrap().is_some());
        let status = dog.wait().unwrap().code().unwrap();
        assert!([3, 143].contains(&status), "round {round}: {status}");
        let record = folder.record(&id);
        assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"cancelled".into()), "round {round}");
        assert_eq!(record["started_at"].is_null(), status == 3, "round {round}: {record}");
    }
    assert_eq!(folder.living(), [0; 0]);
}

#[test]
fn what_put_reported_as_published_stands_in_the_record() {
    let folder = Folder::new();
    let mut late = 0;
    for round in 0..20_u64 {
        let id = folder.claim(&[]);
        let mut dog = folder.tool("watchdog", ["--job", &id, "--", "sleep", ".04"]).spawn().unwrap();
        until("it has begun", || folder.word(&id) != "claimed");
        let mut last = Value::Null;
        for n in 1.. {
            fs::write(folder.path("doc"), format!("{{\"n\":{n}}}")).unwrap();
            let ran = folder.run("jobdir", ["put", &id, &folder.path("doc").display().to_string()]);
            match ran.status {
                0 => last = n.into(),
                3 => break,
                other => panic!("round {round}: {other}: {}", ran.err),
            }
        }
        until("it has ended", || dog.try_wait().unwrap().is_some());
        assert_eq!(dog.wait().unwrap().code(), Some(0));
        let output = &folder.record(&id)["output"];
        assert_eq!(if output.is_null() { output } else { &output["n"] }, &last, "round {round}");
        late += u32::from(!last.is_null());
    }
    assert!(late > 0, "some were published");
}

#[test]
fn one_id_is_one_job_through_acknowledgement_and_prune() {
    let folder = Folder::new();
    let root = folder.root();
    let start = Barrier::new(4);
    let turn = |who: usize| {
        start.wait();
        let end = Instant::now() + Duration::from_secs(4);
        let (mut won, mut lost) = (0, 0);
        while Instant::now() < end {
            let ran = run(folder
                .tool("jobdir", ["claim", "--id", "again", "--meta", &format!("who={who}")])
                .env("JOBDIR_SYNC", "0"));
            if ran.status == 3 {
                let known = ["claimed\n", "running\n", "done\n", "failed\n", "timeout\n", "unknown\n"];
                assert!(known.contains(&ran.out.as_str()), "{ran:?}");
                lost += 1;
                continue;
            }
            assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "again\n", ""), "{who}, after {won}");
            // From here on it is ours alone: nobody else finishes or acknowledges this claim.
            let dir = root.join("jobs/again");
            let meta = json(&fs::read_to_string(dir.join("meta.json")).expect("our claim is whole"));
            assert_eq!(meta["meta"]["who"], who.to_string());
            for name in ["status", "pid", "out.log"] {
                assert!(dir.join(name).exists(), "{name} is missing from a claim, {who}, after {won}");
            }
            let ran = folder.run("jobdir", ["finish", "again", "done"]);
            assert_eq!(ran.status, 0, "{}", ran.err);
            let line = format!("{{\"job\":\"again\",\"claim\":{}}}", meta["claim"]);
            fs::write(folder.path(format!("line.{who}")), line).unwrap();
            let ran = folder.sh(&format!("sweep --ack <'{}'", folder.path(format!("line.{who}")).display()));
            assert_eq!((ran.status, ran.err.as_str()), (0, ""));
            let ran = folder.run("jobdir", ["prune", "--older-than", "0"]);
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "prune");
            won += 1;
        }
        (won, lost)
    };
    let counts: Vec<(u32, u32)> = thread::scope(|scope| {
        let turn = &turn;
        let threads: Vec<_> = (0..4).map(|who| scope.spawn(move || turn(who))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(counts.iter().map(|(won, _)| won).sum::<u32>() > 4, "{counts:?}");
    assert!(counts.iter().map(|(_, lost)| lost).sum::<u32>() > 0, "{counts:?}");
}

#[test]
fn a_prune_takes_no_claim_apart_that_is_being_made() {
    // A hidden directory was probed, let go again, and only then removed: a claim may have gone on in between.
    let folder = Folder::new();
    folder.claim(&[]);
    let done = AtomicBool::new(false);
    let (done, folder) = (&done, &folder);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let ran = folder.run("jobdir", ["prune", "--older-than", "1h"]);
                assert_eq!((ran.status, ran.err.as_str()), (0, ""));
            }
        });
        let claims: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..250 {
                        let ran = run(folder.tool("jobdir", ["claim", "--path"]).env("JOBDIR_SYNC", "0"));
                        if ran.status != 0 {
                            return Err(ran.err);
                        }
                        for name in ["meta.json", "status", "pid", "out.log"] {
                            if !std::path::Path::new(ran.out.trim_end()).join(name).exists() {
                                return Err(format!("{name} is missing from {}", ran.out));
                            }
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let ends: Vec<_> = claims.into_iter().map(|claim| claim.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        for end in ends {
            assert_eq!(end, Ok(()));
        }
    });
}

#[test]
fn two_prunes_at_once_do_not_trip_over_each_other() {
    let folder = Folder::new();
    for _ in 0..5 {
        let mut lines = String::new();
        for _ in 0..6 {
            let id = folder.claim(&[]);
            assert_eq!(folder.run("jobdir", ["finish", &id, "done"]).status, 0);
            lines.push_str(&format!("{id}\n"));
        }
        fs::write(folder.path("ids"), &lines).unwrap();
        assert_eq!(folder.sh(&format!("sweep --ack <'{}'", folder.path("ids").display())).status, 0);
        let mut gone = Vec::new();
        for ran in at_once((0..3).map(|_| folder.tool("jobdir", ["prune", "--older-than", "0"]))) {
            assert_eq!((ran.status, ran.err.as_str()), (0, ""));
            gone.extend(ran.out.lines().map(str::to_owned));
        }
        gone.sort();
        let mut ids: Vec<_> = lines.lines().collect();
        ids.sort_unstable();
        assert_eq!(gone, ids, "each is named once");
    }
}

#[test]
fn a_prune_of_undelivered_results_never_takes_the_next_claim_of_the_id() {
    // It renames by name what it has looked at by descriptor; by then the name may be a new claim's.
    let folder = Folder::new();
    folder.claim(&["--id", "again"]);
    let end = Instant::now() + Duration::from_secs(4);
    let (folder, won) = (&folder, &AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                while Instant::now() < end {
                    // What it says of a directory that another one is removing is the business of another test.
                    folder.run("jobdir", ["prune", "--older-than", "0", "--undelivered"]);
                }
            });
        }
        folder.run("jobdir", ["finish", "again", "done"]);
        let claimers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    while Instant::now() < end {
                        let ran = run(folder.tool("jobdir", ["claim", "--id", "again"]).env("JOBDIR_SYNC", "0"));
                        if ran.status == 0 {
                            let ran = folder.run("jobdir", ["finish", "again", "done"]);
                            assert_eq!(ran.status, 0, "our claim is gone: {}", ran.err);
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for claimer in claimers {
            claimer.join().unwrap();
        }
    });
    assert!(won.load(Ordering::Relaxed) > 2);
}
