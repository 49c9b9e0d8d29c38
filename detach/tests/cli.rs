//! The tool as its users meet it: every flag, every exit status, and what the worker inherits.
#![allow(clippy::unwrap_used, missing_docs, clippy::expect_used)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getsid};
use tempfile::TempDir;

const DETACH: &str = env!("CARGO_BIN_EXE_detach");
const MARK: &str = "DETACH_TEST_MARK";
const LIMIT: Duration = Duration::from_secs(20);

/// A fresh folder, and an environment by which every process of one test is found and ended.
struct Yard {
    dir: TempDir,
    mark: String,
}

impl Yard {
    fn new() -> Yard {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Yard { dir: TempDir::new().unwrap(), mark }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env(MARK, &self.mark).stdin(Stdio::null());
        command
    }

    /// detach with these words.
    fn detach(&self, words: &[&str]) -> Command {
        let mut command = self.program(DETACH);
        command.args(words);
        command
    }

    /// detach, `words`, and a shell that runs `script`.
    fn script(&self, words: &[&str], script: &str) -> Command {
        let mut command = self.detach(words);
        command.args(["--", "sh", "-c", script]);
        command
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The text of a file once it ends with `end\n`; the line before is left.
    fn text(&self, name: &str) -> String {
        let read = || fs::read(self.path(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        wait_for(name, || read().and_then(|text| text.strip_suffix("end\n").map(String::from)))
    }

    /// Pids and names of the processes of this test that are alive.
    fn processes(&self) -> Vec<(i32, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&b| b == 0).any(|entry| entry == mark.as_bytes())
        })
        .filter(|&pid| is_alive(pid))
        .map(|pid| (pid, fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()))
        .collect()
    }

    fn no_process_named(&self, name: &str) {
        wait_for("the process in between to go", || self.processes().iter().all(|(_, n)| n != name).then_some(()));
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for (pid, _) in left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The fields of /proc/PID/stat from the state on, none when there is no such process.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(String::from).collect())
}

fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// Runs to the end, and to the end of both its pipes, within the limit.
fn run(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child)
}

fn finish(child: std::process::Child) -> Output {
    let pid = Pid::from_raw(child.id() as i32);
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    match wait.recv_timeout(LIMIT) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            let _ = kill(pid, Signal::SIGKILL);
            panic!("it, or one that holds its pipes, did not end");
        }
    }
}

#[track_caller]
fn succeeds(command: Command) -> String {
    let output = run(command);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*err), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// Fails with this status, this one line, and nothing on standard output.
#[track_caller]
fn fails(command: Command, status: i32, text: &str) {
    let output = run(command);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*err), (Some(status), format!("detach: {text}\n").as_str()));
    assert_eq!(output.stdout, b"");
}

fn in_child(command: &mut Command, act: impl Fn() + Send + Sync + 'static) {
    // SAFETY: what the tests do here is a handful of system calls.
    unsafe {
        command.pre_exec(move || {
            act();
            Ok(())
        })
    };
}

// Outliving the caller

#[test]
fn the_worker_outlives_its_callers_group_and_session() {
    let yard = Yard::new();
    assert!(Command::new("mkfifo").arg(yard.path("go")).status().unwrap().success());
    let mut caller = yard.program("sh");
    let script = format!("{DETACH} -p -o log sh -c 'read x <go; echo $x; echo end'; exec sleep 60");
    caller.args(["-c", &script]).stdout(Stdio::piped()).process_group(0);
    let mut caller = caller.spawn().unwrap();
    let mut pid = [0; 16];
    let n = caller.stdout.take().unwrap().read(&mut pid).unwrap();
    let worker: i32 = String::from_utf8_lossy(&pid[..n]).trim().parse().unwrap();
    killpg(Pid::from_raw(caller.id() as i32), Signal::SIGKILL).unwrap();
    assert_eq!(caller.wait().unwrap().signal(), Some(9));
    assert!(is_alive(worker));
    fs::write(yard.path("go"), "alive\n").unwrap();
    assert_eq!(yard.text("log"), "alive\n");
}

