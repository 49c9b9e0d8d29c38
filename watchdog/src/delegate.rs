//! Starts the command: clean, in a session of its own where it is a job's, and tied to our life.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use detach::exec::{Prepared, Refusal, clean_signals};
use nix::errno::Errno;
use nix::fcntl::OFlag;
#[cfg(not(all(target_os = "linux", not(portable))))]
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::getpid;
use reap::exit::Fail;

use crate::bell::unheard;
use crate::contain::{self, House, Pair, Report, Step};

/// What the command gets.
pub struct Setting<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Changes to the environment.
    pub environment: &'a [(&'static str, Option<OsString>)],
    /// Standard input, output and error; `None`: ours.
    pub streams: [Option<BorrowedFd<'a>>; 3],
    /// A session of its own.
    pub session: bool,
    /// A pid namespace of its own.
    pub contain: bool,
    /// What came to us and is the command's.
    pub inherited: &'a Inherited,
}

/// A command between its fork and its exec.
pub struct Starting {
    /// Its pid; that of its namespace's first process where it has one.
    pub pid: i32,
    /// Where that process tells of the command's end.
    pub report: Option<Report>,
    /// What the command has to do without.
    pub missing: Option<String>,
    prepared: Prepared,
    told: File,
}

/// Forks, and leaves the exec to be waited for: it may take as long as the file system that holds the command.
pub fn start(setting: &Setting<'_>) -> Result<Starting, Fail> {
    let prepared = Prepared::new(setting.command, setting.environment).map_err(refused)?;
    let cannot = |verb: &str, e: Errno| Fail::cannot(verb, "the command", &e.into());
    let (told, pipe) = nonblocking().map_err(|e| cannot("start", e))?;
    let parent = getpid().as_raw();
    let mut house = setting.contain.then(House::new).transpose()?;
    let pid = match &mut house {
        Some(house) => house.fork()?,
        // The child shares the job's lock until its exec: if we are killed in between, nobody takes the job for dead
        // while its command may still begin.
        // SAFETY: the process has one thread, and the child makes system calls only until its exec.
        None => Errno::result(unheard(|| unsafe { libc::fork() })).map_err(|e| cannot("fork for", e))?,
    };
    match &house {
        _ if pid > 0 => {
            Ok(Starting { pid, report: house.map(House::report), missing: None, prepared, told: File::from(told) })
        }
        // In the namespace the first process is the parent.
        Some(house) => house
            .keep([told.as_raw_fd(), pipe.as_raw_fd()], setting.session, &mut || become_command(setting, &prepared, 1)),
        None => {
            contain::tell(pipe.as_raw_fd(), Step::Exec, become_command(setting, &prepared, parent));
            // SAFETY: _exit(2) ends the process here.
            unsafe { libc::_exit(125) }
        }
    }
}

/// A pipe that goes no further than an exec, and never waits.
pub fn nonblocking() -> Result<(OwnedFd, OwnedFd), Errno> {
    #[cfg(all(target_os = "linux", not(portable)))]
    return nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK);
    #[cfg(not(all(target_os = "linux", not(portable))))]
    {
        let ends = nix::unistd::pipe()?;
        for end in [&ends.0, &ends.1] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(ends)
    }
}

impl Starting {
    /// Readable when there is something to take in: the exec has succeeded or failed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// Takes in what was told so far, and says whether the command runs; the failure is its refusal, or that it could not be
    /// contained. Its zombie is left to the caller.
    pub fn has_begun(&mut self) -> Result<bool, Fail> {
        let mut told = Pair::default();
        match self.told.read_exact(&mut told) {
            Ok(()) => {}
            // The exec has closed the pipe.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            // Nothing yet; and a pipe that cannot be read just now tells it later.
            Err(_) => return Ok(false),
        }
        match Step::read(told) {
            (Step::Exec, errno) => Err(refused(self.prepared.refusal(errno, None))),
            (Step::Proc, errno) => {
                self.missing = Some(format!("{}; it sees the numbers of outside", Step::Proc.fail(errno).text));
                Ok(false)
            }
            (step, errno) => Err(step.fail(errno)),
        }
    }
}

fn refused(refusal: Refusal) -> Fail {
    Fail { status: refusal.status, text: refusal.text }
}

/// In the child. Returns only when it cannot become the command.
fn become_command(setting: &Setting<'_>, prepared: &Prepared, parent: i32) -> Errno {
    // SAFETY: setsid(2), prctl(2) and getppid(2) touch no memory of ours.
    unsafe {
        if setting.session {
            libc::setsid();
        }
        #[cfg(all(target_os = "linux", not(portable)))]
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        // Our parent may have died before the request for its death's signal.
        if libc::getppid() != parent {
            libc::_exit(125);
        }
    }
    // Descriptors 0 to 2 may be among the sources, so they are moved out of the way first: a stream of
    // number 1 would be lost when 0's turn comes to overwrite it.
    let mut moved = [-1; 3];
    for (to, stream) in moved.iter_mut().zip(&setting.streams) {
        if let Some(stream) = stream {
            // SAFETY: fcntl(2) with three integers.
            match Errno::result(unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) }) {
                Ok(fd) => *to = fd,
                Err(e) => return e,
            }
        }
    }
    for (number, &from) in (0..).zip(&moved).filter(|&(_, &from)| from >= 0) {
        // SAFETY: dup2(2) with two integers; what 0 to 2 were is inherited and nobody's property here.
        if let Err(e) = Errno::result(unsafe { libc::dup2(from, number) }) {
            return e;
        }
    }
    setting.inherited.restore();
    clean_signals();
    prepared.exec()
}

/// What came to us and is the command's: the limit of a file's size (RLIMIT_FSIZE), which we raise as far as it goes,
/// since a record must get out, and the umask.
pub struct Inherited {
    file_size: Option<(rlim_t, rlim_t)>,
    umask: Option<libc::mode_t>,
}

impl Inherited {
    /// Keeps it, and changes ours.
    pub fn keep() -> Inherited {
        let file_size = getrlimit(Resource::RLIMIT_FSIZE).ok();
        if let Some((_, hard)) = file_size {
            let _ = setrlimit(Resource::RLIMIT_FSIZE, hard, hard);
        }
        Inherited { file_size, umask: reap::process::callers_umask() }
    }

    /// Gives it back, in the child.
    pub fn restore(&self) {
        if let Some((soft, hard)) = self.file_size {
            let _ = setrlimit(Resource::RLIMIT_FSIZE, soft, hard);
        }
        if let Some(mask) = self.umask {
            // SAFETY: umask(2) takes an integer and cannot fail.
            unsafe { libc::umask(mask) };
        }
    }
}
