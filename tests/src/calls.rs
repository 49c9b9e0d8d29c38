//! One system call of a traced process: what it is called, what it is about, which errors it may really give.
//!
//! Four kinds of calls are no points. Nothing outside of the process can tell whether the first three happened: a kill
//! before one of them is a kill before the next call that does something.
//! - Start-up: everything from execve(2) to the end of `reap::start`, see [`Call::ends_start_up`].
//! - Memory and the process's own state: mmap, brk, sigaction, getpid and their like ([`QUIET`]). A failed
//!   allocation aborts, which is a kill.
//! - `fcntl(F_GETFD)`: a debug build of std asks so before each close.
//! - Looks at processes that have nothing to do with the job ([`Call::process`]): a process table has hundreds of them,
//!   and they would be nearly all points there are, and all the same.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// A call at its entry.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Who makes it.
    pub pid: i32,
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// What a call's arguments name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Nothing to show.
    Nothing,
    /// A descriptor.
    Fd,
    /// A path.
    Path,
    /// A directory's descriptor and a path.
    At,
    /// Two of those.
    AtAt,
}

/// The calls that our tools make.
const KNOWN: &[(i64, &str, Names)] = &[
    (libc::SYS_access, "access", Names::Path),
    (libc::SYS_chdir, "chdir", Names::Path),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", Names::Nothing),
    (libc::SYS_clone, "clone", Names::Nothing),
    (libc::SYS_clone3, "clone3", Names::Nothing),
    (libc::SYS_close, "close", Names::Fd),
    (libc::SYS_close_range, "close_range", Names::Nothing),
    (libc::SYS_copy_file_range, "copy_file_range", Names::Fd),
    (libc::SYS_dup, "dup", Names::Fd),
    (libc::SYS_dup2, "dup2", Names::Fd),
    (libc::SYS_dup3, "dup3", Names::Fd),
    (libc::SYS_execve, "execve", Names::Path),
    (libc::SYS_exit_group, "exit_group", Names::Nothing),
    (libc::SYS_fallocate, "fallocate", Names::Fd),
    (libc::SYS_fcntl, "fcntl", Names::Fd),
    (libc::SYS_fdatasync, "fdatasync", Names::Fd),
    (libc::SYS_flock, "flock", Names::Fd),
    (libc::SYS_fork, "fork", Names::Nothing),
    (libc::SYS_fstat, "fstat", Names::Fd),
    (libc::SYS_fsync, "fsync", Names::Fd),
    (libc::SYS_ftruncate, "ftruncate", Names::Fd),
    (libc::SYS_getdents64, "getdents64", Names::Fd),
    (libc::SYS_inotify_add_watch, "inotify_add_watch", Names::Nothing),
    (libc::SYS_inotify_init1, "inotify_init1", Names::Nothing),
    (libc::SYS_ioctl, "ioctl", Names::Fd),
    (libc::SYS_kill, "kill", Names::Nothing),
    (libc::SYS_linkat, "linkat", Names::AtAt),
    (libc::SYS_lseek, "lseek", Names::Fd),
    (libc::SYS_memfd_create, "memfd_create", Names::Nothing),
    (libc::SYS_mkdir, "mkdir", Names::Path),
    (libc::SYS_mkdirat, "mkdirat", Names::At),
    (libc::SYS_nanosleep, "nanosleep", Names::Nothing),
    (libc::SYS_newfstatat, "newfstatat", Names::At),
    (libc::SYS_open, "open", Names::Path),
    (libc::SYS_openat, "openat", Names::At),
    (libc::SYS_pidfd_open, "pidfd_open", Names::Nothing),
    (libc::SYS_pidfd_send_signal, "pidfd_send_signal", Names::Nothing),
    (libc::SYS_pipe2, "pipe2", Names::Nothing),
    (libc::SYS_poll, "poll", Names::Nothing),
    (libc::SYS_ppoll, "ppoll", Names::Nothing),
    (libc::SYS_prctl, "prctl", Names::Nothing),
    (libc::SYS_pread64, "pread64", Names::Fd),
    (libc::SYS_prlimit64, "prlimit64", Names::Nothing),
    (libc::SYS_pwrite64, "pwrite64", Names::Fd),
    (libc::SYS_read, "read", Names::Fd),
    (libc::SYS_readlink, "readlink", Names::Path),
    (libc::SYS_readlinkat, "readlinkat", Names::At),
    (libc::SYS_renameat, "renameat", Names::AtAt),
    (libc::SYS_renameat2, "renameat2", Names::AtAt),
    (libc::SYS_sendfile, "sendfile", Names::Fd),
    (libc::SYS_setsid, "setsid", Names::Nothing),
    (libc::SYS_signalfd4, "signalfd4", Names::Nothing),
    (libc::SYS_splice, "splice", Names::Fd),
    (libc::SYS_statx, "statx", Names::At),
    (libc::SYS_unlink, "unlink", Names::Path),
    (libc::SYS_unlinkat, "unlinkat", Names::At),
    (libc::SYS_utimensat, "utimensat", Names::At),
    (libc::SYS_vfork, "vfork", Names::Nothing),
    (libc::SYS_wait4, "wait4", Names::Nothing),
    (libc::SYS_waitid, "waitid", Names::Nothing),
    (libc::SYS_write, "write", Names::Fd),
    (libc::SYS_writev, "writev", Names::Fd),
];

