//! Names of jobs, and the tokens that tell two claims of one name apart.

use std::io;

use crate::moment;

/// Whether `id` may name a job: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`.
pub fn is_valid(id: &str) -> bool {
    id.len() <= 128
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// A new id that sorts by the time of its claim: `20261130T192742Z-` and 12 random hex digits.
pub fn mint() -> io::Result<String> {
    Ok(format!("{}-{}", moment::stamp(reap::here::wall()), random(6)?))
}

/// `bytes` random bytes in hex.
pub fn random(bytes: usize) -> io::Result<String> {
    let mut raw = vec![0_u8; bytes];
    fill(&mut raw)?;
    Ok(raw.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(all(target_os = "linux", not(portable)))]
fn fill(raw: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < raw.len() {
        let rest = &mut raw[filled..];
        // SAFETY: getrandom(2) writes at most `rest.len()` bytes to `rest`.
        match nix::errno::Errno::result(unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) }) {
            Ok(n) => filled += n.unsigned_abs(),
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn fill(raw: &mut [u8]) -> io::Result<()> {
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_leave_the_root_or_break_a_line_are_refused() {
        for good in ["a", "213235788261.371110", "A-b_c.d", "0..", &"x".repeat(128)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in
            ["", ".", "..", "../x", "a/b", "/abs", "-rf", "_x", "a b", "a\nb", "x\r", "é", "*", "a\0", &"x".repeat(129)]
        {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_minted_id_is_valid_and_new() {
        let (one, two) = (mint().unwrap(), mint().unwrap());
        assert!(is_valid(&one) && one.len() == 29);
        assert_ne!(one, two);
    }
}