#[test]
fn the_worker_has_a_new_session_that_it_does_not_lead_and_another_parent() {
    let yard = Yard::new();
    let mut command = yard.script(&["-p"], "sleep 60");
    command.stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let detach = child.id() as i32;
    let pid: i32 = String::from_utf8(finish(child).stdout).unwrap().trim().parse().unwrap();
    let fields = stat(pid).unwrap();
    let number = |field: usize| fields[field].parse::<i32>().unwrap();
    let (ppid, group, session, tty) = (number(1), number(2), number(3), number(4));
    assert!(ppid != detach && ppid != std::process::id() as i32, "parent {ppid}");
    assert_ne!(session, getsid(None).unwrap().as_raw());
    assert_ne!(session, pid, "leads its session");
    assert_eq!((group, tty), (session, 0));
}

#[test]
fn the_worker_has_no_terminal_and_an_empty_input() {
    let yard = Yard::new();
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: two valid places for the descriptors; name, settings and size are optional.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null(), null()) }, 0);
    let ask = "if (: </dev/tty); then echo open; else echo closed; fi; read x || echo empty; echo end";
    let mut command = yard.script(&["-o", "log"], &format!("exec 2>/dev/null; {ask}"));
    in_child(&mut command, move || {
        // SAFETY: plain numbers; the terminal becomes this new session's own.
        unsafe {
            libc::setsid();
            libc::ioctl(theirs, libc::TIOCSCTTY, 0);
            libc::dup2(theirs, 0);
        }
    });
    assert_eq!(run(command).status.code(), Some(0));
    assert_eq!(yard.text("log"), "closed\nempty\n");
    // SAFETY: closes what was opened above.
    unsafe { (libc::close(ours), libc::close(theirs)) };
}

#[test]
fn a_caller_that_reads_to_the_end_of_its_pipes_is_not_kept_waiting() {
    let yard = Yard::new();
    assert_eq!(succeeds(yard.script(&[], "while :; do echo x; echo y >&2; done")), "");
}

// What the worker starts with

#[test]
fn every_descriptor_is_closed_but_the_standard_three_and_those_kept() {
    let list = "for fd in /proc/$$/fd/*; do test -e $fd && echo ${fd##*/}; done; echo end";
    let stray = || {
        for fd in [3, 7, 9, 300] {
            // SAFETY: plain numbers; a copy of standard input that exec leaves open.
            unsafe { libc::dup2(0, fd) };
        }
    };
    let yard = Yard::new();
    let mut command = yard.script(&["-o", "none"], list);
    in_child(&mut command, stray);
    succeeds(command);
    assert_eq!(yard.text("none"), "0\n1\n2\n");
    // std itself has a pipe at 3 or 4 until exec; it gives way to our copies.
    let mut command = yard.script(&["-o", "two", "--keep-fd", "300", "--keep-fd", "7"], list);
    in_child(&mut command, stray);
    succeeds(command);
    assert_eq!(yard.text("two"), "0\n1\n2\n300\n7\n");
}

