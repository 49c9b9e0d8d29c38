//! The manual pages say what the tools do: the options of the parsers, of `--help` and of the pages are the same, the
//! names in jobdir(5) are those of the code, and every example runs as it is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod options;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use options::{Call, NONE_SUCH, Opt, TOOLS, between, calls, house, text, tried};
use tests::{Folder, Ran, run, until_within};

/// The pages, by their path from the project's folder.
fn pages() -> Vec<String> {
    let pages = TOOLS.map(|tool| format!("{tool}/{tool}.1"));
    pages.into_iter().chain(["jobdir/jobdir.5".to_owned()]).collect()
}

/// The lines of a section.
fn section<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != format!(".Sh {title}")).skip(1);
    lines.take_while(|line| !line.starts_with(".Sh ")).collect()
}

fn help(tool: &str) -> String {
    let ran = Folder::new().run(tool, ["--help"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{tool} --help");
    ran.out
}

// Options: parser, help, page.

#[test]
fn every_option_of_the_parsers_is_known_to_the_binaries() {
    let folder = Folder::new();
    for call in calls() {
        let words = call.words();
        let verb: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        for Opt { long, short, value } in &call.options {
            for spelled in short.map(|short| format!("-{short}")).into_iter().chain([format!("--{long}")]) {
                let ran = tried(&folder, call.tool, &verb, &spelled);
                for refused in [format!("option '{spelled}'"), format!("option '--{long}'")] {
                    assert!(!ran.err.contains(&refused), "{words:?} {spelled}: {}", ran.err);
                }
                let reached = ran.err.contains(&format!("invalid option '{NONE_SUCH}'"));
                let stays = ["help", "version"].contains(&long.as_str());
                assert_eq!(reached, !value && !stays, "{words:?} {spelled}: {}", ran.err);
            }
        }
        let ran = tried(&folder, call.tool, &verb, NONE_SUCH);
        assert!(ran.err.contains(&format!("invalid option '{NONE_SUCH}'")), "{words:?}: {}", ran.err);
    }
}

#[test]
fn the_help_lists_the_options_of_the_parser() {
    for call in calls() {
        let help = help(call.tool);
        let mut listed: BTreeSet<Opt> = help.lines().filter_map(in_help).collect();
        listed.extend(call.verb.iter().flat_map(|verb| of_verb(&help, verb)));
        assert_eq!(listed, call.options, "{:?} --help", call.words());
    }
}

/// `  -C, --chdir DIR  …`: a value stands one blank behind its option.
fn in_help(line: &str) -> Option<Opt> {
    let line = line.strip_prefix("  ")?;
    let (short, rest) = match line.strip_prefix('-').and_then(|rest| rest.split_once(", --")) {
        Some((short, rest)) if short.len() == 1 => (short.chars().next(), rest),
        _ => (None, line.strip_prefix("    --")?),
    };
    let (long, rest) = rest.split_once(' ')?;
    Some(Opt { long: long.to_owned(), short, value: rest.starts_with(|c: char| c.is_ascii_uppercase()) })
}

/// `  verb [-x|--long VALUE] [--flag]`, and the lines that go on with it.
fn of_verb(help: &str, verb: &str) -> Vec<Opt> {
    let starts = |line: &&str| line.strip_prefix("  ").is_some_and(|line| line.split(' ').next() == Some(verb));
    let first = help.lines().find(starts).unwrap_or_else(|| panic!("no {verb} in --help"));
    let more = help.lines().skip_while(|line| *line != first).skip(1).take_while(|line| line.starts_with("        "));
    let words: Vec<&str> = std::iter::once(first).chain(more).flat_map(str::split_whitespace).collect();
    let mut options = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_start_matches('[');
        let Some(dashes) = word.find("--").filter(|_| word.starts_with('-')) else { continue };
        let short = word.strip_prefix('-').filter(|_| dashes > 0).and_then(|word| word.chars().next());
        let closed = word.contains(']');
        let long = word[dashes + 2..].trim_end_matches(|c: char| !c.is_ascii_lowercase()).to_owned();
        let next = words.get(at + 1).is_some_and(|next| next.starts_with(|c: char| c.is_ascii_uppercase()));
        options.push(Opt { long, short, value: !closed && next });
    }
    options
}

#[test]
fn the_page_lists_the_options_of_the_parser() {
    for call in calls() {
        let page = text(&format!("{0}/{0}.1", call.tool));
        let mut listed: BTreeSet<Opt> = section(&page, "OPTIONS").into_iter().filter_map(in_page).collect();
        if let Some(verb) = &call.verb {
            let verbs = section(&page, "VERBS");
            let own = verbs.iter().skip_while(|line| **line != format!(".Ss {verb}"));
            assert!(own.clone().next().is_some(), "no {verb} in the page");
            listed.extend(own.skip(1).take_while(|line| !line.starts_with(".Ss ")).filter_map(|line| in_page(line)));
        }
        assert_eq!(listed, call.options, "{:?} in the page", call.words());
    }
}

/// `.It Fl C , -chdir Ar dir`
fn in_page(line: &str) -> Option<Opt> {
    let words: Vec<&str> = line.strip_prefix(".It Fl ")?.split(' ').collect();
    let names = words.iter().take_while(|word| **word != "Ar");
    let short = names.clone().find(|word| word.len() == 1 && **word != ",").and_then(|word| word.chars().next());
    let long = names.clone().find_map(|word| word.strip_prefix('-')).expect("a long name");
    Some(Opt { long: long.to_owned(), short, value: words.contains(&"Ar") })
}

#[test]
fn the_synopsis_shows_each_option_by_its_short_name_or_else_its_long_one() {
    for call in calls() {
        let page = text(&format!("{0}/{0}.1", call.tool));
        let synopsis = section(&page, "SYNOPSIS").join("\n");
        let forms = synopsis.split(".Nm\n").filter(|form| !form.contains(".Fl h | V"));
        let forms =
            forms.filter(|form| call.verb.as_ref().is_none_or(|verb| form.starts_with(&format!(".Cm {verb}\n"))));
        let shown: BTreeSet<String> = forms
            .flat_map(|form| form.split("Fl ").skip(1))
            .map(|rest| rest.split_whitespace().next().unwrap().to_owned())
            .filter(|name| name != "-")
            .collect();
        let known = call.options.iter().filter(|option| !["help", "version"].contains(&option.long.as_str()));
        let known =
            known.map(|option| option.short.map_or_else(|| format!("-{}", option.long), String::from)).collect();
        assert_eq!(shown, known, "{:?} in the synopsis", call.words());
    }
}

#[test]
fn no_text_names_an_option_that_no_tool_has() {
    let known: BTreeSet<String> = calls().iter().flat_map(Call::longs).collect();
    // Of systemd-run(1) and flock(1), in examples.
    let others = ["--user", "--scope", "--collect", "--shared", "--nonblock"];
    let mut texts: Vec<(String, String)> = TOOLS.iter().map(|tool| (format!("{tool} --help"), help(tool))).collect();
    texts.extend(pages().into_iter().map(|path| (path.clone(), text(&path).replace("Fl -", "--"))));
    for (whose, text) in texts {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '-').filter(|word| word.starts_with("--"));
        for word in words.filter(|word| word.len() > 2 && !others.contains(word)) {
            assert!(known.contains(word), "{whose}: {word}");
        }
    }
}

