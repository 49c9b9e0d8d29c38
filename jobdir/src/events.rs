//! Changes in directories, told by the kernel: inotify(7). Elsewhere, and without the /proc by which a directory that is
//! open gets a name, nothing is told, and whoever waits has to look.

use std::io;
use std::os::fd::BorrowedFd;

/// What is waited for in a directory.
#[derive(Clone, Copy)]
pub enum Of {
    /// The directory itself is moved away, or removed.
    Itself,
    /// A name arrives in it, or it goes itself.
    Names,
    /// A file's times change.
    Times,
}

#[cfg(all(target_os = "linux", not(portable)))]
pub use linux::*;
#[cfg(not(all(target_os = "linux", not(portable))))]
pub use nowhere::*;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux {
    use std::os::fd::{AsFd, AsRawFd};

    use nix::errno::Errno;
    use nix::fcntl::OFlag;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
    use nix::unistd::{ForkResult, fork, pipe2};

    use super::{BorrowedFd, Of, io};

    /// One watch.
    pub type Mark = WatchDescriptor;

    /// A descriptor of events.
    pub struct Events(Inotify);

    impl Events {
        /// A fresh one; `None` where nothing is told.
        pub fn new() -> io::Result<Option<Events>> {
            Ok(Some(Events(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?)))
        }

        /// Begins to watch.
        pub fn add(&self, dir: BorrowedFd<'_>, name: &str, of: Of) -> io::Result<Mark> {
            let gone = AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
            let flags = match of {
                Of::Itself => gone,
                Of::Names => gone | AddWatchFlags::IN_MOVED_TO,
                Of::Times => AddWatchFlags::IN_ATTRIB,
            };
            let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
            Ok(self.0.add_watch(path.as_str(), flags)?)
        }

        /// Watches no longer. What is gone is not watched any more in any case.
        pub fn remove(&self, mark: Mark) {
            let _ = self.0.rm_watch(mark);
        }

        /// Readable when something has happened.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        /// Takes what has happened as seen.
        pub fn clear(&self) -> io::Result<()> {
            match self.0.read_events() {
                Ok(_) | Err(Errno::EAGAIN) => Ok(()),
                Err(e) => Err(e.into()),
            }
        }

        /// Ends the watch of a process that is about to end. To close an inotify descriptor takes the kernel 15 ms, in
        /// which our caller would wait: so a child holds it until we are gone, and waits in our place.
        pub fn leave(self) {
            let Ok((until, held)) = pipe2(OFlag::O_CLOEXEC) else { return };
            // SAFETY: this process has one thread, and the child makes system calls only.
            match unsafe { fork() } {
                // Then it is ours to wait.
                Err(_) => {}
                Ok(ForkResult::Parent { .. }) => std::mem::forget((self.0, held)),
                // Nobody must wait for the child: it holds nothing of ours, and the pipe ends with its last writer, which
                // is the parent.
                // SAFETY: plain numbers of descriptors, and an end without anything that belongs to the parent.
                Ok(ForkResult::Child) => unsafe {
                    libc::close(held.as_raw_fd());
                    libc::dup2(until.as_raw_fd(), 0);
                    libc::dup2(self.0.as_fd().as_raw_fd(), 1);
                    libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
                    libc::read(0, [0_u8; 1].as_mut_ptr().cast(), 1);
                    libc::_exit(0)
                },
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod nowhere {
    #![allow(missing_docs)]
    use super::{BorrowedFd, Of, io};

    pub type Mark = i32;

    /// Nobody has one.
    pub enum Events {}

    impl Events {
        pub fn new() -> io::Result<Option<Events>> {
            Ok(None)
        }

        pub fn add(&self, _: BorrowedFd<'_>, _: &str, _: Of) -> io::Result<Mark> {
            match *self {}
        }

        pub fn remove(&self, _: Mark) {
            match *self {}
        }

        pub fn fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }

        pub fn clear(&self) -> io::Result<()> {
            match *self {}
        }

        pub fn leave(self) {
            match self {}
        }
    }
}
