//! watchdog: run a command, and end it once it falls silent.
//!
//! - Silence is measured, never age: something must keep moving.
//! - Nothing stands between the command and its log.
//! - The whole tree ends with it: TERM, a grace, KILL, until nobody is left.
//! - Exactly one terminal record is written, whatever happens.

#![no_main]

use lexopt::Parser;
use reap::exit::{Fail, Status, say};
use reap::process;
use watchdog::args::{self, Ask};
use watchdog::ready::Ready;
use watchdog::watch;

reap::main!(start);

fn start(words: Parser) -> u8 {
    process::keep_owner_bits();
    match run(words) {
        Ok(status) => status,
        // COMMAND may have a status 2 of its own.
        Err(fail) if fail.status == Status::Usage as u8 => Fail::new(Status::Broken, fail.text).report("watchdog"),
        Err(fail) => fail.report("watchdog"),
    }
}

fn run(words: Parser) -> Result<u8, Fail> {
    match args::parse(words)? {
        Ask::Help => say(include_str!("help.txt")).map(|()| 0),
        Ask::Version => say(concat!("watchdog ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| 0),
        Ask::Run(args) => watch::until_done(&args, Ready::take()),
    }
}
