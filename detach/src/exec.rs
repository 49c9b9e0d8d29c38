//! Runs a command in place of this process, and finds the words for it when that fails.
//!
//! Everything is made ready before any fork, since nothing may be allocated between fork and exec.
//! execvp(3) is of no use: on a text file without `#!` it quietly runs `/bin/sh`, where our caller
//! wants to hear that the command cannot run.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::mem;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;

use libc::{c_char, c_int};
use nix::errno::Errno;

pub use crate::refusal::Refusal;
use crate::refusal::{reason, shown};

/// Where commands are looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command made ready before any fork, so that nothing is allocated between fork and exec.
pub struct Prepared {
    name: OsString,
    candidates: Vec<CString>,
    argv: Strings,
    envp: Strings,
}

/// Strings as execve(2) takes them: pointers to NUL-terminated bytes, and a null pointer at the end.
struct Strings {
    pointers: Vec<*const c_char>,
    // Only held: their bytes stay where they are when this struct moves.
    _bytes: Vec<CString>,
}

impl Strings {
    fn new(bytes: Vec<CString>) -> Strings {
        let ends = bytes.iter().map(|s| s.as_ptr()).chain([ptr::null()]);
        Strings { pointers: ends.collect(), _bytes: bytes }
    }
}

impl Prepared {
    /// Makes `command` ready with this process's environment and the changes in `env`:
    /// `(name, Some(value))` sets, `(name, None)` removes.
    ///
    /// `command[0]` is looked up in this process's PATH, unless it holds a `/`. An empty name is
    /// refused with 127, a NUL byte anywhere with 126.
    pub fn new(command: &[OsString], env: &[(&str, Option<OsString>)]) -> Result<Prepared, Refusal> {
        let name = command.first().cloned().unwrap_or_default();
        if name.is_empty() {
            return Err(Refusal { status: 127, text: "cannot run '': no such command".into() });
        }
        let c_string = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|_| Refusal {
                status: 126,
                text: format!("cannot run {}: a NUL byte in its words or its environment", shown(&name)),
            })
        };
        let c_strings = |list: Vec<OsString>| -> Result<Vec<CString>, Refusal> {
            list.into_iter().map(|s| c_string(s.into_vec())).collect()
        };
        let candidates = c_strings(candidates(&name, env::var_os("PATH")))?;
        let argv = c_strings(command.to_vec())?;
        let changed = |name: &OsStr| env.iter().any(|(n, _)| name == *n);
        let kept = env::vars_os().filter(|(name, _)| !changed(name));
        let set = env.iter().filter_map(|(n, v)| Some((OsString::from(n), v.clone()?)));
        let envp = c_strings(kept.chain(set).map(|(n, v)| join(n, "=", v)).collect())?;
        Ok(Prepared { candidates, argv: Strings::new(argv), envp: Strings::new(envp), name })
    }

    /// The name the command was called by.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Replaces this process by the command; returns only when that failed, with the errno.
    ///
    /// Makes system calls only, so it may stand between fork and exec.
    pub fn exec(&self) -> Errno {
        let mut errno = Errno::ENOENT;
        for path in &self.candidates {
            // SAFETY: a NUL-terminated path and two null-terminated arrays, all owned by `self`.
            unsafe { libc::execve(path.as_ptr(), self.argv.pointers.as_ptr(), self.envp.pointers.as_ptr()) };
            match Errno::last() {
                // As in glibc's execvp: a directory of PATH that is gone hides no later one, and
                // "permission denied" tells more than the "not found" of a later directory.
                Errno::EACCES => errno = Errno::EACCES,
                not_here @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT) => {
                    if errno != Errno::EACCES {
                        errno = not_here;
                    }
                }
                other => return other,
            }
        }
        errno
    }

    /// The status and the words for an `exec` that failed with `errno`.
    ///
    /// 127 for a command that is not there, or whose interpreter (`#!` or ELF loader) is not there,
    /// which is then named; 126 for one that is there and cannot run. `dir` is the directory that the
    /// child had changed to, if any: relative names are looked up there.
    pub fn refusal(&self, errno: Errno, dir: Option<&Path>) -> Refusal {
        let dir = dir.unwrap_or(Path::new(""));
        let searched = !holds_slash(&self.name);
        let mut paths = self.candidates.iter().map(|c| dir.join(OsStr::from_bytes(c.as_bytes())));
        let file = paths.find(|path| path.is_file());
        let missing = match errno {
            Errno::ENOENT | Errno::ENOTDIR => true,
            // So says a directory of PATH that we may not search, whether it holds the command or not.
            Errno::EACCES => searched && file.is_none(),
            _ => false,
        };
        let interpreter = file.filter(|_| missing).and_then(|file| missing_interpreter(file, dir));
        let why = match interpreter {
            Some(interpreter) => format!("its interpreter {} is missing", shown(interpreter)),
            None if missing && searched => "no such command".into(),
            None => reason(errno),
        };
        Refusal { status: if missing { 127 } else { 126 }, text: format!("cannot run {}: {why}", shown(&self.name)) }
    }
}

