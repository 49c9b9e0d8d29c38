//! detach: start a command in a session of its own, and say truthfully whether it started.
//!
//! - Whatever ends the caller (its process group, its session, its tree) does not reach the command.
//! - Nothing of the caller's is held open, so nobody waits for the command by accident.
//! - The command starts clean: no signal ignored or blocked, no terminal, no stray descriptor.
//! - 0 means that the exec has happened, and with `-r` that the command has called itself ready.

#![no_main]

use std::io::{self, Write};

use detach::args::{self, Ask};
use detach::launch;
use detach::refusal::{Refusal, reason, shown};
use lexopt::Parser;

reap::main!(start);

fn start(words: Parser) -> u8 {
    match run(words) {
        Ok(()) => 0,
        Err(refusal) => {
            refusal.report("detach");
            refusal.status
        }
    }
}

fn run(words: Parser) -> Result<(), Refusal> {
    match args::parse(words)? {
        Ask::Help => say(include_str!("help.txt"), "cannot write the help"),
        Ask::Version => say(concat!("detach ", env!("CARGO_PKG_VERSION"), "\n"), "cannot write the version"),
        Ask::Run(args) => {
            let pid = launch::start(&args)?;
            let name = args.command.first().map(shown).unwrap_or_default();
            match args.pid {
                true => say(&format!("{pid}\n"), &format!("started {name} as pid {pid}, but cannot write its pid")),
                false => Ok(()),
            }
        }
    }
}

/// Writes to standard output; a reader that has gone away wants no more, and that is no failure.
fn say(text: &str, failure: &str) -> Result<(), Refusal> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Refusal::failed(format!("{failure}: {}", reason(error))))
        }
        _ => Ok(()),
    }
}
