//! One process: what the kernel says of it, and a hold on it that a reused number cannot fool.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::{Mode, umask};

use crate::tree::Table;
use crate::{LINUX, ps};

/// A process: its number and its start time. A pid never travels alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Proc {
    /// The number.
    pub pid: i32,
    /// Clock ticks since boot, field 22 of proc_pid_stat(5); where ps(1) tells it, the digits of its date and time in UTC.
    pub start: u64,
}

/// One line of proc_pid_stat(5): the fields that tell who belongs to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub proc: Proc,
    /// Its parent's pid.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The state letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, …
    pub state: u8,
    /// How many threads it has.
    pub threads: u32,
    /// The command's name, at most 15 bytes of anything.
    pub name: String,
}

impl Stat {
    /// Reads the line. The name may hold spaces, parentheses and line ends, so the last `)` ends it.
    pub fn parse(line: &[u8]) -> Option<Stat> {
        let open = line.iter().position(|&b| b == b'(')?;
        let close = line.iter().rposition(|&b| b == b')')?;
        let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
        let name = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let mut fields = std::str::from_utf8(line.get(close + 1..)?).ok()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let threads = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Stat { proc: Proc { pid, start }, parent, group, session, state, threads, name })
    }

    /// Whether it has ended. A leader that left its other threads behind shows `Z` and lives.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'X' | b'x') || (self.state == b'Z' && self.threads <= 1)
    }

    /// Whether a signal or a terminal has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.state == b'T'
    }
}

/// Room for one such line, which the kernel gives in one read: 52 numbers, and a name of at most 64 bytes.
pub const LINE: usize = 1280;

