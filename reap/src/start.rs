//! How a tool begins: as C's `main`, without what std does before a Rust one.
//!
//! That would be a seventh of the time of a short command: it reads /proc/self/maps for the place of the stack, and
//! prepares a message for its overflow, which the kernel's signal tells as well. What our code rests on is done here.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Makes a function from a parser to an exit status the program; its file says `#![no_main]`.
#[macro_export]
macro_rules! main {
    ($start:path) => {
        // SAFETY: a program has one `main`, and this is its type (POSIX, exec).
        #[unsafe(no_mangle)]
        extern "C" fn main(count: std::ffi::c_int, words: *const *const std::ffi::c_char) -> std::ffi::c_int {
            // SAFETY: these are the arguments that the C library gives.
            let words = unsafe { $crate::start::words(count, words) };
            $crate::start::prepare();
            std::ffi::c_int::from($start(lexopt::Parser::from_args(words)))
        }
    };
}

/// The words of the command line after the program's name. From here, since std has them from glibc alone.
///
/// # Safety
///
/// `words` points at `count` strings, as those of C's `main` do.
pub unsafe fn words(count: c_int, words: *const *const c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: so many there are, says the caller.
    let word = |at| unsafe { CStr::from_ptr(*words.add(at)) };
    (1..count).map(|at| OsStr::from_bytes(word(at).to_bytes()).to_owned()).collect()
}

/// No file of ours may become standard error by taking a free 2, and a write that nobody reads is an error, no death.
pub fn prepare() {
    for standard in 0..=2 {
        // SAFETY: calls with numbers and a constant string. A missing descriptor becomes /dev/null, since all below
        // it are taken by now; without one, messages would go into some file of a job.
        unsafe {
            if libc::fcntl(standard, libc::F_GETFD) == -1 && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1 {
                libc::_exit(125);
            }
        }
    }
    // SAFETY: SIG_IGN is a valid disposition, and no handler is replaced. Whatever is executed gets the default again.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
