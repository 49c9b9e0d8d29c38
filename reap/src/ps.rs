//! The process table by ps(1), for systems without a /proc.
//!
//! One call with what procps, macOS and the BSDs have in common. POSIX has no start time; all of these have `lstart`,
//! in whole seconds and in the clock's own time. Where the clock is stepped, some count every start anew: then a process
//! looks like another one, which is signalled by nobody who remembers the first.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getsid};

use crate::process::{Proc, Stat, own_pid};

/// Where it is, whatever PATH we were given.
const PLACES: [&str; 2] = ["/bin/ps", "/usr/bin/ps"];

/// What is asked of each; POSIX takes one column with an empty header at a time.
const COLUMNS: [&str; 12] =
    ["-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o", "lstart=", "-o", "ucomm="];

/// Every process but the ps that was asked. `NotFound`: there is no table here, and will not be.
pub fn all() -> io::Result<Vec<Stat>> {
    let (asked, text) = ask(&["-A"], &COLUMNS)?;
    let stats: Vec<Stat> = text.lines().filter_map(read).filter(|stat| stat.proc.pid != asked).collect();
    if stats.is_empty() { Err(missing("it lists no process")) } else { Ok(stats) }
}

/// One process; `NotFound` where there is none.
pub fn one(pid: i32) -> io::Result<Stat> {
    // No ps is needed to say that a number is free.
    if is_free(pid) {
        return Err(Errno::ESRCH.into());
    }
    let (_, text) = ask(&["-p", &pid.to_string()], &COLUMNS)?;
    let gone = || if pid == own_pid() { missing("it does not show us either") } else { Errno::ESRCH.into() };
    text.lines().find_map(read).filter(|stat| stat.proc.pid == pid).ok_or_else(gone)
}

/// Whether no process has this number, not even one that has ended and was not collected.
pub fn is_free(pid: i32) -> bool {
    // SAFETY: kill(2) with two integers; no signal is sent.
    Errno::result(unsafe { libc::kill(pid, 0) }) == Err(Errno::ESRCH)
}

/// Who was started with the variable `name`, and its values, as far as ps may show them: of our own processes, and on
/// macOS not of Apple's programs. A word of the command itself cannot be told from its environment.
pub fn started_with(name: &str) -> HashMap<i32, Vec<String>> {
    // The letters are the BSDs'; procps knows them without a dash, and macOS has another one for the environment.
    let environment = match () {
        () if cfg!(target_os = "linux") => "axeww",
        () if cfg!(target_vendor = "apple") => "-axEww",
        () => "-axeww",
    };
    let Ok((_, text)) = ask(&[environment], &["-o", "pid=", "-o", "command="]) else { return HashMap::new() };
    let entry = format!("{name}=");
    let carried = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let pid = words.next()?.parse().ok()?;
        let values: Vec<String> = words.filter_map(|word| word.strip_prefix(&entry)).map(str::to_owned).collect();
        (!values.is_empty()).then_some((pid, values))
    });
    carried.collect()
}

/// Runs ps; its own number, and what it says.
fn ask(whom: &[&str], columns: &[&str]) -> io::Result<(i32, String)> {
    let Some(place) = PLACES.iter().find(|place| std::path::Path::new(place).exists()) else {
        return Err(missing("there is none"));
    };
    heed_children();
    let words: Result<Vec<CString>, _> =
        [place].into_iter().chain(whom).chain(columns).map(|w| CString::new(*w)).collect();
    let words = words?;
    let argv: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    let environment = [c"LC_ALL=C".as_ptr(), c"TZ=UTC0".as_ptr(), ptr::null()];
    let (mut answer, into) = io::pipe()?;
    let none = *SigSet::empty().as_ref();
    // Not by std: its Command is 65 KiB of every tool, and this a few lines.
    // SAFETY: this process has one thread, and the child makes system calls only, with what was made before the fork.
    let pid = match Errno::result(unsafe { libc::fork() })? {
        // SAFETY: as above; the words and the environment end with null.
        0 => unsafe {
            libc::dup2(into.as_raw_fd(), 1);
            libc::dup2(into.as_raw_fd(), 2);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            libc::execve(argv[0], argv.as_ptr(), environment.as_ptr());
            libc::_exit(127)
        },
        pid => pid,
    };
    drop(into);
    let mut said = Vec::new();
    let read = answer.read_to_end(&mut said);
    let mut ended = waitpid(Pid::from_raw(pid), None);
    while ended == Err(Errno::EINTR) {
        ended = waitpid(Pid::from_raw(pid), None);
    }
    read?;
    let text = String::from_utf8_lossy(&said).into_owned();
    match ended? {
        WaitStatus::Exited(_, 0) => Ok((pid, text)),
        // The plain no.
        WaitStatus::Exited(_, 1) if text.is_empty() => Ok((pid, text)),
        WaitStatus::Exited(..) if !text.is_empty() => {
            Err(missing(text.lines().next().unwrap_or_default().trim_end_matches(['.', ':'])))
        }
        // What it would have said is not known: no list, and no "there is none".
        _ => Err(io::Error::other("ps could not be run to its end")),
    }
}