/// What the kernel says of `pid`; an error where it is gone or hidden.
pub fn stat(pid: i32) -> io::Result<Stat> {
    if !LINUX {
        return ps::one(pid);
    }
    let mut line = [0; LINE];
    let length = fs::File::open(format!("/proc/{pid}/stat"))?.read(&mut line)?;
    Stat::parse(&line[..length]).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// This process.
pub fn me() -> io::Result<Proc> {
    own().map(|stat| stat.proc)
}

fn own() -> io::Result<Stat> {
    if !LINUX || has_proc()? { stat(own_pid()) } else { ps::one(own_pid()) }
}

/// Whether there is a /proc. One of another pid namespace shows strangers by our numbers, as its ps would: an error.
pub fn has_proc() -> io::Result<bool> {
    match fs::read_link("/proc/self") {
        Ok(own) if own.to_str() == Some(&own_pid().to_string()) => Ok(true),
        Ok(_) => Err(io::Error::new(io::ErrorKind::NotFound, "/proc is that of another pid namespace")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// This process's number.
pub fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// This process and everyone above it, from the nearest up: those whom no tool of ours ever signals. An error where
/// there is no process table.
pub fn ancestors() -> io::Result<Vec<i32>> {
    // Where each look costs a ps, one is enough.
    if !LINUX {
        return Ok(Table::read()?.above(own_pid()).map(|stat| stat.proc.pid).collect());
    }
    let mut line = vec![own_pid()];
    let mut parent = own()?.parent;
    while parent > 0 && !line.contains(&parent) {
        line.push(parent);
        parent = stat(parent).map_or(0, |stat| stat.parent);
    }
    Ok(line)
}

/// What processes were started with: the values of one variable.
pub struct StartedWith<'a> {
    name: &'a str,
    /// Of all, where each look costs a ps.
    asked: OnceCell<HashMap<i32, Vec<String>>>,
}

impl StartedWith<'_> {
    /// The variable `name`, as it is found now.
    pub fn new(name: &str) -> StartedWith<'_> {
        StartedWith { name, asked: OnceCell::new() }
    }

    /// Its values when this process was started (proc_pid_environ(5)). What cannot be read (another user's, a process
    /// that is going) had none.
    pub fn of(&self, pid: i32) -> Vec<String> {
        if !LINUX {
            let asked = self.asked.get_or_init(|| ps::started_with(self.name));
            return asked.get(&pid).cloned().unwrap_or_default();
        }
        let mut environment = Vec::new();
        let read = fs::File::open(format!("/proc/{pid}/environ"))
            .and_then(|file| file.take(1 << 22).read_to_end(&mut environment));
        let value = |entry: &[u8]| {
            let value = entry.strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")?;
            String::from_utf8(value.to_vec()).ok()
        };
        read.map(|_| environment.split(|&b| b == 0).filter_map(value).collect()).unwrap_or_default()
    }
}

/// A hold on one process: signals go to it or to nobody.
#[derive(Debug)]
pub struct Pin {
    /// Whom it holds.
    pub proc: Proc,
    /// pidfd_open(2), where the kernel has it and the descriptors suffice.
    fd: Option<OwnedFd>,
}

impl Pin {
    /// Takes hold of a process; `None` where it has ended or its number is somebody else's by now.
    pub fn take(proc: Proc) -> Option<Pin> {
        // Once it is held, the number cannot change hands: if the start time is right now, it stays right.
        Pin::open(proc).filter(|pin| pin.current().is_some_and(|stat| !stat.is_dead()))
    }

    /// The same of one that was listed just now: what cannot be held is known by that listing alone.
    pub fn listed(proc: Proc) -> Option<Pin> {
        Pin::open(proc).filter(|pin| !LINUX || pin.current().is_some_and(|stat| !stat.is_dead()))
    }

    fn open(proc: Proc) -> Option<Pin> {
        let fd = match pidfd_open(proc.pid) {
            // In a crowd some descriptors must stay free, to read the process table with.
            Ok(fd) => (fd.as_raw_fd() < most_pidfds()).then_some(fd),
            Err(Errno::ESRCH) => return None,
            // ENOSYS before Linux 5.3 and elsewhere, EMFILE: the start time is looked at before each signal.
            Err(_) => None,
        };
        Some(Pin { proc, fd })
    }

    /// What the kernel says of it now; `None` where the number is free or somebody else's.
    pub fn current(&self) -> Option<Stat> {
        stat(self.proc.pid).ok().filter(|stat| stat.proc == self.proc)
    }

    /// The descriptor that polls readable once the process has ended.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Sends a signal; `ESRCH` where the process is gone.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        let Some(fd) = &self.fd else {
            self.current().ok_or(Errno::ESRCH)?;
            // SAFETY: kill(2) takes two integers and touches no memory of ours.
            return Errno::result(unsafe { libc::kill(self.proc.pid, signal) }).map(drop);
        };
        pidfd_send_signal(fd.as_fd(), signal)
    }

    /// The same to one that a listing has shown just now: where nothing can be held, that was the look at its start time.
    pub fn signal_listed(&self, signal: i32) -> Result<(), Errno> {
        if LINUX {
            return self.signal(signal);
        }
        // SAFETY: kill(2) takes two integers and touches no memory of ours.
        Errno::result(unsafe { libc::kill(self.proc.pid, signal) }).map(drop)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        match &self.fd {
            Some(fd) => readable(fd.as_fd()),
            None => self.current().is_none_or(|stat| stat.is_dead()),
        }
    }

    /// Waits until it has ended or the deadline is over; `wake` readable ends the wait too. Says whether it has ended.
    pub fn wait(&self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> bool {
        let Some(fd) = self.fd() else {
            if !self.has_ended() {
                std::thread::sleep(left(deadline).min(BLINK));
            }
            return self.has_ended();
        };
        let mut fds: Vec<PollFd> =
            std::iter::once(fd).chain(wake).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = wait_for(&mut fds, Some(deadline));
        fds[0].any().unwrap_or(false)
    }
}

/// How long to sleep between two looks that take no time, at what gives no event.
pub const BLINK: Duration = Duration::from_millis(5);

/// How long to sleep between two looks at what gives no event: a look with ps(1) takes some milliseconds, and a person
/// does not notice what takes longer than that by less than this.
pub const EVENTLESS: Duration = Duration::from_millis(50);

