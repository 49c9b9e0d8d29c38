//! jobdir: claim a job's directory, and read and write what is in it.
//!
//! - A claim is one rename: nobody sees half of it, and a given id is claimed once.
//! - What is read is settled first: a dead job says so, to every reader alike.
//! - Waiting ends in time, and "not yet" never looks like "failed".
//! - Nothing is believed that is not safely ours: no link is followed, no FIFO blocks.

#![no_main]

use jobdir::args::{self, Ask};
use lexopt::Parser;
use reap::exit::{Fail, Status, say};
use reap::process;

mod verbs;

reap::main!(start);

fn start(words: Parser) -> u8 {
    process::survive_file_limits();
    process::keep_owner_bits();
    match run(words) {
        Ok(status) => status as u8,
        Err(fail) => fail.report("jobdir"),
    }
}

fn run(words: Parser) -> Result<Status, Fail> {
    match args::parse(words, verbs::own_job().is_some())? {
        Ask::Help => say(include_str!("help.txt")).map(|()| Status::Done),
        Ask::Version => say(concat!("jobdir ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| Status::Done),
        Ask::Run(root, verb) => verbs::run(root, verb),
    }
}
