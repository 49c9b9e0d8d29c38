//! The harness table: what outlives a tool call, by the way it was launched and the way the call is ended.
//!
//! A call is a bash script that leads a session of its own, as harnesses start them. It launches a ticker, and is
//! killed as the harnesses kill: its process group, all of its session, or its tree as the parent links show it.
//! Every cell follows from what the kernel promises, so every cell is asserted:
//!
//! - kill(2) of a group reaches the members of the group: only setpgid(2) or setsid(2) leads out;
//! - the members of a session can leave it by setsid(2) alone;
//! - a walk along parent links finds whoever has a living chain of parents up to the call: only the end of a
//!   parent in between leads out, since the kernel then hands the child to pid 1 or a subreaper.
//!
//! SIGKILL reaches no handler, and no terminal is involved, so nobody is sent HUP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::collections::HashSet;
use std::fs;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tests::{Folder, in_session, is_alive, kill, until};

/// Notes its pid several times a second in the file that it is given; ends itself after a minute at most.
const TICKER: &str = r#"i=0; while [ $i -lt 500 ]; do echo $$ >>"$1"; sleep 0.1; i=$((i + 1)); done"#;

/// The seed's one-liner: fork, setsid, fork, streams, exec.
const PERL: &str = r#"perl -e 'use POSIX qw(setsid); exit if fork; setsid(); exit if fork;
    open(STDIN,"<","/dev/null"); open(STDOUT,">","/dev/null"); open(STDERR,">>","/dev/null");
    exec "/bin/sh","-c",$ARGV[0];' "exec sh ticker ticks""#;

const PYTHON_GONE: &str = r#"python3 -c 'import subprocess
subprocess.Popen(["sh", "ticker", "ticks"], start_new_session=True)'"#;

const PYTHON_WAITS: &str = r#"python3 -c 'import subprocess
subprocess.run(["sh", "ticker", "ticks"], start_new_session=True)' &"#;

const READY: &str = r#"detach --ready sh -c 'echo >&$READY_FD; exec sh ticker ticks'"#;

/// One way to launch, and what the three kills do to what it has launched.
struct Launch {
    name: &'static str,
    line: &'static str,
    /// A line of sh that succeeds where the machine has what the launch needs.
    needs: &'static str,
    /// By group, by session, by tree: whether the ticker lives.
    lives: [bool; 3],
}

const LAUNCHES: [Launch; 11] = [
    // A child of the call, in its group and its session.
    Launch { name: "&", line: "sh ticker ticks &", needs: ":", lives: [false, false, false] },
    // HUP is the one thing that nohup keeps away, and nobody sends it.
    Launch {
        name: "nohup … &",
        line: "nohup sh ticker ticks >/dev/null 2>&1 &",
        needs: "nohup true",
        lives: [false, false, false],
    },
    // Job control gives it a group, and disown makes bash forget it; the kernel keeps session and parent.
    Launch {
        name: "set -m; nohup … & disown",
        line: "set -m; nohup sh ticker ticks >/dev/null 2>&1 & disown",
        needs: "nohup true",
        lives: [true, false, false],
    },
    // The same in a shell that ends, as the seed has it: an orphan, so no link leads to it either.
    Launch {
        name: "bash -c 'set -m; nohup … & disown'",
        line: "bash -c 'set -m; nohup sh ticker ticks >/dev/null 2>&1 & disown'",
        needs: "nohup true",
        lives: [true, false, true],
    },
    // In the background setsid leads no group, so it need not fork: the ticker stays a child of the call.
    Launch { name: "setsid … &", line: "setsid sh ticker ticks &", needs: "setsid true", lives: [true, true, false] },
    // It forks, and the parent ends.
    Launch {
        name: "setsid -f …",
        line: "setsid -f sh ticker ticks",
        needs: "setsid -f true",
        lives: [true, true, true],
    },
    Launch { name: "perl: fork, setsid, fork", line: PERL, needs: "perl -MPOSIX -e 1", lives: [true, true, true] },
    // Its launcher ends, and no link is left.
    Launch {
        name: "python3 start_new_session",
        line: PYTHON_GONE,
        needs: "python3 -c 'import subprocess'",
        lives: [true, true, true],
    },
    // Its launcher waits for it, and the links go through it.
    Launch {
        name: "python3 start_new_session, waiting",
        line: PYTHON_WAITS,
        needs: "python3 -c 'import subprocess'",
        lives: [true, true, false],
    },
    Launch { name: "detach", line: "detach sh ticker ticks", needs: ":", lives: [true, true, true] },
    // The child in between stays until the worker is ready, and not longer than the call's wait for detach.
    Launch { name: "detach --ready", line: READY, needs: ":", lives: [true, true, true] },
];

/// Ends a call by its pid.
type Kill = fn(i32);

