//! What the fuzzer starts from and what it has found, read again by every parser of what others wrote.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/checks.rs"]
mod checks;

/// The folder of the fuzzer.
fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_text_of_the_corpus_is_read_for_what_it_is() {
    let mut wrong = Vec::new();
    for (name, check) in checks::ALL {
        let mut files: Vec<PathBuf> =
            fs::read_dir(fuzz().join("corpus").join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            let text = fs::read(&file).unwrap();
            if catch_unwind(|| check(&text)).is_err() {
                wrong.push(format!("{name}/{}", file.file_name().unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join(", "));
}

#[test]
fn no_check_is_without_its_target_and_its_corpus() {
    let checks: BTreeSet<String> = checks::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), checks);
    assert_eq!(names(&fuzz().join("corpus")), checks);
}