/// The first interpreter that is not there, in the chain that starts at `file`.
fn missing_interpreter(mut file: PathBuf, dir: &Path) -> Option<PathBuf> {
    // The kernel gives up after five levels, and so do we: a script may name itself.
    for _ in 0..5 {
        let mut head = Vec::new();
        File::open(&file).ok()?.take(4096).read_to_end(&mut head).ok()?;
        let interpreter = OsStr::from_bytes(script_interpreter(&head).or_else(|| elf_loader(&head))?);
        file = dir.join(interpreter);
        if !file.exists() {
            return Some(interpreter.into());
        }
    }
    None
}

fn holds_slash(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

fn join(mut left: OsString, middle: &str, right: impl AsRef<OsStr>) -> OsString {
    left.push(middle);
    left.push(right);
    left
}

/// The paths at which `name` may be, in the order in which they are tried.
fn candidates(name: &OsStr, path: Option<OsString>) -> Vec<OsString> {
    if holds_slash(name) {
        return vec![name.into()];
    }
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    // An empty entry means the working directory (POSIX, XBD 8.3).
    let dirs = path.as_bytes().split(|&b| b == b':').map(|d| if d.is_empty() { b"." } else { d });
    dirs.map(|dir| join(OsStr::from_bytes(dir).into(), "/", name)).collect()
}

/// The interpreter that a script's first line names: up to the first blank, as execve(2) has it.
fn script_interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    line.split(|&b| b == b' ' || b == b'\t').find(|word| !word.is_empty())
}

/// The kind of segment that names a loader (elf(5)).
const PT_INTERP: usize = 3;

/// The loader that an ELF file asks for: the text of its PT_INTERP segment, see elf(5).
fn elf_loader(head: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, width: usize| {
        let bytes = head.get(at..at.checked_add(width)?)?;
        match width {
            2 => bytes.try_into().ok().map(|b| usize::from(u16::from_ne_bytes(b))),
            4 => bytes.try_into().ok().map(|b| u32::from_ne_bytes(b) as usize),
            _ => bytes.try_into().ok().map(|b| u64::from_ne_bytes(b) as usize),
        }
    };
    let is_64_bit = head.strip_prefix(b"\x7fELF")?.first()? == &2;
    let (width, phoff, phentsize, p_offset, p_filesz) = if is_64_bit { (8, 32, 54, 8, 32) } else { (4, 28, 42, 4, 16) };
    let (table, size, count) = (number(phoff, width)?, number(phentsize, 2)?, number(phentsize + 2, 2)?);
    let mut entries = (0..count).map(|i| table.saturating_add(i * size));
    let entry = entries.find(|&at| number(at, 4) == Some(PT_INTERP))?;
    let start = number(entry + p_offset, width)?;
    let text = head.get(start..start.checked_add(number(entry + p_filesz, width)?)?)?;
    text.split(|&b| b == 0).next()
}