#[test]
fn the_statuses_of_the_help_are_in_the_page() {
    for tool in TOOLS {
        let numbers = |text: &str| -> BTreeSet<u8> {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
        };
        let help = help(tool);
        let told = help.split("Exit status:").nth(1).unwrap().split("\n\n").next().unwrap();
        let page = text(&format!("{tool}/{tool}.1"));
        let items =
            section(&page, "EXIT STATUS").into_iter().filter(|line| line.starts_with(".It ")).collect::<String>();
        let missing: Vec<u8> = numbers(told).difference(&numbers(&items)).copied().collect();
        assert!(!numbers(told).is_empty() && missing.is_empty(), "{tool}: {missing:?} of --help are not in the page");
    }
}

// Names: the code and the pages.

/// All source of the tools, without tests.
fn sources() -> String {
    let mut all = String::new();
    for tool in TOOLS {
        for file in fs::read_dir(house().join(tool).join("src")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "rs") {
                let source = fs::read_to_string(path).unwrap();
                all.push_str(source.split("#[cfg(test)]").next().unwrap());
            }
        }
    }
    all
}

/// The words behind the macro `name` at the start of a line's words: `.It Va a , b`.
fn marked(lines: &[&str], name: &str) -> BTreeSet<String> {
    let marked = lines.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    marked.flat_map(|words| words.split(' ')).filter(|word| *word != ",").map(str::to_owned).collect()
}