#[test]
fn ignored_and_blocked_signals_of_the_caller_do_not_reach_the_worker() {
    let yard = Yard::new();
    let mut command = yard.script(&["-o", "log"], "exec grep -E '^Sig(Blk|Ign)' /proc/self/status");
    in_child(&mut command, || {
        for signal in (1..=64).filter(|&s| s != libc::SIGKILL && s != libc::SIGSTOP) {
            // SAFETY: no handler is installed; numbers that cannot be ignored are refused.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        // SAFETY: the set is filled before it is read.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, null_mut());
        }
    });
    succeeds(command);
    let lines =
        wait_for("the log", || fs::read_to_string(yard.path("log")).ok().filter(|text| text.lines().count() == 2));
    assert_eq!(lines, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

#[test]
fn an_ignored_sigchld_does_not_hide_how_the_command_ended() {
    let yard = Yard::new();
    let mut command = yard.script(&["-r"], "exit 7");
    in_child(&mut command, || {
        // SAFETY: no handler is installed.
        _ = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    });
    fails(command, 7, "sh ended with status 7 before it was ready");
}

#[test]
fn arguments_arrive_byte_by_byte() {
    let yard = Yard::new();
    let words: Vec<OsString> = [&b"a\nb"[..], b"", b"-x", b"--", b" ", b"\"q'", b"$HOME", b"\\", b"\xff\xfe", b"\r"]
        .map(|word| OsString::from_vec(word.to_vec()))
        .to_vec();
    let mut command = yard.script(&["-o", "log"], "printf '%s\\0' \"$@\" end; echo end");
    command.arg("sh").args(&words);
    succeeds(command);
    yard.text("log");
    let mut expected: Vec<u8> = words.into_iter().flat_map(|word| [word.into_vec(), vec![0]].concat()).collect();
    expected.extend(b"end\0end\n");
    assert_eq!(fs::read(yard.path("log")).unwrap(), expected);
}

#[test]
fn the_environment_and_the_umask_are_the_callers() {
    let yard = Yard::new();
    let mut command = yard.script(&["-o", "log"], "umask; echo \"$ODD\"; echo end");
    command.env("ODD", "a b\nc");
    in_child(&mut command, || {
        // SAFETY: a plain number.
        _ = unsafe { libc::umask(0o027) };
    });
    succeeds(command);
    assert_eq!(yard.text("log"), "0027\na b\nc\n");
    assert_eq!(fs::metadata(yard.path("log")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn it_works_with_an_empty_environment() {
    let yard = Yard::new();
    let mut command = yard.script(&["-o", "log"], "echo \"${HOME-no home}\"; echo end");
    command.env_clear();
    succeeds(command);
    assert_eq!(yard.text("log"), "no home\n");
}

#[test]
fn it_works_in_a_deleted_directory() {
    let yard = Yard::new();
    fs::create_dir(yard.path("gone")).unwrap();
    let log = yard.path("log");
    let mut command = yard.program("sh");
    let script = format!("rmdir \"$PWD\"; exec {DETACH} -o {} sh -c 'echo here; echo end'", log.display());
    command.args(["-c", &script]).current_dir(yard.path("gone"));
    succeeds(command);
    // A shell may complain about its own start in such a place.
    assert!(yard.text("log").ends_with("here\n"));
}

#[test]
fn with_closed_standard_streams_every_file_holds_what_belongs_there() {
    let close = || {
        for fd in 0..3 {
            // SAFETY: a plain number.
            unsafe { libc::close(fd) };
        }
    };
    let yard = Yard::new();
    for extra in ["-o", "-ro"] {
        let mut command = yard.script(&[extra, "log"], "echo OUT; echo ERR >&2; cat; echo >&${READY_FD:-1}; echo end");
        in_child(&mut command, close);
        assert_eq!(command.status().unwrap().code(), Some(0));
        assert_eq!(yard.text("log").trim(), "OUT\nERR");
        fs::remove_file(yard.path("log")).unwrap();
    }
    let mut command = yard.detach(&["-r", "-o", "log", "/nonexistent"]);
    in_child(&mut command, close);
    assert_eq!(command.status().unwrap().code(), Some(127));
    assert_eq!(fs::read(yard.path("log")).unwrap(), b"");
}

// Options

#[test]
fn both_streams_are_appended_to_the_output_file() {
    let yard = Yard::new();
    yard.file("log", "before\n", 0o600);
    succeeds(yard.script(&["--output", "log"], "echo out; echo err >&2; echo end"));
    assert_eq!(yard.text("log"), "before\nout\nerr\n");
}

#[test]
fn standard_error_goes_apart_when_asked() {
    let yard = Yard::new();
    yard.file("err", "before\n", 0o600);
    succeeds(yard.script(&["-o", "out", "--error", "err"], "echo out; echo err >&2; echo end >&2; echo end"));
    assert_eq!((yard.text("out"), yard.text("err")), ("out\n".into(), "before\nerr\n".into()));
    succeeds(yard.script(&["-e", "alone"], "echo out; echo err >&2; echo end >&2"));
    assert_eq!(yard.text("alone"), "err\n");
}

#[test]
fn input_comes_from_a_file() {
    let yard = Yard::new();
    yard.file("in", "asked\nend\n", 0o600);
    succeeds(yard.detach(&["--input", "in", "-o", "log", "cat"]));
    assert_eq!(yard.text("log"), "asked\n");
}

#[test]
fn a_fifo_without_another_end_does_not_hang_it() {
    let yard = Yard::new();
    assert!(Command::new("mkfifo").arg(yard.path("fifo")).status().unwrap().success());
    succeeds(yard.script(&["-i", "fifo", "-o", "log"], "cat; echo end"));
    assert_eq!(yard.text("log"), "");
    fails(yard.detach(&["-o", "fifo", "true"]), 125, "cannot open fifo: no such device or address");
}

#[test]
fn a_file_that_cannot_be_opened_is_told_before_anything_starts() {
    let yard = Yard::new();
    fails(yard.detach(&["-i", "no", "touch", "started"]), 125, "cannot open no: no such file or directory");
    fails(yard.detach(&["-o", "no/log", "touch", "started"]), 125, "cannot open no/log: no such file or directory");
    fails(yard.detach(&["-e", ".", "touch", "started"]), 125, "cannot open .: is a directory");
    assert!(!yard.path("started").exists());
}

#[test]
fn the_directory_is_changed_last() {
    let yard = Yard::new();
    fs::create_dir(yard.path("sub")).unwrap();
    yard.file("sub/tool", "#!/bin/sh\npwd -P\necho end\n", 0o755);
    succeeds(yard.detach(&["--chdir", "sub", "-o", "log", "./tool"]));
    let sub = yard.path("sub").canonicalize().unwrap();
    assert_eq!(yard.text("log"), format!("{}\n", sub.display()));
    fails(yard.detach(&["-C", "no", "true"]), 125, "cannot change to no: no such file or directory");
    yard.file("sub/broken", "#!/no/such/interpreter\n", 0o755);
    let text = "cannot run ./broken: its interpreter /no/such/interpreter is missing";
    fails(yard.detach(&["-C", "sub", "./broken"]), 127, text);
}

#[test]
fn the_pid_is_the_workers() {
    let yard = Yard::new();
    let pid = succeeds(yard.script(&["--pid", "-o", "log"], "echo $$; echo end"));
    assert_eq!(pid, yard.text("log"));
    assert_eq!(succeeds(yard.script(&[], "true")), "");
}

#[test]
fn a_pid_that_cannot_be_printed_is_told_together_with_the_start() {
    let yard = Yard::new();
    let mut command = yard.script(&["-p"], "sleep 60");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = finish(command.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(output.status.code(), Some(125));
    let (pid, _) = yard.processes().into_iter().find(|(_, name)| name != "detach").unwrap();
    let text = format!("detach: started sh as pid {pid}, but cannot write its pid: no space left on device\n");
    // Dash may have run its last command as itself or as a child; the first is the worker.
    assert_eq!(String::from_utf8_lossy(&output.stderr), text);
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() {
    let yard = Yard::new();
    for words in [&["-p", "true"][..], &["--help"], &["--version"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = finish(yard.detach(words).stdout(writer).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]), "{words:?}");
    }
}

#[test]
fn help_and_version_are_data() {
    let yard = Yard::new();
    for flag in ["-h", "--help"] {
        let help = succeeds(yard.detach(&[flag]));
        assert!(help.starts_with("Usage: detach ") && help.ends_with("See detach(1).\n"));
        assert!(help.lines().all(|line| line.len() <= 80));
    }
    for flag in ["-V", "--version"] {
        assert_eq!(succeeds(yard.detach(&[flag])), concat!("detach ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

// Refusals

#[test]
fn a_wrong_call_is_125() {
    let yard = Yard::new();
    fails(yard.detach(&[]), 125, "no command given (try 'detach --help')");
    fails(yard.detach(&["--wrong", "true"]), 125, "invalid option '--wrong' (try 'detach --help')");
    fails(yard.detach(&["-C"]), 125, "missing argument for option '-C' (try 'detach --help')");
    let taken = "--keep-fd wants 3 or more: 0, 1 and 2 have -i, -o and -e (try 'detach --help')";
    fails(yard.detach(&["--keep-fd", "2", "true"]), 125, taken);
    fails(yard.detach(&["--keep-fd", "77", "true"]), 125, "cannot keep descriptor 77: bad file descriptor");
}

#[test]
fn a_command_that_is_not_there_is_127() {
    let yard = Yard::new();
    fails(yard.detach(&["no-such-command-here"]), 127, "cannot run no-such-command-here: no such command");
    fails(yard.detach(&["./no/such"]), 127, "cannot run ./no/such: no such file or directory");
    fails(yard.detach(&[""]), 127, "cannot run '': no such command");
    // PATH may hold what is no directory of commands, or (not for root) may not be searched.
    let shut = yard.path("shut");
    fs::create_dir_all(shut.join("some-command")).unwrap();
    for mode in [0o755, 0o000] {
        fs::set_permissions(&shut, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = yard.detach(&["some-command"]);
        command.env("PATH", &shut);
        fails(command, 127, "cannot run some-command: no such command");
    }
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_missing_interpreter_is_127_and_named() {
    let yard = Yard::new();
    yard.file("direct", "#! /no/such/sh -e\n", 0o755);
    fails(yard.detach(&["./direct"]), 127, "cannot run ./direct: its interpreter /no/such/sh is missing");
    // The end of line of another system becomes part of the name, and is shown.
    yard.file("dos", "#!/bin/sh\r\n", 0o755);
    fails(yard.detach(&["./dos"]), 127, "cannot run ./dos: its interpreter /bin/sh\\r is missing");
    let through = yard.file("through", &format!("#!{}\n", yard.path("direct").display()), 0o755);
    let text = "cannot run through: its interpreter /no/such/sh is missing";
    let mut command = yard.detach(&["through"]);
    command.env("PATH", through.parent().unwrap());
    fails(command, 127, text);
}

#[test]
fn a_command_that_cannot_run_is_126() {
    let yard = Yard::new();
    yard.file("plain", "echo a shell would run this\n", 0o755);
    fails(yard.detach(&["./plain"]), 126, "cannot run ./plain: exec format error");
    yard.file("locked", "#!/bin/sh\n", 0o644);
    fails(yard.detach(&["./locked"]), 126, "cannot run ./locked: permission denied");
    let mut command = yard.detach(&["locked"]);
    command.env("PATH", format!("{}:/bin:/usr/bin", yard.dir.path().display()));
    fails(command, 126, "cannot run locked: permission denied");
}

#[test]
fn arguments_beyond_the_limit_are_126() {
    let yard = Yard::new();
    // The command needs more room than detach itself did, by a long line of its own.
    yard.file("tool", &format!("#!/bin/sh {}\n", "x".repeat(230)), 0o755);
    // Downwards to the most that detach itself can be started with.
    let most = (1..1500).rev().find_map(|count| {
        let mut command = Command::new(DETACH);
        command.env_clear().current_dir(yard.dir.path()).arg("./tool").args(vec!["a".repeat(83); count]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        in_child(&mut command, || {
            let limit = libc::rlimit { rlim_cur: 512 << 10, rlim_max: 512 << 10 };
            // SAFETY: a valid limit is read.
            unsafe { libc::setrlimit(libc::RLIMIT_STACK, &limit) };
        });
        command.spawn().ok()
    });
    let output = finish(most.unwrap());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*err), (Some(126), "detach: cannot run ./tool: argument list too long\n"));
}

// Readiness

#[test]
fn it_returns_when_the_command_is_ready() {
    let yard = Yard::new();
    let script = "printf 'almost ' >&$READY_FD; touch before; echo there >&$READY_FD; sleep 60";
    let pid: i32 = succeeds(yard.script(&["--ready", "-p"], script)).trim().parse().unwrap();
    assert!(yard.path("before").exists());
    assert!(is_alive(pid));
    yard.no_process_named("detach");
}

#[test]
fn a_command_that_was_ready_may_end_at_once() {
    let yard = Yard::new();
    for _ in 0..30 {
        succeeds(yard.script(&["-r"], "echo >&$READY_FD; exit 3"));
    }
}

#[test]
fn the_ready_descriptor_has_one_digit_however_many_are_open() {
    let yard = Yard::new();
    let mut command = yard.script(&["-r", "--keep-fd", "3", "-o", "log"], "echo $READY_FD; echo >&$READY_FD; echo end");
    // SAFETY: plain numbers; copies of standard input that exec leaves open.
    in_child(&mut command, || {
        (3..30).for_each(|fd| {
            // SAFETY: plain numbers; copies of standard input that exec leaves open.
            _ = unsafe { libc::dup2(0, fd) };
        })
    });
    succeeds(command);
    assert_eq!(yard.text("log"), "4\n");
}

#[test]
fn a_grandchild_may_say_it() {
    let yard = Yard::new();
    succeeds(yard.script(&["-r"], "(until test -e told; do sleep 0.02; done; echo >&$READY_FD) & touch told; exit 0"));
    yard.no_process_named("detach");
}

#[test]
fn a_command_that_ends_first_fails_with_its_own_status() {
    let yard = Yard::new();
    fails(yard.script(&["-rp"], "exit 7"), 7, "sh ended with status 7 before it was ready");
    fails(yard.script(&["-r"], "printf no >&$READY_FD; exit 7"), 7, "sh ended with status 7 before it was ready");
    fails(yard.script(&["-r"], "kill -KILL $$"), 128 + 9, "sh was killed by SIGKILL before it was ready");
    fails(yard.script(&["-r"], "kill -TERM $$"), 128 + 15, "sh was killed by SIGTERM before it was ready");
    fails(yard.script(&["-r"], "sleep 60 & exit 7"), 7, "sh ended with status 7 before it was ready");
    fails(yard.script(&["-r"], "exit 0"), 125, "sh ended with status 0 before it was ready");
    fails(yard.detach(&["-r", "./no"]), 127, "cannot run ./no: no such file or directory");
    yard.no_process_named("detach");
}

#[test]
fn a_command_that_drops_the_descriptor_and_runs_on_is_125() {
    let yard = Yard::new();
    let output = run(yard.script(&["-r", "-o", "log"], "echo $$; echo end; exec sleep 60 3>&-"));
    let text =
        format!("detach: sh (pid {}) closed the descriptor of READY_FD before it was ready\n", yard.text("log").trim());
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(125), &*text));
    yard.no_process_named("detach");
}

#[test]
fn a_timeout_around_it_leaves_only_the_command() {
    let yard = Yard::new();
    let mut command = yard.program("timeout");
    let mut child = command.args(["60", DETACH, "-r", "sleep", "60"]).spawn().unwrap();
    let sleeps = || yard.processes().iter().any(|(_, name)| name == "sleep").then_some(());
    wait_for("the command", sleeps);
    // What it would do to itself after its time.
    kill(Pid::from_raw(child.id() as i32), Signal::SIGALRM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    yard.no_process_named("detach");
    wait_for("the command, still", sleeps);
}

#[test]
fn the_process_in_between_holds_nothing_open() {
    let yard = Yard::new();
    let mut command = yard.detach(&["-r", "-o", "log", "sleep", "60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let own = child.id() as i32;
    let of = |name: &str| yard.processes().into_iter().find(|(pid, n)| n == name && *pid != own);
    wait_for("the command", || of("sleep"));
    let (between, _) = of("detach").unwrap();
    let fds = wait_for("its descriptors to be closed", || {
        let list: Vec<_> = fs::read_dir(format!("/proc/{between}/fd")).ok()?.map(|e| e.unwrap().path()).collect();
        (list.len() == 4).then_some(list)
    });
    let at_null = fds.iter().filter(|fd| fs::read_link(fd).unwrap().as_os_str() == "/dev/null").count();
    assert_eq!(at_null, 3);
    child.kill().unwrap();
    child.wait().unwrap();
    yard.no_process_named("detach");
}

#[test]
fn without_ready_the_variable_is_unset() {
    let yard = Yard::new();
    let mut command = yard.script(&["-o", "log"], "echo ${READY_FD-unset}; echo end");
    command.env("READY_FD", "5");
    succeeds(command);
    assert_eq!(yard.text("log"), "unset\n");
}

#[test]
fn a_kept_pipe_reaches_the_command() {
    let yard = Yard::new();
    let (mut reader, mut writer) = io::pipe().unwrap();
    let fd = reader.as_raw_fd();
    let mut command = yard.script(&["--keep-fd", "20", "-o", "log"], "cat /proc/self/fd/20");
    in_child(&mut command, move || {
        // SAFETY: plain numbers.
        _ = unsafe { libc::dup2(fd, 20) };
    });
    writer.write_all(b"through\nend\n").unwrap();
    drop(writer);
    succeeds(command);
    assert_eq!(yard.text("log"), "through\n");
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}
