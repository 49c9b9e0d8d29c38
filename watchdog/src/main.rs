//! watchdog: run a command, and end it once it falls silent.
//!
//! - Silence is measured, never age: something must keep moving.
//! - Nothing stands between the command and its log.
//! - The whole tree ends with it: TERM, a grace, KILL, until nobody is left.
//! - Exactly one terminal record is written, whatever happens.

use std::process::ExitCode;

use reap::exit::{Fail, Status, say};
use reap::process;
use watchdog::args::{self, Ask};
use watchdog::ready::Ready;
use watchdog::watch;

fn main() -> ExitCode {
    process::keep_owner_bits();
    match run() {
        Ok(status) => ExitCode::from(status),
        // COMMAND may have a status 2 of its own.
        Err(fail) if fail.status == Status::Usage as u8 => Fail::new(Status::Broken, fail.text).report("watchdog"),
        Err(fail) => fail.report("watchdog"),
    }
}

fn run() -> Result<u8, Fail> {
    match args::parse(lexopt::Parser::from_env())? {
        Ask::Help => say(include_str!("help.txt")).map(|()| 0),
        Ask::Version => say(concat!("watchdog ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| 0),
        Ask::Run(args) => watch::until_done(&args, Ready::take()),
    }
}