/// A caller that ignores SIGCHLD would have our child vanish before it could be waited for.
fn heed_children() {
    // SAFETY: sigaction(2) with null pointers or structs of ours; only where it was ignored, the default is set.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut old);
        if old.sa_sigaction == libc::SIG_IGN {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
}

fn missing(why: &str) -> io::Error {
    let proc = if crate::LINUX { "/proc does not show us, and " } else { "" };
    io::Error::new(io::ErrorKind::NotFound, format!("{proc}ps gives no process table: {why}"))
}

/// One line: pid, parent, group, state, start time, name.
fn read(line: &str) -> Option<Stat> {
    let mut words = line.split_ascii_whitespace();
    let mut number = || words.next()?.parse().ok();
    let (pid, parent, group) = (number()?, number()?, number()?);
    let state = words.next()?;
    let start = start(&mut words)?;
    let name = words.collect::<Vec<_>>().join(" ");
    Some(Stat {
        proc: Proc { pid, start },
        parent,
        group,
        // OpenBSD (getsid(2)) tells of our own session alone.
        session: getsid(Some(Pid::from_raw(pid))).map_or(group, Pid::as_raw),
        state: *state.as_bytes().first()?,
        // procps marks those that have several.
        threads: if state.contains('l') { 2 } else { 1 },
        name,
    })
}

/// `Mon Nov 30 21:45:09 2026` as the number 20261130214509.
fn start<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let [_, month, day, time, year] = [words.next()?, words.next()?, words.next()?, words.next()?, words.next()?];
    let month = MONTHS.find(month).filter(|at| at % 3 == 0 && month.len() == 3)? / 3 + 1;
    let day: u8 = day.parse().ok()?;
    format!("{year}{month:02}{day:02}{}", time.replace(':', "")).parse().ok().filter(|_| time.len() == 8)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_line_of_each_system_is_read() {
        for (line, state, threads, name) in [
            ("   7     1     7 Ss   Mon Nov 30 21:45:09 2026 cron", b'S', 1, "cron"),
            ("7 1 7 SLl Mon Nov 30 21:45:09 2026 two words", b'S', 2, "two words"),
            // macOS and FreeBSD pad their columns in other ways.
            ("    7     1     7 Z+   Mon Nov 30 21:45:09 2026     ", b'Z', 1, ""),
        ] {
            let stat = read(line).unwrap();
            assert_eq!(stat.proc, Proc { pid: 7, start: 20_261_130_214_509 });
            assert_eq!((stat.parent, stat.group, stat.state, stat.threads), (1, 7, state, threads));
            assert_eq!(stat.name, name);
        }
        assert!(read("7 1 7 S Mon Dec  1 01:02:03 2026 x").unwrap().proc.start == 20_261_201_010_203);
        for line in ["", "7 1 7 S", "7 1 x S Mon Nov 30 21:45:09 2026 x", "7 1 7 S Mon Foo 30 21:45:09 2026 x"] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }

    #[test]
    fn it_knows_us_and_what_we_were_started_with() {
        if !PLACES.iter().any(|place| std::path::Path::new(place).exists()) {
            return ::tests::skip("there is no ps");
        }
        let me = crate::process::own_pid();
        let stat = one(me).unwrap();
        assert_eq!((stat.proc.pid, stat.session), (me, getsid(None).unwrap().as_raw()));
        assert_eq!(all().unwrap().iter().find(|one| one.proc.pid == me).unwrap().proc, stat.proc);
        let mut child = Command::new("sleep").arg("60").env("PS_TEST", "a1").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // Between its fork and its exec it still has our environment.
        while !started_with("PS_TEST").iter().any(|(one, values)| *one == pid && values == &["a1"]) {}
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(one(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