/// Calls that nobody but the process itself can see.
const QUIET: &[i64] = &[
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_uname,
];

impl Call {
    fn known(&self) -> Option<(&'static str, Names)> {
        KNOWN.iter().find(|known| known.0 == self.number).map(|known| (known.1, known.2))
    }

    /// Its name; the number where we have none.
    pub fn name(&self) -> String {
        self.known().map_or_else(|| format!("call {}", self.number), |(name, _)| name.to_owned())
    }

    /// The last call of `reap::start`: SIGPIPE is ignored.
    pub fn ends_start_up(&self) -> bool {
        self.number == libc::SYS_rt_sigaction && self.args[0] == libc::SIGPIPE as u64 && self.args[1] != 0
    }

    /// Whether anybody but its own process can tell that it happened.
    pub fn is_seen(&self) -> bool {
        let asks = self.number == libc::SYS_fcntl && self.args[1] == libc::F_GETFD as u64;
        !asks && !QUIET.contains(&self.number)
    }

    /// Whether a disk or somebody outside may look different after it: a power cut before any other call is one before
    /// the next of these.
    pub fn leaves_a_trace(&self) -> bool {
        match self.number {
            libc::SYS_openat => self.args[2] & libc::O_CREAT as u64 != 0,
            libc::SYS_write | libc::SYS_pwrite64 => self.path().is_some_and(|path| !path.starts_with("/proc")),
            libc::SYS_copy_file_range
            | libc::SYS_exit_group
            | libc::SYS_fallocate
            | libc::SYS_fdatasync
            | libc::SYS_fsync
            | libc::SYS_ftruncate
            | libc::SYS_linkat
            | libc::SYS_mkdir
            | libc::SYS_mkdirat
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_utimensat
            | libc::SYS_writev => true,
            _ => false,
        }
    }

    /// The process that a file in /proc tells of.
    pub fn process(&self) -> Option<i32> {
        self.path()?.strip_prefix("/proc").ok()?.components().next()?.as_os_str().to_str()?.parse().ok()
    }

