//! A command line under ptrace(2), with one fault at one of its system calls.
//!
//! The whole tree is followed, detached children included. Calls are counted over the tree, in the order in which the
//! kernel reports them, and only those of the five tools: a delegate or a shell is let run, and its calls
//! are not ours to break. The fault is a kill of somebody or the end of the power, just before the call is made, or an
//! error that the call gives instead of being made.
//!
//! Everything is seized rather than attached, so that a stop is told from a group stop. What a fault has left behind
//! is let go at the end, alive: whether the tools find it is what the invariants ask. Should we die ourselves, the
//! kernel kills all that we follow.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::calls::Call;
use crate::kill;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Whom {
    /// The session that the command line was started in: what the owner of a budget kills.
    Caller,
    /// The watchdog.
    Watchdog,
    /// Whatever a watchdog or a sweep has started, with all below it.
    Delegate,
    /// Everybody.
    All,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Somebody is killed before the call.
    Kill(Whom),
    /// The power fails before the call: nothing more gets to the disk, and everybody is killed.
    Power {
        /// The log is written first: names get to the disk, and what is in the files may not.
        log: bool,
    },
    /// The call fails; lasting: so does every later one that may.
    Fail {
        /// With this.
        errno: Errno,
        /// For [`LASTS`], not only once.
        lasting: bool,
    },
}

/// Who can be killed.
pub const KILLS: [Whom; 4] = [Whom::Caller, Whom::Watchdog, Whom::Delegate, Whom::All];

/// The errors that are tried.
pub const ERRNOS: [Errno; 11] = [
    Errno::EINTR,
    Errno::EIO,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EROFS,
    Errno::EMFILE,
    Errno::ENOMEM,
    Errno::EACCES,
    Errno::EPERM,
    Errno::EAGAIN,
    Errno::ESTALE,
];

/// How long a lasting failure lasts: longer than any of the short tools lives. A watchdog tries for a minute to record
/// an end, and nobody has a minute for each point; so the disk comes back, and the end must come out then.
const LASTS: Duration = Duration::from_millis(400);

/// While a failure lasts, a wait for a signal or a moment is cut to this, in milliseconds: the second between two
/// attempts at a record would be the longest part of the walk. A poll(2) may return early at any time.
const SHORT: i64 = 20_000_000;

impl Fault {
    /// All of them: kills, power cuts, then each error once and lasting. An EINTR that lasts is no fault, but a loop for ever.
    pub fn all() -> impl Iterator<Item = Fault> {
        let errors = ERRNOS.into_iter().flat_map(|errno| [false, true].map(|lasting| Fault::Fail { errno, lasting }));
        let lasting_eintr = Fault::Fail { errno: Errno::EINTR, lasting: true };
        KILLS
            .into_iter()
            .map(Fault::Kill)
            .chain([false, true].map(|log| Fault::Power { log }))
            .chain(errors.filter(move |fault| *fault != lasting_eintr))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill(whom) => write!(f, "kill-{}", format!("{whom:?}").to_lowercase()),
            Fault::Power { log } => f.write_str(if *log { "power-log" } else { "power" }),
            Fault::Fail { errno, lasting } => write!(f, "{errno:?}{}", if *lasting { "+" } else { "" }),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Fault, String> {
        Fault::all().find(|fault| fault.to_string() == word).ok_or_else(|| format!("no such fault: {word}"))
    }
}

/// A call that matters for the order in which things reach the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file's content was changed.
    Wrote(PathBuf),
    /// fsync(2) of a file or a directory.
    Synced(PathBuf),
    /// link(2) or rename(2): from, to, and what the file said, where it is a short one.
    Named(PathBuf, PathBuf, String),
    /// flock(2) of a file: whether it is exclusive, and whether the file was opened to be written.
    Locked(PathBuf, bool, bool),
    /// Something was said on standard output.
    Said,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Traced {
    /// The exit status of the command line; 128+n for a signal.
    pub status: i32,
    /// How often each fault could have struck, by its name.
    pub counts: HashMap<String, usize>,
    /// The call at which the fault struck, and whose it was; `None`: the command ended untouched.
    pub struck: Option<String>,
    /// The command line was killed by the fault.
    pub killed: bool,
    /// It did not end within the limit.
    pub stuck: bool,
    /// The successful steps, in order.
    pub steps: Vec<Step>,
}

/// One process that is followed.
struct Tracee {
    /// The tool that it runs.
    tool: Option<String>,
    /// A watchdog itself, not a child of it.
    watchdog: bool,
    /// Started by a watchdog or a sweep.
    delegate: bool,
    /// Past the start-up of its program.
    begun: bool,
    /// The error that its present call shall give.
    failing: Option<Errno>,
    /// What its present call is, where the order matters.
    step: Option<Step>,
}

/// How a run goes.
pub struct Plan<'a> {
    /// The five tools are here.
    pub tools: &'a Path,
    /// What is below it is shown shortened.
    pub base: &'a Path,
    /// The entry in the environment by which all that is started here is known.
    pub mark: &'a str,
    /// The fault, and the number of the eligible call that it strikes, from 1; `None`: count alone.
    pub fault: Option<(Fault, usize)>,
    /// How long all of it may take.
    pub limit: Duration,
    /// Called whenever a name has changed.
    pub look: &'a mut dyn FnMut(),
    /// Cuts the power of the disk, after its log is written or not. No tool gets past a call of its own meanwhile.
    pub cut: &'a mut dyn FnMut(bool),
}

