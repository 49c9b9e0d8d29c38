//! What the tests share: the real binaries, a fresh folder for each test, conditions instead of sleeps, and an
//! end for everything that a test has started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, clippy::print_stdout)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod calls;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod invariant;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod point;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod scenario;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod trace;

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The variable by which the processes of a test are known.
const MARK: &str = "OUTLIVE_TEST";

/// The folder that holds the five binaries, built with the profile of this test where they are not fresh.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        // nohup(1) and a shell without job control start what they put into the background with these ignored, and our
        // children would inherit that.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action is valid for each, and no handler of ours is replaced.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // target/PROFILE/deps/TEST-HASH, or target/PROFILE/PROGRAM
        let mut dir = std::env::current_exe().unwrap();
        while dir.pop() && dir.ends_with("deps") {}
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--bins"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        // Cargo's own variables of this test would make it build everything anew.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
            if name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" {
                cargo.env_remove(name);
            }
        }
        assert!(cargo.status().unwrap().success(), "the binaries cannot be built");
        dir
    })
}

/// The path of a tool's binary.
pub fn bin(tool: &str) -> PathBuf {
    bin_dir().join(tool)
}

/// A fresh folder with a job root in it. Whatever was started from it is ended when it goes.
pub struct Folder {
    dir: TempDir,
    mark: String,
}

impl Folder {
    /// A fresh one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Folder {
        let dir = tempfile::Builder::new().prefix("outlive.").tempdir().unwrap();
        let mark = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        Folder { dir, mark }
    }

    /// A path in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its job root, which `jobdir claim` makes.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// The file `name` of job `id`, in jobs/ or, once delivered, in delivered/.
    pub fn file(&self, id: &str, name: &str) -> PathBuf {
        let pending = self.root().join("jobs").join(id);
        let dir = if pending.is_dir() { pending } else { self.root().join("delivered").join(id) };
        dir.join(name)
    }

    /// A command that knows the root and the five binaries, and is known to be ours.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(bin_dir().to_owned()).chain(std::env::split_paths(&path));
        command
            .env(MARK, &self.mark)
            .env("JOBDIR_ROOT", self.root())
            .env("PATH", std::env::join_paths(dirs).unwrap())
            .stdin(Stdio::null());
        for name in ["JOB_ID", "JOB_DIR", "JOB_CLAIM", "JOB_DEADLINE", "READY_FD", "JOBDIR_SYNC"] {
            command.env_remove(name);
        }
        command
    }

    /// A tool with its arguments.
    pub fn tool<S: AsRef<OsStr>>(&self, tool: &str, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(bin(tool));
        command.args(args);
        command
    }

    /// Runs a tool to its end.
    pub fn run<S: AsRef<OsStr>>(&self, tool: &str, args: impl IntoIterator<Item = S>) -> Ran {
        run(&mut self.tool(tool, args))
    }

    /// Runs a line of sh to its end; the five tools are in its PATH.
    pub fn sh(&self, line: &str) -> Ran {
        run(self.command("sh").args(["-c", line]))
    }

    /// A watchdog of a claimed job around a line of sh, in the folder.
    pub fn watchdog(&self, id: &str, options: &[&str], line: &str) -> Command {
        let words = ["--job", id].into_iter().chain(options.iter().copied()).chain(["--", "sh", "-c", line]);
        let mut command = self.tool("watchdog", words);
        command.current_dir(self.path(""));
        command
    }

    /// Claims a job with these options, which must succeed; its id.
    pub fn claim(&self, options: &[&str]) -> String {
        let ran = self.run("jobdir", std::iter::once("claim").chain(options.iter().copied()));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "claim");
        ran.out.trim_end().to_owned()
    }

    /// Starts a claimed job, detached and watched; the launch must succeed.
    pub fn start(&self, id: &str, command: &[&str]) {
        let line = ["--ready", "--"].map(str::to_owned).into_iter();
        let line = line.chain([bin("watchdog").display().to_string(), "--job".into(), id.into(), "--".into()]);
        let ran = self.run("detach", line.chain(command.iter().map(|word| (*word).to_owned())));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "launch of {command:?}");
    }

    /// The word in the status file as it is, not settled; empty where there is none.
    pub fn word(&self, id: &str) -> String {
        fs::read_to_string(self.file(id, "status")).unwrap_or_default().trim_end().to_owned()
    }

    /// The owner's pid as it is recorded.
    pub fn owner(&self, id: &str) -> i32 {
        fs::read_to_string(self.file(id, "pid")).unwrap().trim().parse().expect("an owner's pid")
    }

    /// Waits until the job's status file says a terminal word, and returns it.
    pub fn ended(&self, id: &str) -> String {
        until(&format!("job {id} has ended"), || !["", "claimed", "running"].contains(&self.word(id).as_str()));
        self.word(id)
    }

    /// The record of a job that has ended.
    pub fn record(&self, id: &str) -> serde_json::Value {
        let text = fs::read_to_string(self.file(id, "result.json")).expect("a record");
        assert_eq!(text.matches('\n').count(), 1, "a record is one line");
        serde_json::from_str(&text).expect("valid JSON")
    }

    /// The living processes that were started from this folder, this one left out.
    pub fn living(&self) -> Vec<i32> {
        let entry = format!("{MARK}={}", self.mark);
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|&b| b == 0).any(|one| one == entry.as_bytes()) && is_alive(*pid)
            })
            .collect()
    }
}

