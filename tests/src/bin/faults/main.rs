//! faults: breaks every system call of the five tools, one at a time, and looks whether any promise broke with it.
//!
//!     faults [SCENARIO]… [--fault KIND]… [--on PLACE]… [--stride K [--offset J]] [--workers N] [--list] [-v]
//!
//! - A point is one system call of one command line with one fault at it: `kill-caller`, `kill-watchdog`,
//!   `kill-delegate`, `kill-all`, an error once (`EIO`), an error from then on (`EIO+`), or a power cut (`power`, or `power-log` where
//!   the log of the file system still gets to the disk).
//! - Places are `tmpfs` and `disk`, and for power cuts `ext4` and `xfs`: images that are loop-mounted, which takes root.
//!   Where that cannot be, one line says so and why, and the rest is walked.
//! - Without a stride every point is visited, and each walk goes on until the command ends untouched.
//! - With `--stride K` every K-th point of the whole list is visited, from the J-th on.
//! - Prints one table, each violation, and the totals. Exit status 1 where anything was violated.
//!
//! `$OUTLIVE_BIN` is the folder of the tools; otherwise they are built, and taken from beside this program.
//! The work is done by worker processes, since a tracee belongs to one thread; each keeps to one file system.

use std::process::ExitCode;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod walk;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> ExitCode {
    walk::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "faults: skipped: it knows the registers of Linux on x86_64 alone");
    ExitCode::SUCCESS
}
