//! Says "ready" to whoever started us, by s6's readiness protocol: a newline on the descriptor in `$READY_FD`.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use reap::exit::complain;

/// The variable, which goes no further than here.
pub const VARIABLE: &str = "READY_FD";

/// The descriptor that waits for the newline.
pub struct Ready(File);

impl Ready {
    /// Takes the descriptor that the environment names. To be called before anything is opened: a number
    /// that was closed on the way to us would stand for the first file of ours. `None` where there is none, or where
    /// it is no pipe.
    pub fn take() -> Option<Ready> {
        let value = std::env::var_os(VARIABLE)?;
        let number: Option<i32> = value.to_str().and_then(|text| text.parse().ok());
        let ready = number.filter(|&fd| fd > 2).and_then(Ready::at);
        if ready.is_none() {
            let text = format!("warning: {VARIABLE} is '{}', which is no pipe; nobody is told", value.display());
            complain("watchdog", &text);
        }
        ready
    }

    fn at(number: i32) -> Option<Ready> {
        // SAFETY: nothing was opened yet, so the number is what our caller gave us, or closed: then fstat says so.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = SFlag::from_bits_truncate(fstat(fd).ok()?.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFIFO {
            return None;
        }
        // COMMAND must not have it: it would keep our caller waiting for an end that means nothing.
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
        // SAFETY: it is open, and nobody else in this process knows of it.
        Some(Ready(File::from(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) })))
    }

    /// Says it. A caller that waits no longer changes nothing.
    pub fn say(mut self) {
        let _ = self.0.write_all(b"\n");
    }
}
