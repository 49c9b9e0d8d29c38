//! soak: lets jobs come and go while something random is killed, and looks whether any promise breaks.
//!
//!     soak MINUTES [SEED]
//!
//! - Time goes by in rounds of a fresh root each, so that nothing grows with it. A round draws its moves from its
//!   seed: what is started, and what is killed, by kind and by place. The next round's seed is the next number.
//! - At the end of a round all that still runs comes to its end, one sweep follows, and every promise is asked for.
//! - Prints a line for each round and each violation, and the totals. Exit status 1 where anything was violated.
//!
//! `soak 1 SEED` plays the moves of a round again. They are the same ones in the same order; what each of them meets
//! is up to the kernel's scheduler, so a violation may take several goes to come back.

use std::process::ExitCode;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod play;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod round;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> ExitCode {
    play::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "soak: skipped: its invariants are those of the fault walk, Linux on x86_64");
    ExitCode::SUCCESS
}
