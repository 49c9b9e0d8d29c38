//! The command in a pid namespace of its own, which the kernel ends as a whole (pid_namespaces(7)).
//!
//! The namespace's first process is a child of ours, and dies of KILL when we die (PR_SET_PDEATHSIG); the kernel then
//! kills every other member, however it hid: no session, no clean environment and no double fork leads out of it.
//! The command is not that first process, for which the kernel ignores every signal that has no handler, but its
//! child. The first process stays what it was forked as: it buries orphans, tells us how the command ended, and goes
//! when nobody is left. TERM it does not feel; the hunt reaches the members below it one by one, as it does without a
//! namespace.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{getegid, geteuid, pipe2};
use reap::exit::{Fail, reason};

use crate::contain::{Report, Step, pair, send, tell};

/// A namespace in the making. All that needs memory is made before the fork.
pub struct House {
    report: Report,
    /// The other end of it.
    end: OwnedFd,
    /// Who we are, as lines of uid_map and gid_map (user_namespaces(7)): inside we are the same.
    ids: [String; 2],
    /// Whether a user namespace was needed.
    mapped: bool,
}

impl House {
    /// Makes ready.
    pub fn new() -> Result<House, Fail> {
        let cannot = |e: Errno| Fail::cannot("contain", "the command", &e.into());
        let (report, end) = pipe2(OFlag::O_CLOEXEC).map_err(cannot)?;
        fcntl(&report, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(cannot)?;
        let ids = [geteuid().as_raw(), getegid().as_raw()].map(|id| format!("{id} {id} 1"));
        Ok(House { report: Report(File::from(report)), end, ids, mapped: false })
    }

    /// fork(2) into the namespace: 0 in its first process. Whoever may not make one alone makes a user namespace with
    /// it, in which everybody may.
    pub fn fork(&mut self) -> Result<i32, Fail> {
        let alone = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
        let forked = match clone(alone) {
            Err(Errno::EPERM) => {
                self.mapped = true;
                clone(alone | libc::CLONE_NEWUSER)
            }
            other => other,
        };
        forked.map_err(|e| {
            let why = match e {
                // So says the kernel at the bounds of /proc/sys/user/max_*_namespaces, and of their depth.
                Errno::ENOSPC | Errno::EUSERS => "no more namespaces are allowed here".to_owned(),
                e => reason(&e.into()),
            };
            Fail::new(reap::exit::Status::Broken, format!("cannot make a pid namespace for the command: {why}"))
        })
    }

    /// The end of the pipe that stays with us.
    pub fn report(self) -> Report {
        self.report
    }

    /// The life of the namespace's first process; makes system calls only. `pipe` waits for the exec, `ours` is the
    /// end of it that only the watchdog may hold; `command` becomes the command.
    pub fn keep(&self, [ours, pipe]: [RawFd; 2], session: bool, command: &mut dyn FnMut() -> Errno) -> ! {
        let give_up = |step, errno| {
            tell(pipe, step, errno);
            // SAFETY: _exit(2) ends the process here.
            unsafe { libc::_exit(125) }
        };
        // SAFETY: prctl(2), close(2), setsid(2) with integers; the descriptors are this process's own copies.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::close(ours);
            libc::close(self.report.0.as_raw_fd());
            if session {
                // Written down as the job's session: everybody in the namespace hangs below this process.
                libc::setsid();
            }
        }
        // The watchdog may have died before the request for its death's signal. Its number means nothing in here; but
        // nobody else reads from the pipe.
        if is_unread(pipe) {
            give_up(Step::Fork, Errno::ECHILD);
        }
        if self.mapped
            && let Err(e) = self.map_ids()
        {
            give_up(Step::Ids, e);
        }
        if let Err(e) = mount_proc() {
            tell(pipe, Step::Proc, e);
        }
        // SAFETY: fork(2) in a process of one thread; the child makes system calls only.
        let child = match Errno::result(unsafe { libc::fork() }) {
            Ok(child) => child,
            Err(e) => give_up(Step::Fork, e),
        };
        if child == 0 {
            give_up(Step::Exec, command());
        }
        // The job's lock, its streams and the caller's pipes are not ours to hold.
        let end = self.end.as_raw_fd();
        detach::exec::close_all_but(&[end]);
        for stream in 0..3 {
            // SAFETY: close(2) of this process's own copies.
            unsafe { libc::close(stream) };
        }
        bury(child, end)
    }

    fn map_ids(&self) -> Result<(), Errno> {
        // Without this, a group that is denied something could be left (CVE-2014-8989): the kernel insists on it.
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.ids[0].as_bytes())?;
        write(c"/proc/self/gid_map", self.ids[1].as_bytes())
    }
}

/// Waits for everybody, tells of the command's end, and goes when nobody is left; whoever is left when we are killed
/// goes with us.
fn bury(command: i32, report: RawFd) -> ! {
    let mut ended = None;
    loop {
        let mut status = 0;
        // Once the command has ended, all that ended with it are buried before a word is said: then it is known
        // whether anybody is left.
        let flags = if ended.is_some() { libc::WNOHANG } else { 0 };
        // SAFETY: waitpid(2) writes one int, and it is ours.
        match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, flags) }) {
            Err(Errno::EINTR) => {}
            Ok(pid) if pid == command => ended = Some(status),
            Ok(pid) if pid > 0 => {}
            last => {
                if let Some(status) = ended.take() {
                    send(report, pair(status, i32::from(last.is_err())));
                }
                if last.is_err() {
                    // SAFETY: _exit(2) ends the process here.
                    unsafe { libc::_exit(0) }
                }
            }
        }
    }
}

/// clone(2) as a fork.
fn clone(flags: i32) -> Result<i32, Errno> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // One architecture has the stack first.
    let [first, second] = if cfg!(target_arch = "s390x") { [0, flags] } else { [flags, 0] };
    // SAFETY: without CLONE_VM and a stack this is fork(2): the child has a copy of everything, and one thread.
    let pid = Errno::result(unsafe { libc::syscall(libc::SYS_clone, first, second, 0, 0, 0) })?;
    i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)
}

/// Puts a /proc of this namespace over the one that is there: in that one our numbers would stand for others. Nothing
/// else of the mount namespace is changed; what is mounted and unmounted outside reaches it as before.
fn mount_proc() -> Result<(), Errno> {
    let none = ptr::null();
    let mount = |source: *const libc::c_char, kind: *const libc::c_char, flags| {
        // SAFETY: pointers to constants that end with NUL, or null where mount(2) ignores them.
        Errno::result(unsafe { libc::mount(source, c"/proc".as_ptr(), kind, flags, ptr::null()) }).map(drop)
    };
    // The new one must not show outside.
    mount(none, none, libc::MS_SLAVE)?;
    let kind = c"proc".as_ptr();
    mount(kind, kind, libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

/// Whether nobody has the reading end of a pipe any more.
fn is_unread(pipe: RawFd) -> bool {
    let mut polled = libc::pollfd { fd: pipe, events: 0, revents: 0 };
    // SAFETY: poll(2) writes to one struct, and it is ours.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 && polled.revents & libc::POLLERR != 0 }
}

fn write(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    // SAFETY: a path that ends with NUL, bytes with their length, and a descriptor of our own.
    unsafe {
        let fd = Errno::result(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = Errno::result(libc::write(fd, text.as_ptr().cast(), text.len()));
        libc::close(fd);
        written.map(drop)
    }
}
