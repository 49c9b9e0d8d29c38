//! The machine we run on: which boot, which host, which pid namespace, and its clocks.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The kernel's random id of this boot (random(4)); `None` where there is none.
pub fn boot_id() -> io::Result<Option<String>> {
    first_word("/proc/sys/kernel/random/boot_id")
}

/// The id of this installation (machine-id(5)); `None` where there is none.
pub fn machine_id() -> io::Result<Option<String>> {
    first_word("/etc/machine-id")
}

fn first_word(path: &str) -> io::Result<Option<String>> {
    let mut line = [0; 64];
    match File::open(path).and_then(|mut file| file.read(&mut line)) {
        Ok(length) => Ok(String::from_utf8_lossy(&line[..length]).split_whitespace().next().map(str::to_owned)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The host's name, lossily where it is no UTF-8.
pub fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The inode of our pid namespace (namespaces(7)): numbers mean the same only inside one.
/// `None` where there is none to tell of.
pub fn pid_namespace() -> io::Result<Option<u64>> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) => Ok(Some(namespace.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Time since boot without the time that the host has slept. It never steps.
pub fn monotonic() -> Duration {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// Time since the epoch by the wall clock, which may step.
pub fn wall() -> Duration {
    clock(ClockId::CLOCK_REALTIME)
}

/// How long the host has slept since it booted.
pub fn slept() -> Duration {
    clock(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic())
}

fn clock(id: ClockId) -> Duration {
    // clock_gettime(2) fails only for a clock that does not exist; these do since Linux 2.6.39.
    clock_gettime(id).map(Duration::from).unwrap_or_default()
}