struct Engine<'a> {
    plan: Plan<'a>,
    root: i32,
    tracees: HashMap<i32, Tracee>,
    traced: Traced,
    /// Whether processes that were looked at have nothing to do with us.
    strangers: HashMap<i32, bool>,
    since: Option<Instant>,
    /// Once all were killed, whoever is only now met is killed too.
    doomed: Option<Whom>,
}

/// Runs a line of sh to the end of its last tool. `command` is made with its streams and its environment, and without
/// arguments.
///
/// # Errors
/// Where ptrace(2) is not allowed, or sh cannot be started.
pub fn run(mut command: Command, line: &str, plan: Plan<'_>) -> io::Result<Traced> {
    // It stops itself until it is seized: so nothing of ours has to happen between fork and exec.
    let child = command.args(["-c", &format!("kill -STOP $$; {line}")]).spawn()?;
    let root = i32::try_from(child.id()).map_err(io::Error::other)?;
    wait(root, libc::WUNTRACED)?.ok_or(Errno::ECHILD)?;
    let options = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(Pid::from_raw(root), options).inspect_err(|_| kill(root, libc::SIGKILL))?;
    kill(root, libc::SIGCONT);
    let alarm = Alarm::set(plan.mark.to_owned(), plan.limit);
    let mut engine = Engine {
        plan,
        root,
        tracees: HashMap::new(),
        traced: Traced::default(),
        strangers: HashMap::new(),
        since: None,
        doomed: None,
    };
    engine.meet(root);
    let outcome = engine.follow();
    engine.traced.stuck = alarm.has_rung();
    outcome.map(|()| engine.traced)
}

/// Kills all that carries a mark once a limit is over, which ends every wait for it.
struct Alarm {
    off: mpsc::Sender<()>,
    rung: thread::JoinHandle<bool>,
}

impl Alarm {
    fn set(mark: String, limit: Duration) -> Alarm {
        let (off, wait) = mpsc::channel::<()>();
        let over = mpsc::RecvTimeoutError::Timeout;
        let rung = thread::spawn(move || {
            let rings = wait.recv_timeout(limit) == Err(over);
            // Again and again: it may be forking at this moment.
            let mut goes_on = rings;
            while goes_on {
                carriers(&mark).into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
                goes_on = wait.recv_timeout(Duration::from_millis(50)) == Err(over);
            }
            rings
        });
        Alarm { off, rung }
    }

