//! The worker's standard streams, opened before the fork so that errors are told directly.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::args::Args;
use crate::refusal::{Refusal, reason, shown};

const NULL: &str = "/dev/null";

/// The files that become the worker's descriptors 0, 1 and 2.
pub struct Streams {
    input: File,
    output: File,
    error: Option<File>,
}

impl Streams {
    /// Opens what `-i`, `-o` and `-e` name, and /dev/null for the rest.
    pub fn open(args: &Args) -> Result<Streams, Refusal> {
        Ok(Streams {
            input: to_read(args.input.as_deref().unwrap_or(NULL.as_ref()))?,
            output: to_append(args.output.as_deref().unwrap_or(NULL.as_ref()))?,
            error: args.error.as_deref().map(to_append).transpose()?,
        })
    }

    /// Their numbers here, in the order of the numbers that they get in the worker.
    pub fn numbers(&self) -> [RawFd; 3] {
        let error = self.error.as_ref().unwrap_or(&self.output);
        [self.input.as_raw_fd(), self.output.as_raw_fd(), error.as_raw_fd()]
    }
}

fn to_read(path: &Path) -> Result<File, Refusal> {
    open(path, OpenOptions::new().read(true), OFlag::empty())
}

fn to_append(path: &Path) -> Result<File, Refusal> {
    open(path, OpenOptions::new().append(true).create(true), OFlag::O_APPEND)
}

/// Opens without waiting for the other end of a FIFO, which might never come: a FIFO without a writer
/// reads as empty, one without a reader is an error (ENXIO). The worker gets a descriptor that waits.
fn open(path: &Path, options: &mut OpenOptions, flags: OFlag) -> Result<File, Refusal> {
    let failed = |why: String| Refusal::failed(format!("cannot open {}: {why}", shown(path)));
    let options = options.custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| failed(reason(error)))?;
    fcntl(&file, FcntlArg::F_SETFL(flags)).map_err(|errno| failed(reason(errno)))?;
    Ok(file)
}
