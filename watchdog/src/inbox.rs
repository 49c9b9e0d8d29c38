//! Signals, read from a descriptor: signalfd(2); elsewhere a pipe that handlers write to.

#[cfg(all(target_os = "linux", not(portable)))]
pub use linux::*;
#[cfg(not(all(target_os = "linux", not(portable))))]
pub use portable::*;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    use nix::sys::signal::SigSet;
    use nix::sys::signalfd::{SfdFlags, SignalFd};

    /// The signals that have come.
    pub struct Inbox(SignalFd);

    impl Inbox {
        /// Those of the set, which are blocked.
        pub fn of(set: &SigSet) -> io::Result<Inbox> {
            Ok(Inbox(SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
        }

        /// Readable when there is one.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        /// The next one.
        pub fn next(&self) -> Option<i32> {
            self.0.read_signal().ok().flatten().and_then(|info| i32::try_from(info.ssi_signo).ok())
        }
    }

    /// A fork in whose child no signal is taken for one of ours.
    pub fn unheard(fork: impl FnOnce() -> i32) -> i32 {
        fork()
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod portable {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use std::sync::atomic::{AtomicI32, Ordering};

    use nix::errno::Errno;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, sigaction, sigprocmask};

    /// Where the handler writes.
    static PIPE: AtomicI32 = AtomicI32::new(-1);

    extern "C" fn hear(signal: libc::c_int) {
        let errno = Errno::last();
        let number = [u8::try_from(signal).unwrap_or(0)];
        // SAFETY: write(2) of a local byte to a pipe that never waits. Where it is full, enough has been heard.
        unsafe { libc::write(PIPE.load(Ordering::Relaxed), number.as_ptr().cast(), 1) };
        errno.set();
    }

    /// The signals that have come.
    pub struct Inbox {
        out: OwnedFd,
        _into: OwnedFd,
    }

    impl Inbox {
        /// Those of the set, which are blocked no longer.
        pub fn of(set: &SigSet) -> io::Result<Inbox> {
            let (out, into) = crate::delegate::nonblocking()?;
            PIPE.store(into.as_raw_fd(), Ordering::Relaxed);
            // What is under way goes on after a signal: only a wait is meant to end.
            let action = SigAction::new(SigHandler::Handler(hear), SaFlags::SA_RESTART, SigSet::empty());
            for signal in set {
                // SAFETY: the handler makes one system call, and leaves errno as it was.
                unsafe { sigaction(signal, &action) }?;
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(Inbox { out, _into: into })
        }

        /// Readable when there is one.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.out.as_fd()
        }

        /// The next one.
        pub fn next(&self) -> Option<i32> {
            let mut number = [0];
            (nix::unistd::read(&self.out, &mut number) == Ok(1)).then(|| number[0].into())
        }
    }

    /// A fork in whose child no signal is taken for one of ours: they wait there until they mean what they always did.
    pub fn unheard(fork: impl FnOnce() -> i32) -> i32 {
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let child = fork();
        if child != 0 {
            let _ = mask.map(|mask| mask.thread_set_mask());
        }
        child
    }
}