/// Sets every signal to its default and empties the mask: ignored and blocked signals survive exec,
/// and we ignore SIGPIPE ourselves. For a child about to exec; makes system calls only.
pub fn clean_signals() {
    // 128 is the most that any kernel knows; numbers that do not exist are refused.
    for signal in 1..=128 {
        default_signal(signal);
    }
    // SAFETY: a zeroed set is replaced by an empty one before it is read.
    unsafe {
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

/// Sets one signal to its default; numbers that cannot be set (KILL, STOP) are left alone.
pub fn default_signal(signal: c_int) {
    // SAFETY: a zeroed sigaction is SIG_DFL without flags, and no handler is installed.
    if unsafe { libc::sigaction(signal, &mem::zeroed(), ptr::null_mut()) } == 0 {
        return;
    }
    // C libraries keep these to themselves, yet a caller may have ignored them in another way.
    #[cfg(target_os = "linux")]
    if (32..35).contains(&signal) {
        // SAFETY: the kernel's own struct, smaller than this, is SIG_DFL where it is zero; its set has
        // eight bytes, and a kernel with another size refuses the call.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, [0u64; 16].as_ptr(), ptr::null_mut::<u8>(), 8usize) };
    }
}

/// Closes every descriptor from 3 on, except those in `keep`, which must be sorted.
///
/// For a child between fork and exec, which must never drop what it owned before. Makes system calls
/// only, but for kernels before Linux 5.9: there it reads a directory, which allocates.
pub fn close_all_but(keep: &[RawFd]) {
    let mut from: RawFd = 3;
    for &spared in keep.iter().filter(|&&fd| fd >= 3) {
        if spared > from && close_range(from, spared - 1).is_err() {
            return close_listed_but(keep);
        }
        from = spared.saturating_add(1);
    }
    if close_range(from, RawFd::MAX).is_err() {
        close_listed_but(keep);
    }
}

/// close_range(2), by number: C libraries older than the kernel have no name for it.
#[cfg(all(target_os = "linux", not(portable)))]
fn close_range(from: RawFd, to: RawFd) -> Result<(), Errno> {
    // SAFETY: plain numbers; the caller owns every descriptor of this process.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) }).map(drop)
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn close_range(_: RawFd, _: RawFd) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

/// The old way: closes what /dev/fd lists; trying every number up to the limit can take minutes, since
/// container hosts set it to a billion. On the BSDs it lists the first three alone (fd(4)): there
/// numbers are tried, as far as a program that is not a server gets.
fn close_listed_but(keep: &[RawFd]) {
    let lists = cfg!(any(target_os = "linux", target_vendor = "apple"));
    let dir = lists.then(|| fs::read_dir("/dev/fd").ok()).flatten();
    let listed: Option<Vec<RawFd>> =
        dir.map(|dir| dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect());
    let all = listed.unwrap_or_else(|| (3..65536).collect());
    for fd in all.into_iter().filter(|fd| *fd >= 3 && !keep.contains(fd)) {
        // SAFETY: a plain number; the caller owns every descriptor of this process.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(words: &[&str]) -> Result<Prepared, Refusal> {
        Prepared::new(&words.iter().map(OsString::from).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn a_name_without_a_slash_is_looked_up_in_path() {
        assert_eq!(candidates("c".as_ref(), Some("/a::b".into())), ["/a/c", "./c", "b/c"]);
        assert_eq!(candidates("c".as_ref(), None), ["/bin/c", "/usr/bin/c"]);
        assert_eq!(candidates("./c".as_ref(), Some("/a".into())), ["./c"]);
    }

    #[test]
    fn names_that_no_exec_takes_are_refused() {
        assert_eq!(prepared(&[]).err().map(|r| r.status), Some(127));
        assert_eq!(prepared(&[""]).err().map(|r| r.status), Some(127));
        let nul = prepared(&["c", "a\0b"]).err().map(|r| (r.status, r.text));
        assert_eq!(nul, Some((126, "cannot run c: a NUL byte in its words or its environment".into())));
    }

    #[test]
    fn a_failed_exec_returns_and_has_its_words() {
        let long = "x".repeat(200_000);
        for (words, status, text) in [
            (["/nope", ""], 127, "cannot run /nope: no such file or directory"),
            (["/etc/passwd/x", ""], 127, "cannot run /etc/passwd/x: not a directory"),
            (["no-such-command", ""], 127, "cannot run no-such-command: no such command"),
            (["/etc", ""], 126, "cannot run /etc: permission denied"),
            (["true", &long], 126, "cannot run true: argument list too long"),
        ] {
            let command = prepared(&words).unwrap_or_else(|r| panic!("{r:?}"));
            let errno = command.exec();
            assert_eq!(command.refusal(errno, None), Refusal { status, text: text.into() });
        }
    }

    #[test]
    fn changes_to_the_environment_replace_what_was_inherited() {
        let changes = [("PATH", None), ("DETACH_TEST", Some("a=b".into()))];
        let command = Prepared::new(&["c".into()], &changes).unwrap_or_else(|r| panic!("{r:?}"));
        let entries: Vec<&[u8]> = command.envp._bytes.iter().map(|s| s.as_bytes()).collect();
        assert!(entries.contains(&&b"DETACH_TEST=a=b"[..]));
        assert!(!entries.iter().any(|entry| entry.starts_with(b"PATH=")));
        assert_eq!(command.envp.pointers.len(), entries.len() + 1);
    }

    #[test]
    fn an_interpreter_is_read_as_the_kernel_reads_it() {
        assert_eq!(script_interpreter(b"#! /bin/sh\t-e\nmore"), Some(&b"/bin/sh"[..]));
        assert_eq!(script_interpreter(b"#!/bin/sh"), Some(&b"/bin/sh"[..]));
        assert_eq!(script_interpreter(b"#!\n/bin/sh"), None);
        assert_eq!(script_interpreter(b"echo"), None);
    }

    #[test]
    fn a_loader_is_found_in_an_elf_file_and_nowhere_else() {
        let mut elf = vec![0; 200];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[32..40].copy_from_slice(&64u64.to_ne_bytes()); // e_phoff
        elf[54..56].copy_from_slice(&56u16.to_ne_bytes()); // e_phentsize
        elf[56..58].copy_from_slice(&1u16.to_ne_bytes()); // e_phnum
        elf[64..68].copy_from_slice(&(PT_INTERP as u32).to_ne_bytes());
        elf[72..80].copy_from_slice(&150u64.to_ne_bytes()); // p_offset
        elf[96..104].copy_from_slice(&8u64.to_ne_bytes()); // p_filesz
        elf[150..158].copy_from_slice(b"/lib/ld\0");
        assert_eq!(elf_loader(&elf), Some(&b"/lib/ld"[..]));
        elf[72..80].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(elf_loader(&elf), None);
        assert_eq!(elf_loader(b"\x7fELF\x02"), None);
        assert_eq!(elf_loader(b"#!/bin/sh\n"), None);
    }
}
