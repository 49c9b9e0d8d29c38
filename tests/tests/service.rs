//! `examples/service`: each file is read by what reads it for real, or by a parser, and each command in it delivers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::{Folder, Kid, Ran, bin_dir, is_alive, json, kill, run, skip, text, until};

const UNITS: [&str; 3] = ["sweep.service", "sweep.timer", "sweep-follow.service"];

fn service(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/service").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(service(name)).unwrap()
}

fn has(folder: &Folder, check: &str) -> bool {
    let here = folder.sh(&format!("{{ {check}; }} >/dev/null 2>&1")).status == 0;
    if !here {
        skip(&format!("no {check} here"));
    }
    here
}

/// A folder with a mail system that keeps what it takes, and a job that has ended.
fn mailed() -> Folder {
    let folder = Folder::new();
    let line = r#"mkdir bin box; printf '#!/bin/sh\ncat >"%s/box/$$"\n' "$PWD" >bin/sendmail; chmod +x bin/sendmail"#;
    assert_eq!(run(folder.command("sh").args(["-c", line]).current_dir(folder.path(""))).status, 0);
    end_one(&folder, "first");
    folder
}

fn end_one(folder: &Folder, id: &str) {
    folder.claim(&["--id", id]);
    assert_eq!(folder.run("watchdog", ["--job", id, "true"]).status, 0);
}

/// The mails, and whom they are for.
fn mails(folder: &Folder) -> Vec<String> {
    let mails = fs::read_dir(folder.path("box")).unwrap().map(|mail| mail.unwrap().path());
    mails
        .map(|mail| fs::read_to_string(mail).unwrap_or_default().lines().next().unwrap_or_default().to_owned())
        .collect()
}

fn user(folder: &Folder) -> String {
    folder.sh("id -un").out.trim_end().to_owned()
}

/// A program as a service manager starts it: an environment of nothing but what it is told, and `path` (where our
/// tools and scripts happen to be first).
fn started<'a>(folder: &Folder, words: impl IntoIterator<Item = &'a str>, path: &str) -> Command {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").canonicalize().unwrap();
    let path = format!("{}:{}:{}:{path}", folder.path("bin").display(), examples.display(), bin_dir().display());
    let mut words = words.into_iter();
    let mut command = folder.command(words.next().unwrap());
    let kept: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command.env_clear().args(words).current_dir("/");
    for (name, value) in kept {
        // The mark, by which this test knows its processes, and the root.
        if let (Some(value), true) = (value, name != "PATH") {
            command.env(name, value);
        }
    }
    command.env("PATH", path).env("HOME", folder.path("")).env("LOGNAME", user(folder));
    command
}

fn is_delivered(folder: &Folder, id: &str) -> bool {
    folder.root().join("delivered").join(id).is_dir()
}

/// The value of a key in a unit, its specifiers expanded.
fn setting(folder: &Folder, unit: &str, key: &str) -> String {
    let text = read(unit);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect("a setting");
    value.replace("%u", &user(folder)).replace("%h", folder.path("").to_str().unwrap())
}

fn unit(folder: &Folder, name: &str) -> Command {
    let (path, exec) = (setting(folder, name, "Environment=PATH"), setting(folder, name, "ExecStart"));
    started(folder, exec.split(' '), &path)
}

fn verify(folder: &Folder) -> Ran {
    let units = UNITS.map(|unit| folder.path(unit));
    let mut command = folder.command("systemd-analyze");
    command.args(["verify", "--user", "--man=no"]).args(units).env("XDG_RUNTIME_DIR", folder.path(""));
    run(&mut command)
}

#[test]
fn systemd_reads_the_units() {
    let folder = Folder::new();
    if !has(&folder, "systemd-analyze --version") {
        return;
    }
    for unit in UNITS {
        fs::copy(service(unit), folder.path(unit)).unwrap();
    }
    assert_eq!(verify(&folder), Ran { status: 0, out: String::new(), err: String::new() });
    // It complains in words alone, where it complains.
    fs::write(folder.path("sweep.timer"), read("sweep.timer").replace("OnStartupSec", "OnStartup")).unwrap();
    assert!(verify(&folder).err.contains("OnStartup"));
}

#[test]
fn the_service_of_the_timer_delivers() {
    let folder = mailed();
    let ran = run(&mut unit(&folder, "sweep.service"));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(mails(&folder), [format!("To: {}", user(&folder))]);
    assert!(is_delivered(&folder, "first"));
    assert!(read("sweep.timer").contains("sweep.service"));
}

#[test]
fn the_service_that_stays_delivers_each_as_it_ends() {
    let folder = mailed();
    let mut kid = Kid::quiet(&mut unit(&folder, "sweep-follow.service"));
    until("the first is delivered", || is_delivered(&folder, "first"));
    end_one(&folder, "second");
    until("the second is delivered", || is_delivered(&folder, "second"));
    // Killed at any time, and started again.
    kill(kid.pid(), libc::SIGKILL);
    kid.end();
    end_one(&folder, "third");
    let _again = Kid::quiet(&mut unit(&folder, "sweep-follow.service"));
    until("the third is delivered", || is_delivered(&folder, "third"));
    assert_eq!(mails(&folder).len(), 3);
}