    /// What the descriptor in an argument stands for.
    fn fd(&self, at: usize) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/fd/{}", self.pid, self.args[at] as i32)).ok()
    }

    fn text(&self, at: usize) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        let mut bytes = [0; 4096];
        // Up to the end of a page at a time: the next one may not be there.
        let mut length = 0;
        while length < bytes.len() && !bytes[..length].contains(&0) {
            let from = self.args[at] + length as u64;
            let page = (4096 - from % 4096) as usize;
            let end = bytes.len().min(length + page);
            length += memory.read_at(&mut bytes[length..end], from).ok().filter(|&read| read > 0)?;
        }
        let end = bytes.iter().position(|&b| b == 0)?;
        Some(Path::new(std::ffi::OsStr::from_bytes(&bytes[..end])).to_owned())
    }

    fn at(&self, dir: usize, path: usize) -> Option<PathBuf> {
        let path = match self.args[path] {
            // utimensat of a descriptor itself has no path.
            0 => PathBuf::new(),
            _ => self.text(path)?,
        };
        if path.is_absolute() {
            return Some(path);
        }
        let dir = match self.args[dir] as i32 {
            libc::AT_FDCWD => fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?,
            _ => self.fd(dir)?,
        };
        Some(if path.as_os_str().is_empty() { dir } else { dir.join(path) })
    }

    /// The file that it is about.
    pub fn path(&self) -> Option<PathBuf> {
        match self.known()?.1 {
            Names::Nothing => None,
            Names::Fd => self.fd(0),
            Names::Path => self.text(0),
            Names::At | Names::AtAt => self.at(0, 1),
        }
    }

    /// The second one, of a link or a rename.
    pub fn second_path(&self) -> Option<PathBuf> {
        (self.known()?.1 == Names::AtAt).then(|| self.at(2, 3)).flatten()
    }

    /// As it is shown: the name, and the paths below `base` where there are any.
    pub fn shown(&self, base: &Path) -> String {
        let short = |path: PathBuf| path.strip_prefix(base).map_or(path.clone(), Path::to_owned).display().to_string();
        let paths: Vec<String> = self.path().into_iter().chain(self.second_path()).map(short).collect();
        let what = match self.number {
            libc::SYS_flock => format!(", {}", self.args[1]),
            libc::SYS_kill => format!("{}, {}", self.args[0] as i32, self.args[1]),
            _ => String::new(),
        };
        format!("{}({}{what})", self.name(), paths.join(" -> "))
    }

    /// Whether the call may give this error in the world: by its man page, and by what it is about.
    pub fn may_fail(&self, errno: Errno) -> bool {
        use Errno::{EACCES, EAGAIN, EDQUOT, EINTR, EIO, EMFILE, ENOMEM, ENOSPC, EPERM, EROFS, ESTALE};
        let path = || self.path().unwrap_or_default();
        // Files of the kernel are on no disk.
        let on_disk = || {
            let path = path();
            path.is_absolute()
                && !path.starts_with("/proc")
                && !path.starts_with("/sys")
                && path != Path::new("/dev/null")
        };
        let waits = || {
            let path = path();
            let path = path.to_string_lossy();
            path.starts_with("pipe:") || path.starts_with("anon_inode:") || path.starts_with("socket:")
        };
        let flags = |at: usize| self.args[at] as i32;
        // Anybody may read what of it we read.
        let of_kernel = || ["/proc", "/sys"].iter().any(|at| path().starts_with(at));
        // fstat(3) and fstatx look at what is open: no path is walked, and nothing can be forbidden.
        let open = || self.text(1).is_none_or(|path| path.as_os_str().is_empty());
        match self.known().map_or("", |(name, _)| name) {
            "open" | "openat" => {
                let flags = flags(if self.number == libc::SYS_open { 1 } else { 2 });
                let creates = flags & libc::O_CREAT != 0;
                let writes = creates || flags & libc::O_ACCMODE != libc::O_RDONLY;
                match errno {
                    EMFILE | ENOMEM => true,
                    EACCES => !of_kernel(),
                    EIO | ESTALE | EINTR => on_disk(),
                    EROFS | EPERM => writes && on_disk(),
                    ENOSPC | EDQUOT => creates && on_disk(),
                    _ => false,
                }
            }
            "mkdir" | "mkdirat" | "linkat" | "renameat" | "renameat2" => {
                matches!(errno, EIO | ENOSPC | EDQUOT | EROFS | ENOMEM | EACCES | EPERM | ESTALE)
            }
            "unlink" | "unlinkat" => matches!(errno, EIO | EROFS | ENOMEM | EACCES | EPERM | ESTALE),
            "newfstatat" | "statx" if open() => matches!(errno, EIO | ESTALE) && on_disk(),
            "access" | "readlink" | "readlinkat" | "chdir" | "newfstatat" | "statx" => match errno {
                ENOMEM => true,
                EACCES => !of_kernel(),
                EIO | ESTALE => on_disk(),
                _ => false,
            },
            "fstat" => matches!(errno, EIO | ESTALE) && on_disk(),
            "getdents64" => matches!(errno, EIO | ESTALE) && on_disk(),
            "read" | "pread64" => match errno {
                EIO | ESTALE => on_disk(),
                EINTR => waits(),
                _ => false,
            },
            // What is said on standard error is the report of another fault.
            "write" | "writev" if self.args[0] == 2 => false,
            "write" | "writev" | "pwrite64" | "copy_file_range" | "sendfile" | "splice" => match errno {
                EIO | ENOSPC | EDQUOT | ESTALE => on_disk(),
                EINTR => waits(),
                _ => false,
            },
            "fsync" | "fdatasync" => matches!(errno, EIO | ENOSPC | EDQUOT | EROFS | ESTALE | EINTR),
            "ftruncate" => matches!(errno, EIO | EROFS | EPERM | ESTALE | EINTR),
            "fallocate" => matches!(errno, EIO | ENOSPC | EDQUOT | EROFS | EPERM | EINTR),
            "utimensat" => matches!(errno, EIO | EROFS | EACCES | EPERM | ESTALE),
            "flock" => match errno {
                // Somebody else has it.
                EAGAIN => flags(1) & libc::LOCK_NB != 0 && flags(1) & libc::LOCK_UN == 0,
                EINTR => flags(1) & (libc::LOCK_NB | libc::LOCK_UN) == 0,
                _ => false,
            },
            "clone" | "clone3" | "fork" | "vfork" => matches!(errno, EAGAIN | ENOMEM),
            "execve" => matches!(errno, EACCES | EPERM | EIO | ENOMEM | EAGAIN | ESTALE),
            "dup" | "dup2" | "dup3" | "pipe2" => errno == EMFILE,
            "fcntl" => errno == EMFILE && [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&flags(1)),
            "memfd_create" | "inotify_init1" | "signalfd4" | "pidfd_open" => matches!(errno, EMFILE | ENOMEM),
            "inotify_add_watch" => matches!(errno, EACCES | ENOMEM | ENOSPC),
            "kill" | "pidfd_send_signal" => errno == EPERM,
            "prlimit64" => errno == EPERM && self.args[2] != 0,
            "setsid" => errno == EPERM,
            "poll" | "ppoll" => matches!(errno, EINTR | ENOMEM),
            "nanosleep" | "clock_nanosleep" => errno == EINTR,
            "wait4" => errno == EINTR && flags(2) & libc::WNOHANG == 0,
            "waitid" => errno == EINTR && flags(3) & libc::WNOHANG == 0,
            _ => false,
        }
    }
}