/// How long until the deadline.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Waits for one of the descriptors, or until the moment: never less, and with ppoll(2) not up to a millisecond more.
#[cfg(all(target_os = "linux", not(portable)))]
pub fn wait_for(fds: &mut [PollFd<'_>], until: Option<Instant>) -> nix::Result<i32> {
    nix::poll::ppoll(fds, until.map(|until| left(until).into()), None)
}

/// The same with poll(2), rounded up to its milliseconds.
#[cfg(not(all(target_os = "linux", not(portable))))]
pub fn wait_for(fds: &mut [PollFd<'_>], until: Option<Instant>) -> nix::Result<i32> {
    let millis = |until| PollTimeout::try_from(left(until).as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX);
    poll(fds, until.map_or(PollTimeout::NONE, millis))
}

/// Whether the descriptor can be read without waiting.
pub fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// The soft limit of descriptors, raised as far as it goes while a crowd is held, and put back afterwards: a
/// program that we start later may be built on select(2).
#[derive(Debug)]
pub struct MoreDescriptors(rlim_t, rlim_t);

impl MoreDescriptors {
    /// Raises it; `None` where that is refused.
    pub fn allow() -> Option<MoreDescriptors> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
        Some(MoreDescriptors(soft, hard))
    }
}

/// How many jobs may be dealt with side by side: each takes up to three descriptors, and a dozen are ours.
pub fn side_by_side() -> usize {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    usize::try_from(soft.saturating_sub(12) / 4).unwrap_or(usize::MAX).clamp(1, 1024)
}

/// A file that may not grow any more is an error to report, not a death: SIGXFSZ is ignored.
pub fn survive_file_limits() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The umask as it came to us, once [`keep_owner_bits`] has changed it.
static CALLERS_UMASK: OnceLock<libc::mode_t> = OnceLock::new();

/// Whatever an odd umask takes away, the owner of a job needs the files that we make.
pub fn keep_owner_bits() {
    let mask = umask(Mode::S_IRWXU);
    umask(mask - Mode::S_IRWXU);
    let _ = CALLERS_UMASK.set(mask.bits());
}

/// The umask that our caller gave us, for whatever we start.
pub fn callers_umask() -> Option<libc::mode_t> {
    CALLERS_UMASK.get().copied()
}

impl Drop for MoreDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, self.0, self.1);
    }
}

/// The number from which on descriptors are left free.
fn most_pidfds() -> i32 {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    i32::try_from(soft).unwrap_or(i32::MAX).saturating_sub(8)
}

#[cfg(all(target_os = "linux", not(portable)))]
fn pidfd_open(pid: i32) -> Result<OwnedFd, Errno> {
    use std::os::fd::FromRawFd;
    // SAFETY: pidfd_open(2) takes two integers; a descriptor that it returns is ours alone.
    unsafe {
        let fd = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::EBADF)?))
    }
}

#[cfg(all(target_os = "linux", not(portable)))]
fn pidfd_send_signal(fd: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is an open pidfd, the null siginfo means "as kill(2) would".
    Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, info, 0) }).map(drop)
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn pidfd_open(_: i32) -> Result<OwnedFd, Errno> {
    Err(Errno::ENOSYS)
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn pidfd_send_signal(_: BorrowedFd<'_>, _: i32) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: char, threads: u32) -> String {
        format!(
            "4242 ({name}) {state} 7 8 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 {threads} 0 123456 2236416 241 18446744073709551615"
        )
    }

    #[test]
    fn a_hostile_name_does_not_move_the_fields() {
        for name in ["sleep", "a) Z 1 (b", "", ")", "((", ") R 1 1 1 (", "x\ny", "tab\t"] {
            let stat = Stat::parse(line(name, 'S', 1).as_bytes()).unwrap();
            assert_eq!(stat.proc, Proc { pid: 4242, start: 123_456 });
            assert_eq!((stat.parent, stat.group, stat.session, stat.state), (7, 8, 9, b'S'));
            assert_eq!(stat.name, name);
        }
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_process() {
        let whole = line("x", 'S', 1);
        for end in 0..whole.find("123456").unwrap() {
            assert_eq!(Stat::parse(&whole.as_bytes()[..end]), None, "at {end}");
        }
        assert_eq!(Stat::parse(b"12 (\xff\xfe) S"), None);
    }

    #[test]
    fn a_zombie_is_dead_unless_its_threads_run_on() {
        assert!(Stat::parse(line("x", 'Z', 1).as_bytes()).unwrap().is_dead());
        assert!(!Stat::parse(line("x", 'Z', 3).as_bytes()).unwrap().is_dead());
        assert!(!Stat::parse(line("x", 'T', 1).as_bytes()).unwrap().is_dead());
    }

    #[test]
    fn we_are_the_first_of_our_ancestors_and_pid_1_the_last() {
        let line = ancestors().unwrap();
        assert_eq!(line[0], own_pid());
        assert!(line.len() > 1);
    }

    #[test]
    fn a_pin_with_another_start_time_is_not_taken() {
        let me = me().unwrap();
        assert!(Pin::take(me).is_some());
        assert!(Pin::take(Proc { start: me.start + 1, ..me }).is_none());
    }
}
