//! Completions, asked of the real shells: they offer the options of the parsers, and jobs by the state that makes sense.
//!
//! A shell that is not installed is skipped, with one line.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod options;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use options::{Call, calls, house};
use tests::{Folder, until_within};

/// Asks bash: sources the completions and calls their function as bash does, with `=` as a word of its own.
const BASH: &str = r#"
source "$COMPLETIONS/outlive.bash"
while IFS= read -r line; do
    read -ra COMP_WORDS <<<"${line//=/ = }"
    [[ $line == *[\ =] ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _outlive "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    for word in "${COMPREPLY[@]}"; do printf '%s\n' "$word"; done
    echo =
done <"$LINES_FILE" >"$OFFERS"
"#;

/// Asks fish.
const FISH: &str = r#"
source $COMPLETIONS/outlive.fish
while read -l line
    complete -C "$line"
    echo =
end <$LINES_FILE >$OFFERS
"#;

/// Asks zsh: an interactive one on a terminal of its own gets the line and a tab, and writes down what is added.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell "TERM=dumb exec zsh -f -i"
zpty -w shell "source $ZSH_INNER"
zpty -r shell said "*<ready>*" || exit 1
while IFS= read -r line; do
    zpty -wn shell $'\C-u'"$line"$'\t'
    zpty -r shell said "*<done>*" || exit 1
done <$LINES_FILE
zpty -d shell
"#;

/// What that one is told first.
const ZSH_INNER: &str = r#"
fpath=($COMPLETIONS $fpath)
autoload -Uz compinit
compinit -u -D
bindkey -e
setopt no_auto_list no_auto_menu
LISTMAX=100000
zstyle ':completion:*' completer _complete
compadd() {
    # With one of these it only filters, and offers nothing.
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
        local -a offered described
        local -i at=${@[(i)-d]}
        local array=${@[at+1]}
        (( at > $# )) || described=("${(@P)array}")
        builtin compadd -A offered -D described "$@"
        for (( at = 1; at <= $#offered; at++ )); do
            print -r -- "$offered[at]"$'\t'"${${described[at]-}#*-- }" >>$OFFERS
        done
    fi
    builtin compadd "$@"
}
# zsh forgets it each time.
asked() { comppostfuncs=(asked); print = >>$OFFERS; print '<do''ne>' }
comppostfuncs=(asked)
print '<rea''dy>'
"#;

/// A word that is offered, with its description where the shell shows one.
type Offer = (String, String);

fn words(offers: &[Offer]) -> BTreeSet<&str> {
    offers.iter().map(|(word, _)| word.as_str()).collect()
}

fn longs(offers: &[Offer]) -> BTreeSet<String> {
    let longs = offers.iter().map(|(word, _)| word.trim_end_matches('=')).filter(|word| word.starts_with("--"));
    longs.map(str::to_owned).collect()
}

/// What is offered for each line.
fn asked(shell: &str, folder: &Folder, job_dir: Option<&str>, lines: &[String]) -> Vec<Vec<Offer>> {
    let script = match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        _ => FISH,
    };
    fs::write(folder.path("script"), script).unwrap();
    fs::write(folder.path("offers"), "").unwrap();
    fs::write(folder.path("inner"), ZSH_INNER).unwrap();
    fs::write(folder.path("lines"), lines.join("\n") + "\n").unwrap();
    let mut command = folder.command(shell);
    let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    let dirs = std::iter::once(folder.path("bin")).chain(std::env::split_paths(&path));
    // No configuration of whoever runs the test.
    command.args(match shell {
        "bash" => &["--norc"][..],
        "zsh" => &["-f"],
        _ => &["--no-config"],
    });
    command
        .arg(folder.path("script"))
        .current_dir(folder.path("here"))
        .env("PATH", std::env::join_paths(dirs).unwrap())
        .env("HOME", folder.path("here"))
        .env("COMPLETIONS", house().join("completions"))
        .env("LINES_FILE", folder.path("lines"))
        .env("ZSH_INNER", folder.path("inner"))
        .env("OFFERS", folder.path("offers"))
        .envs(job_dir.map(|dir| ("JOB_DIR", dir)))
        .stdout(File::create(folder.path("out")).unwrap())
        .stderr(File::create(folder.path("err")).unwrap())
        .process_group(0);
    let mut child = command.spawn().unwrap();
    until_within(Duration::from_secs(120), &format!("the answers of {shell}"), || child.try_wait().unwrap().is_some());
    let text = fs::read_to_string(folder.path("offers")).unwrap();
    let said = fs::read_to_string(folder.path("err")).unwrap();
    assert_eq!(said, "", "{shell} complains");
    let mut answers = vec![Vec::new()];
    for line in text.lines() {
        if line == "=" {
            answers.push(Vec::new());
        } else {
            let (word, described) = line.split_once('\t').unwrap_or((line, ""));
            answers.last_mut().unwrap().push((word.to_owned(), described.to_owned()));
        }
    }
    answers.pop();
    assert_eq!(answers.len(), lines.len(), "{shell} has answered each line");
    answers
}

/// A folder with something in it to complete: files, a command, and jobs in each state.
struct Place {
    folder: Folder,
    claimed: String,
    running: String,
    done: String,
    delivered: String,
    elsewhere: String,
}

impl Place {
    fn new() -> Place {
        let folder = Folder::new();
        for dir in ["here", "here/subfolder", "bin"] {
            fs::create_dir(folder.path(dir)).unwrap();
        }
        fs::write(folder.path("here/request.json"), "{}").unwrap();
        fs::write(folder.path("bin/only-here"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.path("bin/only-here"), fs::Permissions::from_mode(0o755)).unwrap();
        let delivered = folder.claim(&["--name", "old"]);
        folder.run("jobdir", ["cancel", &delivered]);
        folder.sh(&format!("echo {delivered} | sweep --ack"));
        let done = folder.claim(&["--name", "review"]);
        folder.start(&done, &["true"]);
        folder.ended(&done);
        let running = folder.claim(&["--name", "say \"hello, world\""]);
        folder.start(&running, &["sleep", "600"]);
        let claimed = folder.claim(&["--name", "nightly", "--start-within", "0"]);
        let other = folder.path("other");
        let elsewhere = folder.claim(&["--root", other.to_str().unwrap(), "--start-within", "0"]);
        Place { folder, claimed, running, done, delivered, elsewhere }
    }
}

/// Whether what is offered is right.
type Judge = Box<dyn Fn(&[Offer]) -> bool>;

/// A line, and the judge of the answer.
type Question = (String, Judge);

fn is(line: impl Into<String>, expected: &[&str]) -> Question {
    let expected: BTreeSet<String> = expected.iter().map(|&word| word.to_owned()).collect();
    (line.into(), Box::new(move |offers| words(offers) == expected.iter().map(String::as_str).collect()))
}

fn has(line: impl Into<String>, expected: &'static str) -> Question {
    (line.into(), Box::new(move |offers| words(offers).iter().any(|word| word.trim_end_matches('/') == expected)))
}

fn describes(line: impl Into<String>, id: &str, expected: &'static str) -> Question {
    let id = id.to_owned();
    let told = move |offers: &[Offer]| {
        offers.iter().any(|(word, told)| *word == id && told.to_lowercase().starts_with(expected))
    };
    (line.into(), Box::new(told))
}

/// The options, from the one truth: which there are, and which take the word behind them.
fn about_options(calls: &[Call], shell: &str) -> Vec<Question> {
    let mut questions = Vec::new();
    for call in calls {
        let words = call.words().join(" ");
        let offers_all = |line: String, given: &str| {
            let (all, given) = (call.longs(), format!("--{given}"));
            // zsh does not offer again what has been given.
            let right: Judge = Box::new(move |offers| {
                let mut offered = longs(offers);
                offered.extend(all.get(&given).cloned());
                offered == all
            });
            (line, right)
        };
        questions.push(offers_all(format!("{words} --"), ""));
        for option in call.options.iter().filter(|option| !["help", "version"].contains(&option.long.as_str())) {
            for spelled in option.short.map(|c| format!("-{c}")).into_iter().chain([format!("--{}", option.long)]) {
                let takes = option.value;
                let given = if takes { format!("{spelled} 1") } else { spelled.clone() };
                match &call.verb {
                    Some(verb) => questions.push(offers_all(format!("jobdir {given} {verb} --"), &option.long)),
                    None if call.tool == "reap" => {}
                    None => {
                        questions.push(has(format!("{words} {given} onl"), "only-here"));
                        let stops: Judge = Box::new(|offers| longs(offers).is_empty());
                        questions.push((format!("{words} {given} only-here --"), stops));
                        let right = move |offers: &[Offer]| self::words(offers).contains("only-here") != takes;
                        questions.push((format!("{words} {spelled} onl"), Box::new(right)));
                    }
                }
                // fish offers options wherever a dash was typed.
                if shell != "fish" {
                    let right = move |offers: &[Offer]| longs(offers).is_empty() == takes;
                    questions.push((format!("{words} {spelled} --"), Box::new(right)));
                }
            }
        }
    }
    let verbs: Vec<&str> = calls.iter().filter_map(|call| call.verb.as_deref()).collect();
    questions.push(is("jobdir ", &verbs));
    questions.push(is("jobdir can", &["cancel"]));
    questions
}

fn about_jobs(place: &Place) -> Vec<Question> {
    let Place { folder, claimed, running, done, delivered, elsewhere } = place;
    let other = folder.path("other").display().to_string();
    let live: &[&str] = &[claimed, running];
    let ended: &[&str] = &[done, delivered];
    let all: &[&str] = &[claimed, running, done, delivered];
    vec![
        is("jobdir cancel ", live),
        is(format!("jobdir cancel {running} "), live),
        is("jobdir wait --any ", live),
        is("jobdir wait --slice 3 ", live),
        is("jobdir touch ", live),
        is("jobdir finish ", live),
        is(format!("jobdir finish {running} "), &["done", "failed", "timeout", "unknown"]),
        is("jobdir result ", ended),
        is("jobdir status ", all),
        is("jobdir show ", all),
        is("jobdir path ", all),
        is(format!("jobdir path {done} "), &[]),
        is("watchdog --job ", &[claimed]),
        is("watchdog -j ", &[claimed]),
        is(format!("jobdir --root {other} cancel "), &[elsewhere]),
        is(format!("jobdir cancel -r {other} "), &[elsewhere]),
        is(format!("jobdir cancel --root={other} "), &[elsewhere]),
        is(format!("watchdog --root {other} --job "), &[elsewhere]),
        is("jobdir list --status r", &["running"]),
        has("jobdir cancel --name ni", "nightly"),
        has("sweep --name rev", "review"),
    ]
}

/// Where the shell shows a description.
fn about_descriptions(place: &Place) -> Vec<Question> {
    vec![
        describes("jobdir cancel ", &place.claimed, "nightly, claimed, "),
        describes("jobdir result ", &place.done, "review, done, 0s"),
        describes("jobdir result ", &place.delivered, "old, failed, 0s"),
        describes("jobdir can", "cancel", "ask the owner to stop"),
    ]
}

fn about_files_and_commands() -> Vec<Question> {
    let no_options = |offers: &[Offer]| longs(offers).is_empty();
    vec![
        has("detach -o re", "request.json"),
        has("detach --input re", "request.json"),
        has("detach --chdir sub", "subfolder"),
        has("jobdir claim --input re", "request.json"),
        has("jobdir put x re", "request.json"),
        has("jobdir list --root sub", "subfolder"),
        has("watchdog --log re", "request.json"),
        has("detach onl", "only-here"),
        has("detach -rp -o x -- onl", "only-here"),
        has("watchdog --hard 3 onl", "only-here"),
        has("sweep -- onl", "only-here"),
        has("detach only-here re", "request.json"),
        ("detach only-here --".to_owned(), Box::new(no_options)),
        ("sweep only-here --".to_owned(), Box::new(no_options)),
        has("reap --signal TE", "TERM"),
        (
            "reap ".to_owned(),
            Box::new(|offers| !offers.is_empty() && offers.iter().all(|(pid, _)| pid.trim().parse::<u32>().is_ok())),
        ),
    ]
}

fn completes(shell: &str, describes: bool) {
    if Command::new(shell).args(["-c", ":"]).output().is_err() {
        // Past the capture of the harness: who reads the log shall know.
        let skipped = format!("skipped: the completions of {shell}, which is not installed\n");
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let place = Place::new();
    let mut questions = about_options(&calls(), shell);
    questions.extend(about_jobs(&place));
    questions.extend(about_files_and_commands());
    if describes {
        questions.extend(about_descriptions(&place));
    }
    ask(shell, &place, None, &questions);
    // Inside a job, put and touch need no job.
    let inside = [has("jobdir put re", "request.json"), is("jobdir touch ", &[])];
    ask(shell, &place, Some("somewhere"), &inside);
}

fn ask(shell: &str, place: &Place, job_dir: Option<&str>, questions: &[Question]) {
    let lines: Vec<String> = questions.iter().map(|(line, _)| line.clone()).collect();
    let answers = asked(shell, &place.folder, job_dir, &lines);
    let wrong: Vec<String> = questions
        .iter()
        .zip(&answers)
        .filter(|((_, right), offers)| !right(offers))
        .map(|((line, _), offers)| format!("{line}| offers {offers:?}"))
        .collect();
    assert!(wrong.is_empty(), "{shell}, of {} answers:\n{}", answers.len(), wrong.join("\n"));
}

#[test]
fn bash_completes() {
    completes("bash", false);
}

#[test]
fn zsh_completes() {
    completes("zsh", true);
}

#[test]
fn fish_completes() {
    completes("fish", true);
}