    fn has_rung(self) -> bool {
        drop(self.off);
        self.rung.join().unwrap_or(true)
    }
}

/// The living processes that were started with this entry in their environment.
pub fn carriers(entry: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|&pid| carries(pid, entry) && crate::is_alive(pid))
        .collect()
}

fn carries(pid: i32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&b| b == 0).any(|one| one == entry.as_bytes())
}

/// waitpid(2) of one or, with -1, of any that this thread has started or follows. `None`: there is none.
fn wait(pid: i32, flags: i32) -> io::Result<Option<(i32, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: waitpid(2) writes one int, and it is ours.
        match Errno::result(unsafe { libc::waitpid(pid, &raw mut status, flags | libc::__WALL | libc::__WNOTHREAD) }) {
            Ok(pid) => return Ok(Some((pid, status))),
            Err(Errno::ECHILD) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Lets a stopped tracee go on. One that was killed in the meantime is gone, which is reported in its own time.
fn resume(request: libc::c_uint, pid: i32, signal: i32) {
    // SAFETY: these requests take integers, and touch no memory of ours.
    unsafe { libc::ptrace(request, pid, 0, signal) };
}

impl Engine<'_> {
    fn follow(&mut self) -> io::Result<()> {
        let mut ended = false;
        while let Some((pid, status)) = wait(-1, 0)? {
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.tracees.remove(&pid);
                if pid == self.root {
                    ended = true;
                    self.traced.status =
                        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
                }
            } else {
                self.meet(pid);
                self.stopped(pid, status);
            }
            if ended && !self.tracees.values().any(|tracee| tracee.tool.is_some()) {
                self.let_go()?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes in a process that was not known yet: its own stop may be reported before its parent's.
    fn meet(&mut self, pid: i32) {
        if self.tracees.contains_key(&pid) {
            return;
        }
        let parent = parent_of(pid).and_then(|parent| self.tracees.get(&parent));
        let delegate = parent.is_some_and(|p| p.delegate || p.watchdog || p.tool.as_deref() == Some("sweep"));
        let begun = parent.is_some_and(|parent| parent.begun);
        let tool = self.tool(pid);
        self.tracees.insert(pid, Tracee { tool, watchdog: false, delegate, begun, failing: None, step: None });
    }

    /// Which of the tools a process runs.
    fn tool(&self, pid: i32) -> Option<String> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.strip_prefix(self.plan.tools).ok()?.to_str()?;
        Some(name.to_owned())
    }

    fn stopped(&mut self, pid: i32, status: i32) {
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        let mut deliver = 0;
        if signal == libc::SIGTRAP | 0x80 {
            self.called(pid);
        } else if event == libc::PTRACE_EVENT_EXEC {
            let tool = self.tool(pid);
            if let Some(tracee) = self.tracees.get_mut(&pid) {
                tracee.watchdog = tool.as_deref() == Some("watchdog") && !tracee.delegate;
                tracee.tool = tool;
                tracee.begun = false;
            }
        } else if event == libc::PTRACE_EVENT_STOP && signal != libc::SIGTRAP {
            // A group stop: it stays stopped until somebody continues it.
            return resume(libc::PTRACE_LISTEN, pid, 0);
        } else if event == libc::PTRACE_EVENT_FORK
            || event == libc::PTRACE_EVENT_VFORK
            || event == libc::PTRACE_EVENT_CLONE
        {
            if let Ok(child) = ptrace::getevent(Pid::from_raw(pid)) {
                self.meet(i32::try_from(child).unwrap_or(0));
            }
        } else if event == 0 {
            deliver = signal;
        }
        self.doomed.into_iter().filter(|&whom| self.is(pid, whom)).for_each(|_| kill(pid, libc::SIGKILL));
        // Only our tools are stopped at their calls.
        let ours = self.tracees.get(&pid).is_some_and(|tracee| tracee.tool.is_some());
        resume(if ours { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT }, pid, deliver);
    }

    /// A stop at the entry or the exit of a call.
    fn called(&mut self, pid: i32) {
        let Ok(info) = ptrace::syscall_info(Pid::from_raw(pid)) else { return };
        match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: at an entry this member of the union is the one that was written.
                let entry = unsafe { info.u.entry };
                let number = i64::try_from(entry.nr).unwrap_or(-1);
                self.entered(Call { pid, number, args: entry.args });
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: at an exit this member of the union is the one that was written.
                let failed = unsafe { info.u.exit.is_error } != 0;
                self.left(pid, failed);
            }
            _ => {}
        }
    }

    fn entered(&mut self, call: Call) {
        let Some(tracee) = self.tracees.get_mut(&call.pid) else { return };
        if tracee.tool.is_none() {
            return;
        }
        if !tracee.begun {
            tracee.begun = call.ends_start_up();
            return;
        }
        if !call.is_seen() || call.process().is_some_and(|process| self.is_stranger(process)) {
            return;
        }
        if let Some(tracee) = self.tracees.get_mut(&call.pid) {
            tracee.step = step(&call);
        }
        match self.plan.fault {
            None => self.count(&call),
            Some((fault, at)) => self.strike(&call, fault, at),
        }
    }

    /// Whether a process has nothing to do with what runs here.
    fn is_stranger(&mut self, pid: i32) -> bool {
        let Engine { tracees, strangers, plan, .. } = self;
        !tracees.contains_key(&pid) && *strangers.entry(pid).or_insert_with(|| !carries(pid, plan.mark))
    }

    /// Counts for every fault whether it could strike here.
    fn count(&mut self, call: &Call) {
        for fault in Fault::all() {
            if self.can_strike(call, fault) {
                *self.traced.counts.entry(fault.to_string()).or_default() += 1;
            }
        }
    }

    fn can_strike(&self, call: &Call, fault: Fault) -> bool {
        match fault {
            Fault::Kill(whom) => self.tracees.keys().any(|&pid| self.is(pid, whom)),
            Fault::Power { .. } => call.leaves_a_trace(),
            Fault::Fail { errno, .. } => call.may_fail(errno),
        }
    }

    fn strike(&mut self, call: &Call, fault: Fault, at: usize) {
        if let (Some(since), Fault::Fail { lasting: true, .. }) = (self.since, fault)
            && since.elapsed() < LASTS
            && call.number == libc::SYS_ppoll
        {
            shorten(call);
        }
        if !self.can_strike(call, fault) {
            return;
        }
        let count = self.traced.counts.entry(fault.to_string()).or_default();
        *count += 1;
        let lasting = matches!(fault, Fault::Fail { lasting: true, .. });
        if *count != at && !(lasting && self.since.is_some_and(|since| since.elapsed() < LASTS)) {
            return;
        }
        if *count == at {
            let who = self.tracees.get(&call.pid).and_then(|tracee| tracee.tool.clone()).unwrap_or_default();
            let child = self.tracees.get(&call.pid).is_some_and(|tracee| tracee.delegate);
            let of = if child { "'s child" } else { "" };
            self.traced.struck = Some(format!("{who}{of}: {}", call.shown(self.plan.base)));
            self.since = Some(Instant::now());
        }
        match fault {
            Fault::Kill(_) | Fault::Power { .. } => {
                let whom = if let Fault::Kill(whom) = fault { whom } else { Whom::All };
                if let Fault::Power { log } = fault {
                    (self.plan.cut)(log);
                }
                self.doomed = (whom == Whom::All).then_some(whom);
                let doomed: Vec<i32> = self.tracees.keys().copied().filter(|&pid| self.is(pid, whom)).collect();
                self.traced.killed = doomed.contains(&self.root);
                doomed.into_iter().for_each(|pid| kill(pid, libc::SIGKILL));
            }
            Fault::Fail { errno, .. } => {
                if skip(call.pid).is_ok()
                    && let Some(tracee) = self.tracees.get_mut(&call.pid)
                {
                    tracee.failing = Some(errno);
                }
            }
        }
    }

    fn left(&mut self, pid: i32, failed: bool) {
        let Some(tracee) = self.tracees.get_mut(&pid) else { return };
        let step = tracee.step.take();
        if let Some(errno) = tracee.failing.take() {
            let _ = answer(pid, errno);
        } else if let Some(step) = step.filter(|_| !failed) {
            if matches!(step, Step::Named(..)) {
                (self.plan.look)();
            }
            self.traced.steps.push(step);
        }
    }

    fn is(&self, pid: i32, whom: Whom) -> bool {
        let Some(tracee) = self.tracees.get(&pid) else { return false };
        match whom {
            Whom::All => true,
            Whom::Watchdog => tracee.watchdog,
            Whom::Delegate => tracee.delegate,
            // SAFETY: getsid(2) takes and returns integers.
            Whom::Caller => pid == self.root || unsafe { libc::getsid(pid) == libc::getsid(0) },
        }
    }

    /// Leaves the rest to itself: what a fault has orphaned is for the tools to find.
    fn let_go(&mut self) -> io::Result<()> {
        for &pid in self.tracees.keys() {
            let _ = ptrace::interrupt(Pid::from_raw(pid));
        }
        while let Some((pid, status)) = wait(-1, 0)? {
            if libc::WIFSTOPPED(status) {
                let signal = libc::WSTOPSIG(status);
                let sent = status >> 16 == 0 && signal != libc::SIGTRAP | 0x80;
                resume(libc::PTRACE_DETACH, pid, if sent { signal } else { 0 });
            }
        }
        Ok(())
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Makes the present call none at all.
fn skip(pid: i32) -> nix::Result<()> {
    let mut registers = ptrace::getregs(Pid::from_raw(pid))?;
    registers.orig_rax = u64::MAX;
    ptrace::setregs(Pid::from_raw(pid), registers)
}

/// Makes it have failed.
fn answer(pid: i32, errno: Errno) -> nix::Result<()> {
    let mut registers = ptrace::getregs(Pid::from_raw(pid))?;
    registers.rax = i64::from(-(errno as i32)) as u64;
    ptrace::setregs(Pid::from_raw(pid), registers)
}

/// Cuts the wait of a ppoll(2), if it has an end: its time stands in memory, seconds and nanoseconds.
fn shorten(call: &Call) {
    let (pid, time) = (Pid::from_raw(call.pid), call.args[2] as usize);
    if time == 0 {
        return;
    }
    let word = |at: usize| ptrace::read(pid, (time + at) as ptrace::AddressType).unwrap_or(0);
    if word(0) > 0 || word(8) > SHORT {
        let _ = ptrace::write(pid, time as ptrace::AddressType, 0);
        let _ = ptrace::write(pid, (time + 8) as ptrace::AddressType, SHORT);
    }
}

/// What a call does to the order of things; it counts once it has succeeded.
fn step(call: &Call) -> Option<Step> {
    match call.number {
        libc::SYS_fsync | libc::SYS_fdatasync => Some(Step::Synced(call.path()?)),
        libc::SYS_flock if call.args[1] & libc::LOCK_UN as u64 == 0 => {
            let info = fs::read_to_string(format!("/proc/{}/fdinfo/{}", call.pid, call.args[0] as i32)).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            let writable = i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE != libc::O_RDONLY;
            Some(Step::Locked(call.path()?, call.args[1] & libc::LOCK_EX as u64 != 0, writable))
        }
        libc::SYS_write if call.args[0] == 1 => Some(Step::Said),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_ftruncate => Some(Step::Wrote(call.path()?)),
        libc::SYS_linkat | libc::SYS_renameat | libc::SYS_renameat2 => {
            let from = call.path()?;
            let short = fs::metadata(&from).is_ok_and(|found| found.is_file() && found.len() < 64);
            let text = if short { fs::read_to_string(&from).unwrap_or_default() } else { String::new() };
            Some(Step::Named(from, call.second_path()?, text))
        }
        _ => None,
    }
}
