//! The README's commands are run as they stand: a reader types them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tests::Folder;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

/// The fenced blocks with the word after their fence.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut parts = text.split("\n```");
    let mut blocks = Vec::new();
    parts.next();
    while let (Some(block), Some(_)) = (parts.next(), parts.next()) {
        let (kind, body) = block.split_once('\n').unwrap();
        blocks.push((kind.to_owned(), body.to_owned()));
    }
    blocks
}

fn script(folder: &Folder, name: &str, text: &str) {
    let path = folder.path(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_composition_works_as_it_is_printed() {
    let blocks = blocks(&readme());
    let (_, composition) = blocks.iter().find(|(kind, _)| kind == "sh").expect("a block of sh");
    let folder = Folder::new();
    // What a reader has: a repository, a slow command, and somebody to notify. jq may be missing.
    script(&folder, "git", "echo 0123abc");
    script(&folder, "some-slow-cli", "echo working on \"$@\"; echo '{\"answer\": 42.0}' | jobdir put");
    script(&folder, "notify", "tee -a told");
    script(&folder, "jq", "cat >record");
    let here = folder.path("").display().to_string();
    let ran = folder.sh(&format!("cd '{here}' && PATH=$PWD:$PATH && set -e\n{composition}\nsweep"));
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{composition}");
    let record: Value = serde_json::from_str(&fs::read_to_string(folder.path("record")).unwrap()).unwrap();
    assert_eq!((&record["status"], &record["name"]), (&"done".into(), &"review".into()));
    assert_eq!(record["meta"]["base"], "0123abc");
    assert!(record.to_string().contains("{\"answer\":42.0}"));
    let told = fs::read_to_string(folder.path("told")).unwrap();
    assert_eq!(told.lines().count(), 1, "delivered once");
    let log = fs::read_to_string(folder.file(record["job"].as_str().unwrap(), "out.log")).unwrap();
    assert_eq!(log, "working on --json\n");
}

#[test]
fn the_two_commands_are_a_script_and_the_tests() {
    let blocks = blocks(&readme());
    let (kind, commands) = &blocks[0];
    assert_eq!((kind.as_str(), commands.trim_end()), ("", "examples/quickstart\ncargo test --workspace"));
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart");
    assert!(fs::metadata(quickstart).unwrap().permissions().mode() & 0o111 != 0, "it can be run");
}

#[test]
fn the_handler_form_that_it_names_delivers_too() {
    assert!(readme().contains("`sweep -- ./notify`"));
    let folder = Folder::new();
    let id = folder.claim(&[]);
    folder.start(&id, &["true"]);
    folder.ended(&id);
    script(&folder, "notify", "cat >told");
    let ran = folder.sh(&format!("cd '{}' && sweep -- ./notify && sweep", folder.path("").display()));
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert!(fs::read_to_string(folder.path("told")).unwrap().contains(&id));
}

#[test]
fn the_environment_that_ci_systems_look_at_can_be_changed() {
    let text = readme();
    let at = text.find("env -u RUNNER_TRACKING_ID").expect("the remedy");
    let line = text[at..].split('`').next().unwrap().replace('…', "sh -c 'env >seen; mv seen environment'");
    let folder = Folder::new();
    let ran = folder.sh(&format!(
        "cd '{}' && RUNNER_TRACKING_ID=x && export RUNNER_TRACKING_ID && {line}",
        folder.path("").display()
    ));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    tests::until("it has run", || folder.path("environment").exists());
    let seen = fs::read_to_string(folder.path("environment")).unwrap();
    assert!(!seen.contains("RUNNER_TRACKING_ID"));
    assert!(seen.contains("BUILD_ID=dontKillMe") && seen.contains("JENKINS_NODE_COOKIE=dontKillMe"));
}
