//! The machine we run on: which boot, which host, which pid namespace, and its clocks.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::LINUX;

/// The id of this boot: the kernel's random one (random(4)). Where it has none, or hides it, the time of the boot by the
/// wall clock, `at-SECONDS`, which is another one after a step of that clock.
pub fn boot_id() -> io::Result<String> {
    let random = if LINUX { first_word("/proc/sys/kernel/random/boot_id")? } else { session() };
    Ok(random.unwrap_or_else(|| format!("{AT}{}", wall().saturating_sub(clock(SINCE_BOOT)).as_secs())))
}

/// How a boot id starts that is a time.
const AT: &str = "at-";

/// Whether a boot id is a random one: nobody else has it.
pub fn is_random(id: &str) -> bool {
    !id.starts_with(AT)
}

/// Whether two ids of one machine are of one boot; `None` where that cannot be told: one of them is a time, and the
/// clock may have been stepped. Two boots are further apart than two rounded seconds.
pub fn is_same_boot(one: &str, other: &str) -> Option<bool> {
    let time = |id: &str| id.strip_prefix(AT)?.parse::<u64>().ok();
    match (time(one), time(other)) {
        (None, None) => Some(one == other),
        (Some(one), Some(other)) if one.abs_diff(other) <= 2 => Some(true),
        _ => None,
    }
}

/// The random id of a boot of macOS, by its name alone (sysctlbyname(3); XNU's kern_sysctl.c).
#[cfg(target_vendor = "apple")]
fn session() -> Option<String> {
    let mut id = [0_u8; 64];
    let mut length = id.len();
    let name = c"kern.bootsessionuuid".as_ptr();
    // SAFETY: a name that ends with NUL, room with its length, and nothing to be set.
    let got = unsafe { libc::sysctlbyname(name, id.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0) };
    let text = std::ffi::CStr::from_bytes_until_nul(&id).ok().filter(|_| got == 0)?;
    text.to_str().ok().filter(|id| !id.is_empty()).map(str::to_owned)
}

#[cfg(not(target_vendor = "apple"))]
fn session() -> Option<String> {
    None
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
    if !LINUX {
        return Ok(None);
    }
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) => Ok(Some(namespace.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The clock that counts from the boot, sleep included (clock_gettime(2) of each; elsewhere sleep is not told apart).
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::CLOCK_MONOTONIC;

/// The clock that counts only while the host is awake.
#[cfg(not(target_vendor = "apple"))]
const AWAKE: ClockId = ClockId::CLOCK_MONOTONIC;
#[cfg(target_vendor = "apple")]
const AWAKE: ClockId = ClockId::from_raw(libc::CLOCK_UPTIME_RAW);

/// Time since boot without the time that the host has slept. It never steps.
pub fn monotonic() -> Duration {
    clock(AWAKE)
}

/// Time since the epoch by the wall clock, which may step.
pub fn wall() -> Duration {
    clock(ClockId::CLOCK_REALTIME)
}

/// How long the host has slept since it booted.
pub fn slept() -> Duration {
    clock(SINCE_BOOT).saturating_sub(monotonic())
}

fn clock(id: ClockId) -> Duration {
    // clock_gettime(2) fails only for a clock that does not exist; these do since Linux 2.6.39.
    clock_gettime(id).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_told_from_another_where_that_can_be() {
        assert_eq!(is_same_boot("a", "a"), Some(true));
        assert_eq!(is_same_boot("a", "b"), Some(false));
        assert_eq!(is_same_boot("at-100", "at-102"), Some(true));
        assert_eq!(is_same_boot("at-100", "at-103"), None);
        assert_eq!(is_same_boot("at-100", "a"), None);
        assert_eq!(is_same_boot(&boot_id().unwrap(), &boot_id().unwrap()), Some(true));
    }
}