#[test]
fn the_variables_of_the_code_are_those_of_the_pages() {
    let source = sources();
    let strings = source.split('"').filter(|text| !text.is_empty());
    let ours = |text: &&str| {
        ["JOB_", "JOBDIR_", "READY_", "XDG_"].iter().any(|start| text.starts_with(start))
            && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let known: BTreeSet<String> = strings.filter(ours).map(str::to_owned).collect();
    let mut told = BTreeSet::new();
    for path in pages() {
        told.extend(marked(&section(&text(&path), "ENVIRONMENT"), ".It Ev"));
    }
    for common in ["PATH", "HOME", "NO_COLOR", "TERM"] {
        assert!(told.remove(common), "{common}");
    }
    assert_eq!(told, known);
}

#[test]
fn the_files_of_the_code_are_those_of_jobdir_5() {
    let page = text("jobdir/jobdir.5");
    let told = marked(&section(&page, "FILES"), ".It Pa");
    let source = text("jobdir/src/files.rs");
    let known = between(&source, ": &str = \"", "\"").into_iter().filter(|name| !["jobs", "delivered"].contains(name));
    let known = known.map(|name| if name.starts_with('.') { format!("{name}*") } else { name.to_owned() }).collect();
    assert_eq!(told, known);
}

/// The lines of a subsection.
fn subsection<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != format!(".Ss {title}")).skip(1);
    lines.take_while(|line| !line.starts_with(".S")).collect()
}

#[test]
fn the_states_and_reasons_and_members_of_the_record_are_those_of_jobdir_5() {
    let page = text("jobdir/jobdir.5");
    let strings = |path: &str| -> BTreeSet<String> {
        between(&text(path), " => \"", "\"").into_iter().map(str::to_owned).collect()
    };
    assert_eq!(marked(&subsection(&page, "States"), ".It Ql"), strings("jobdir/src/word.rs"));
    let record = subsection(&page, "The record");
    assert_eq!(marked(&record, ".It Ql"), strings("jobdir/src/record.rs"));
    let folder = Folder::new();
    let id = folder.claim(&[]);
    folder.start(&id, &["true"]);
    folder.ended(&id);
    let members =
        |value: &serde_json::Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(marked(&record, ".It Va"), members(&folder.record(&id)));
    let meta: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.file(&id, "meta.json")).unwrap()).unwrap();
    assert_eq!(marked(&subsection(&page, "Windows"), ".It Va"), members(&meta["limits"]));
}

// Form and examples.

#[test]
fn the_pages_have_their_sections_in_order() {
    for path in pages() {
        let page = text(&path);
        let titles: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".Sh ")).collect();
        let mut all = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "OPTIONS", "ENVIRONMENT", "FILES", "PROTOCOL"];
        all.extend(["EXIT STATUS", "EXAMPLES", "ASSUMPTIONS", "SEE ALSO", "CAVEATS"]);
        let without = match path.as_str() {
            "jobdir/jobdir.1" => vec!["PROTOCOL"],
            "jobdir/jobdir.5" => vec!["SYNOPSIS", "VERBS", "OPTIONS", "ENVIRONMENT", "EXIT STATUS"],
            _ => vec!["VERBS", "PROTOCOL"],
        };
        all.retain(|title| !without.contains(title));
        assert_eq!(titles, all, "{path}");
    }
}

#[test]
fn mandoc_has_nothing_to_say_about_the_pages() {
    if Command::new("mandoc").arg("/dev/null").output().is_err() {
        // Past the capture of the harness: who reads the log shall know.
        std::io::stderr().write_all(b"skipped: the pages are not linted, since mandoc is not installed\n").unwrap();
        return;
    }
    for path in pages() {
        let ran = run(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(house().join(&path)));
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{path}");
    }
}

