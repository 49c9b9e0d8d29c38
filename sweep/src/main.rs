//! sweep: turn jobs that have ended into JSON lines, delivered at least once.
//!
//! - What has died is settled first: silence never looks like success.
//! - A line in a pipe is not delivered; an acknowledgement is a rename, and counts for the claim that it names.
//! - One damaged job never stops the others.
//! - History costs nothing: what is delivered lies elsewhere.

#![no_main]

use lexopt::Parser;
use reap::exit::{Fail, Status, say};
use reap::process;
use sweep::args::{self, Ask};
use sweep::deliver::sweep;

reap::main!(start);

fn start(words: Parser) -> u8 {
    process::survive_file_limits();
    process::keep_owner_bits();
    match run(words) {
        Ok(status) => status as u8,
        Err(fail) => fail.report("sweep"),
    }
}

fn run(words: Parser) -> Result<Status, Fail> {
    match args::parse(words)? {
        Ask::Help => say(include_str!("help.txt")).map(|()| Status::Done),
        Ask::Version => say(concat!("sweep ", env!("CARGO_PKG_VERSION"), "\n")).map(|()| Status::Done),
        Ask::Run(args) => sweep(&args),
    }
}