impl Folder {
    /// Those who stay: what is about to end has a moment for it. A `jobdir wait` leaves a child behind for the 15 ms that
    /// the kernel takes to end a watch.
    pub fn left(&self) -> Vec<i32> {
        comes_within(Duration::from_millis(500), || self.living().is_empty());
        self.living()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            let living = self.living();
            if living.is_empty() || Instant::now() > limit {
                return;
            }
            for pid in living {
                kill(pid, libc::SIGKILL);
            }
        }
    }
}

/// A command in the background, killed if the test forgets it.
pub struct Kid(pub Child);

impl Kid {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Kid {
        Kid(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }

    /// Starts one to which nobody listens.
    pub fn quiet(command: &mut Command) -> Kid {
        Kid::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts one whose words are wanted: few enough to stay in a pipe until its end.
    pub fn heard(command: &mut Command) -> Kid {
        Kid::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Waits for its end; its status.
    pub fn end(&mut self) -> i32 {
        until("the child has ended", || self.0.try_wait().unwrap().is_some());
        status_of(self.0.wait().unwrap())
    }

    /// Waits for its end; its status, and what nobody else has read of its words.
    pub fn ran(mut self) -> Ran {
        fn all(from: Option<impl Read>) -> String {
            let mut bytes = Vec::new();
            from.map(|mut from| from.read_to_end(&mut bytes).unwrap());
            String::from_utf8_lossy(&bytes).into_owned()
        }
        let status = self.end();
        Ran { status, out: all(self.0.stdout.take()), err: all(self.0.stderr.take()) }
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a command lead a session of its own, as under detach or a terminal.
pub fn in_session(command: &mut Command) -> &mut Command {
    // SAFETY: setsid(2) alone, between fork and exec.
    unsafe { command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?)) }
}

/// What a file of the folder holds; empty where there is none.
pub fn text(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).unwrap_or_default()
}

/// Waits until a file of the folder holds a whole line, and returns what it says.
pub fn said(folder: &Folder, name: &str) -> String {
    until(&format!("{name} says something"), || text(folder, name).ends_with('\n'));
    text(folder, name).trim_end().to_owned()
}

/// The number in such a file.
pub fn pid_in(folder: &Folder, name: &str) -> i32 {
    said(folder, name).parse().unwrap()
}

/// Makes an empty file in the folder.
pub fn touch(folder: &Folder, name: &str) {
    fs::write(folder.path(name), "").unwrap();
}

/// A text that must be JSON.
pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A user without any rights here.
pub const NOBODY: u32 = 65_534;

/// Whether we may do anything.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says why a test looks at nothing here.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}

/// Whether the tools are what other systems get (`--cfg portable`); says which promise is Linux's alone.
pub fn is_portable(promise: &str) -> bool {
    if cfg!(portable) {
        skip(&format!("only on Linux {promise}"));
    }
    cfg!(portable)
}

/// How a command ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status; 128+n for a signal.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Ran {
        status: status_of(status),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// An exit status as a shell has it: 128+n for a signal.
pub fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Waits for a condition, for at most 20 seconds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(20), what, condition);
}

/// Waits for a condition, for at most `limit`.
pub fn until_within(limit: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_within(limit, condition), "not within {limit:?}: {what}");
}

/// Whether a condition comes true within `limit`.
pub fn comes_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The state letter of a process; `None` where it is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = stat.iter().rposition(|&b| b == b')')?;
    stat.get(close + 2).map(|&b| char::from(b))
}

/// Whether a process lives: a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Sends a signal to one process.
pub fn kill(pid: i32, signal: i32) {
    assert!(pid > 1, "never a group, never everybody");
    // SAFETY: kill(2) takes two integers.
    unsafe { libc::kill(pid, signal) };
}