/// The examples of a page: what stands between `.Bd -literal` and `.Ed`, as a reader sees it.
fn examples(path: &str) -> Vec<String> {
    let page = text(path);
    let lines = section(&page, "EXAMPLES");
    assert!(!lines.iter().any(|line| line.starts_with(".Dl")), "{path}: a line of .Dl is not run; use .Bd -literal");
    let mut examples = Vec::new();
    let mut open: Option<String> = None;
    for line in lines {
        match &mut open {
            None if line.starts_with(".Bd -literal") => open = Some(String::new()),
            None => {}
            Some(_) if line == ".Ed" => examples.extend(open.take()),
            Some(example) => {
                assert!(!line.starts_with(['.', '\'']), "{path}: nobody would see the line {line}");
                let seen = line.replace("\\e", "\u{1}");
                assert!(!seen.contains('\\'), "{path}: a backslash that is not \\e: {line}");
                example.push_str(&seen.replace('\u{1}', "\\"));
                example.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{path}: an example has no end");
    examples
}

/// What a reader of the pages has, and the test has not: something to build, something slow, somebody to notify, and a user
/// manager.
const STUBS: [(&str, &str); 4] = [
    ("make", "echo \"made $*\""),
    ("some-slow-cli", "echo working; echo '{\"answer\": 42}' | jobdir put"),
    ("notify", "tee -a told"),
    ("systemd-run", "while case $1 in -*) true ;; *) false ;; esac; do shift; done; exec \"$@\""),
];

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs an example in a fresh folder, with a root of its own that holds one job which has ended; within a minute.
fn ran(example: &str) -> (Folder, Ran) {
    let folder = Folder::new();
    folder.run("jobdir", ["cancel", &folder.claim(&["--name", "earlier"])]);
    let here = folder.path("here");
    fs::create_dir(&here).unwrap();
    for (name, text) in STUBS {
        script(&here.join(name), text);
    }
    let mut shell = folder.command("sh");
    let path = shell.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let dirs = std::iter::once(here.clone()).chain(std::env::split_paths(&path));
    // Files, not pipes: what an example leaves running must not hold the test up.
    let said = |name: &str| File::create(folder.path(name)).unwrap();
    shell.args(["-ec", example]).current_dir(&here).env("PATH", std::env::join_paths(dirs).unwrap());
    let mut shell = shell.stdout(said("out")).stderr(said("err")).process_group(0).spawn().unwrap();
    let mut ended = None;
    until_within(Duration::from_secs(60), &format!("the end of\n{example}"), || {
        ended = shell.try_wait().unwrap();
        ended.is_some()
    });
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap();
    // A shell may mention that a child of its was ended, which is what some examples are about.
    let err = read("err").lines().filter(|line| !line.contains("Terminated")).map(|line| format!("{line}\n")).collect();
    let ran = Ran { status: ended.unwrap().code().unwrap_or(-1), out: read("out"), err };
    (folder, ran)
}

#[test]
fn every_example_runs_as_it_is_printed() {
    for path in pages() {
        let examples = examples(&path);
        assert!(!examples.is_empty(), "{path} has no examples");
        for example in examples {
            let (_folder, ran) = ran(&example);
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{path}\n{example}");
        }
    }
}

#[test]
fn an_example_that_fails_is_seen() {
    assert_eq!(ran("false\ntrue").1.status, 1);
    assert_ne!(ran("jobdir status nobody || true").1.err, "");
}

#[test]
fn the_examples_of_a_sweep_deliver() {
    let examples = examples("sweep/sweep.1");
    for form in ["sweep -- ./notify", "sweep | ./notify | sweep --ack"] {
        let example = examples.iter().find(|example| example.trim_end() == form).expect(form);
        let (folder, ran) = ran(example);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{example}");
        let told = fs::read_to_string(folder.path("here/told")).unwrap();
        assert!(told.contains("\"name\":\"earlier\",\"status\":\"failed\",\"reason\":\"cancelled\""), "{told}");
        assert_eq!(folder.run("sweep", [] as [&str; 0]).out, "", "{example}");
    }
}
