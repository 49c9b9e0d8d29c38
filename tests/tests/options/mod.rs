//! The options and verbs that each tool's parser knows: the one truth that help, pages and completions are held against.
//!
//! The names are read from the parsers' own source, since a binary does not tell which options it keeps to itself;
//! whether an option takes a value is asked of the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, missing_docs, dead_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::{Folder, Ran, run};

pub const TOOLS: [&str; 5] = ["detach", "jobdir", "watchdog", "reap", "sweep"];

/// An option that no tool has.
pub const NONE_SUCH: &str = "--no-such-option";

/// One option. Ordered, so that a difference is easy to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opt {
    pub long: String,
    pub short: Option<char>,
    pub value: bool,
}

/// The options of a tool, or of one verb of `jobdir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub tool: &'static str,
    pub verb: Option<String>,
    pub options: BTreeSet<Opt>,
}

impl Call {
    /// The command line up to its options.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(self.tool.to_owned()).chain(self.verb.clone()).collect()
    }

    pub fn longs(&self) -> BTreeSet<String> {
        self.options.iter().map(|option| format!("--{}", option.long)).collect()
    }
}

/// The project's folder.
pub fn house() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub fn text(path: &str) -> String {
    fs::read_to_string(house().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All calls: one for each tool, and for `jobdir` one for each verb.
pub fn calls() -> Vec<Call> {
    let folder = Folder::new();
    let mut calls = Vec::new();
    for tool in TOOLS {
        let source = source(tool);
        let shorts = shorts(&source);
        let common = longs(&source);
        let verbs = verbs(&source);
        let sets = match verbs.is_empty() {
            true => vec![(None, common)],
            false => verbs
                .into_iter()
                .map(|(verb, own)| (Some(verb), own.into_iter().chain(common.iter().cloned()).collect()))
                .collect(),
        };
        for (verb, names) in sets {
            let option = |long: &String| {
                let call: Vec<&str> = verb.iter().map(String::as_str).collect();
                let short = shorts.iter().find(|(_, name)| name == long).map(|(short, _)| *short);
                Opt { long: long.clone(), short, value: takes_value(&folder, tool, &call, &format!("--{long}")) }
            };
            let options = names.iter().map(option).collect();
            calls.push(Call { tool, verb, options });
        }
    }
    assert!(calls.len() > TOOLS.len(), "the verbs were not found");
    calls
}

/// Tries an option, with a second one behind it that nobody knows: only where the first one takes no value is the second
/// one reached. What is done in the other case stays in the folder.
pub fn tried(folder: &Folder, tool: &str, verb: &[&str], option: &str) -> Ran {
    let mut call = folder.tool(tool, verb.iter().copied().chain([option, NONE_SUCH]));
    run(call.current_dir(folder.path("")))
}

fn takes_value(folder: &Folder, tool: &str, verb: &[&str], option: &str) -> bool {
    let reached = tried(folder, tool, verb, option).err.contains(&format!("invalid option '{NONE_SUCH}'"));
    !reached && !["--help", "--version"].contains(&option)
}

/// The parser's source without its tests.
fn source(tool: &str) -> String {
    let source = text(&format!("{tool}/src/args.rs"));
    source.split("#[cfg(test)]").next().unwrap().to_owned()
}

/// What stands between `before` and `after`, each time.
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap()).collect()
}

/// The names in the patterns `Long("name")`.
fn longs(source: &str) -> BTreeSet<String> {
    between(source, "Long(\"", "\"").into_iter().map(str::to_owned).collect()
}

/// The letters in `Short('x') | Long("name")`, or in `Short('x') => "name"`.
fn shorts(source: &str) -> Vec<(char, String)> {
    let arms = source.split("Short('").skip(1).map(|arm| (arm.chars().next().unwrap(), &arm[1..]));
    arms.map(|(short, arm)| {
        let name = arm.strip_prefix("') | Long(\"").or_else(|| arm.strip_prefix("') => \""));
        let name = name.unwrap_or_else(|| panic!("Short('{short}') in a form that this test does not know"));
        (short, name.split('"').next().unwrap().to_owned())
    })
    .collect()
}

/// The table of verbs with their options, where there is one.
fn verbs(source: &str) -> Vec<(String, BTreeSet<String>)> {
    let Some(table) = source.split("const OPTIONS").nth(1) else { return Vec::new() };
    let table = table.split("];\n").next().unwrap();
    let strings = |text: &str| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    // ("verb", &["option", …]),
    let rows = table.split("&[").collect::<Vec<_>>();
    let rows = rows.windows(2).filter(|pair| pair[0].contains('"'));
    rows.map(|pair| {
        let verb = strings(pair[0]).pop().expect("a verb");
        (verb, strings(pair[1].split(']').next().unwrap()).into_iter().collect())
    })
    .collect()
}