/// The ways in which harnesses end a call.
const KILLS: [(&str, Kill); 3] = [("group", kill_group), ("session", kill_session), ("tree", kill_tree)];

/// What proc_pid_stat(5) says of a process.
struct Stat {
    pid: i32,
    parent: i32,
    session: i32,
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let line = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let (_, fields) = line.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Stat { pid, parent: number(1)?, session: number(3)?, start: fields.get(19)?.parse().ok()? })
}

/// Every living process.
fn processes() -> Vec<Stat> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    pids.filter(|&pid| is_alive(pid)).filter_map(stat).collect()
}

fn kill_group(call: i32) {
    killpg(Pid::from_raw(call), Signal::SIGKILL).unwrap();
}

fn kill_session(call: i32) {
    // Again until nobody is in it: the ticker starts short naps.
    until("an empty session", || {
        let members: Vec<Stat> = processes().into_iter().filter(|stat| stat.session == call).collect();
        members.iter().for_each(|stat| kill(stat.pid, libc::SIGKILL));
        members.is_empty()
    });
}

fn kill_tree(call: i32) {
    let processes = processes();
    let mut tree = HashSet::from([call]);
    loop {
        let before = tree.len();
        tree.extend(
            processes.iter().filter(|stat| tree.contains(&stat.parent)).map(|stat| stat.pid).collect::<Vec<_>>(),
        );
        if tree.len() == before {
            break;
        }
    }
    tree.into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
}

/// A call of its own session that has launched a ticker by `line`, and the ticker.
fn call(folder: &Folder, line: &str) -> (Child, Stat) {
    fs::write(folder.path("ticker"), TICKER).unwrap();
    fs::write(folder.path("call"), format!("{line}\necho $? >launched.new; mv launched.new launched; sleep 60; :\n"))
        .unwrap();
    let mut bash = folder.command("bash");
    bash.arg("call").current_dir(folder.path("")).stderr(Stdio::null());
    let call = in_session(&mut bash).spawn().unwrap();
    // Launched, and what was launched has got where it will stay: the ticks come after every fork and exec of it.
    until(line, || folder.path("launched").exists() && ticks(folder) > 0);
    assert_eq!(fs::read_to_string(folder.path("launched")).unwrap(), "0\n", "{line}");
    let pid = fs::read_to_string(folder.path("ticks")).unwrap().lines().next().unwrap().parse().unwrap();
    (call, stat(pid).expect("a living ticker"))
}

/// How many whole ticks there are.
fn ticks(folder: &Folder) -> usize {
    fs::read(folder.path("ticks")).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
}

/// Whether the ticker of a call that was launched by `line` and ended by `kill` goes on.
fn outlives(line: &str, kill: Kill) -> bool {
    let folder = Folder::new();
    let (mut call, ticker) = call(&folder, line);
    kill(i32::try_from(call.id()).unwrap());
    call.wait().unwrap();
    let before = ticks(&folder);
    let gone = || !is_alive(ticker.pid) || stat(ticker.pid).is_none_or(|now| now.start != ticker.start);
    // One tick may have been on its way; three need a ticker that lives.
    let growing = || ticks(&folder) >= before + 3;
    until(line, || gone() || growing());
    !gone()
}

#[test]
fn the_harness_table() {
    let folder = Folder::new();
    let has = |needs: &str| folder.sh(&format!("{{ {needs}; }} >/dev/null 2>&1")).status == 0;
    if !has("bash -c :") {
        println!("left out, for there is no bash here");
        return;
    }
    let (here, missing): (Vec<&Launch>, Vec<&Launch>) = LAUNCHES.iter().partition(|launch| has(launch.needs));
    let line = |name: &str, cells: &[&str]| {
        // By characters, not bytes.
        format!("{name:36}{}", cells.iter().map(|cell| format!("{cell:9}")).collect::<String>()).trim_end().to_owned()
    };
    let word = |lives: bool| if lives { "lives" } else { "dies" };
    let rows = std::thread::scope(|scope| {
        let row = |launch: &'static Launch| scope.spawn(|| KILLS.map(|(_, kill)| word(outlives(launch.line, kill))));
        let rows: Vec<_> = here.iter().map(|launch| row(launch)).collect();
        rows.into_iter().map(|row| row.join().unwrap()).collect::<Vec<_>>()
    });
    let head = line("launched by, killed by", &KILLS.map(|(name, _)| name));
    let table = |cells: Vec<[&str; 3]>| {
        here.iter().zip(cells).map(|(launch, cells)| line(launch.name, &cells)).collect::<Vec<_>>().join("\n")
    };
    let found = table(rows);
    println!("\n{head}\n{found}");
    missing.iter().for_each(|launch| println!("{:36}left out: not on this machine", launch.name));
    let right = table(here.iter().map(|launch| launch.lives.map(word)).collect());
    assert!(found == right, "found\n{head}\n{found}\nright\n{head}\n{right}");
}
