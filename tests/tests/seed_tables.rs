//! The tables in `tests/seeds`: every test that they name is there.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_requirement_of_a_seed_names_a_test_that_exists() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let mut rows = 0;
    for table in files(top.join("tests/seeds")) {
        let lines = table.lines().filter(|line| line.starts_with("| "));
        for row in lines.filter(|line| !line.starts_with("| ---") && !line.starts_with("| the seed says")) {
            let cell = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
            let mut file = String::new();
            let mut tests = 0;
            for word in cell.split('`').skip(1).step_by(2) {
                if Path::new(word).extension().is_some() {
                    file = fs::read_to_string(top.join(word)).unwrap_or_else(|e| panic!("{word}: {e}"));
                } else {
                    assert!(file.contains(&format!("#[test]\nfn {word}()")), "{row}: there is no such test: {word}");
                    tests += 1;
                }
            }
            assert!(tests > 0, "{row}: no test");
            rows += 1;
        }
    }
    assert!(rows > 50, "{rows}");
}