#[test]
fn the_line_of_the_crontab_delivers() {
    let folder = mailed();
    let text = read("crontab");
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let path = lines.next().unwrap().strip_prefix("PATH=").expect("cron's own is too short");
    let line = lines.next().unwrap();
    assert_eq!(lines.next(), None);
    let (when, command) = line.split_at(line.match_indices(' ').nth(4).unwrap().0);
    assert_eq!((when, command.contains('%')), ("* * * * *", false), "a % ends the command");
    let ran = run(&mut started(&folder, ["sh", "-c", command], path));
    assert_eq!(ran, Ran { status: 0, out: String::new(), err: String::new() }, "cron mails whatever it says");
    assert!(is_delivered(&folder, "first"));
    // What is refused is said, and stays.
    end_one(&folder, "second");
    fs::remove_dir_all(folder.path("box")).unwrap();
    let ran = run(&mut started(&folder, ["sh", "-c", command], path));
    assert!(ran.status == 1 && ran.err.starts_with("notify-mail: cannot mail job second: "), "{ran:?}");
    assert!(!is_delivered(&folder, "second"));
}

#[test]
fn the_agent_of_launchd_delivers() {
    let folder = mailed();
    if !has(&folder, "python3 -c 'import plistlib'") {
        return;
    }
    let parse = "import json, plistlib, sys; print(json.dumps(plistlib.load(open(sys.argv[1], 'rb'))))";
    let ran = run(folder.command("python3").args(["-c", parse]).arg(service("outlive.sweep.plist")));
    assert_eq!(ran.err, "");
    let agent = json(&ran.out);
    assert_eq!((&agent["Label"], &agent["StartInterval"]), (&"outlive.sweep".into(), &60.into()));
    let words = agent["ProgramArguments"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    fs::create_dir_all(folder.path("Library/Logs")).unwrap();
    let ran = run(&mut started(&folder, words, agent["EnvironmentVariables"]["PATH"].as_str().unwrap()));
    assert_eq!((ran.status, text(&folder, "Library/Logs/outlive.sweep.err").as_str()), (0, ""));
    assert!(is_delivered(&folder, "first"));
}

/// A step of the workflow, as the runner runs it: bash, -e, and its own mark in the environment.
fn step(folder: &Folder, step: &Value, job: &str) -> Ran {
    fs::write(folder.path("script"), step["run"].as_str().unwrap()).unwrap();
    let words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "script"];
    let mut command = started(folder, words, "/usr/local/bin:/usr/bin:/bin");
    command.current_dir(folder.path("")).env("RUNNER_TRACKING_ID", "github_1").env("GITHUB_SHA", "abc");
    command.env("GITHUB_OUTPUT", folder.path("output"));
    for (name, value) in step["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap().replace("${{ steps.start.outputs.job }}", job));
    }
    run(&mut command)
}

/// What the runner does at the end of a job.
fn clean_up(folder: &Folder) {
    for pid in folder.living() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|one| one == b"RUNNER_TRACKING_ID=github_1") {
            kill(pid, libc::SIGKILL);
        }
    }
}

#[test]
fn the_steps_of_github_actions_outlive_the_runner_and_deliver() {
    let folder = Folder::new();
    if !has(&folder, "python3 -c 'import yaml'") {
        return;
    }
    let parse =
        "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1])), default=str, skipkeys=True))";
    let ran = run(folder.command("python3").args(["-c", parse]).arg(service("github-actions.yml")));
    assert_eq!(ran.err, "");
    let steps = json(&ran.out)["jobs"]["review"]["steps"].clone();
    let line = "printf '#!/bin/sh\\nuntil [ -e go ]; do sleep .02; done; echo {} | jobdir put\\n' >slow-review
        printf '#!/bin/sh\\n' >build; chmod +x slow-review build";
    assert_eq!(run(folder.command("sh").args(["-c", line]).current_dir(folder.path(""))).status, 0);
    let well = |ran: Ran| assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    well(step(&folder, &steps[0], ""));
    well(step(&folder, &steps[1], ""));
    let id = text(&folder, "output").trim_end().strip_prefix("job=").expect("the id").to_owned();
    well(step(&folder, &steps[2], ""));
    clean_up(&folder);
    let owner = folder.owner(&id);
    assert!(is_alive(owner) && folder.word(&id) == "running", "it outlives the runner's clean-up");
    // A step that cannot wait for so long says so, and the job of the workflow goes on.
    let mut short = steps[3].clone();
    short["run"] = short["run"].as_str().unwrap().replace("--slice 5m", "--slice 0").into();
    let ran = step(&folder, &short, &id);
    assert_eq!((ran.status, ran.out.as_str()), (0, "::notice::the review goes on; a later run delivers it\n"));
    fs::write(folder.path("go"), "").unwrap();
    let ran = step(&folder, &steps[3], &id);
    assert_eq!((ran.status, json(&ran.out)["meta"]["sha"].as_str()), (0, Some("abc")));
    // The next run delivers.
    well(step(&folder, &steps[0], ""));
    assert!(is_delivered(&folder, &id));
    assert_eq!(json(&text(&folder, "results.jsonl"))["job"], id);
}
