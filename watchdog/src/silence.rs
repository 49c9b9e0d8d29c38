//! How long nothing has moved: silence, not age.
//!
//! Nobody listens to every write. When the idle window ends, the files are looked at once; if one has changed, its
//! time tells when, and the next window starts from that moment. The wall clock may step and file times come from
//! it, so a moment that does not fit between the last look and this one on the monotonic clock counts as now:
//! never early.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstat, fstatat, stat};
use reap::here;

/// How far file times run behind: they come from a clock that ticks every few milliseconds.
const TICK: Duration = Duration::from_millis(10);

/// How far the two clocks may drift apart between two looks before it is a step, or a sleep of the host.
const STEP: Duration = Duration::from_millis(5);

/// A place where life shows.
pub enum Ear {
    /// An open file: it stays the delegate's, wherever its name is moved.
    Open(File),
    /// A name in a directory, replaced at every stamp.
    Entry(OwnedFd, &'static str),
    /// A file of the delegate's own, which may come and go.
    Path(PathBuf),
}

/// What is compared: any change of size, time or identity is a sign of life.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    size: i64,
    time: Duration,
    inode: u64,
}

impl Ear {
    fn look(&self) -> Option<Seen> {
        let found = match self {
            Ear::Open(file) => fstat(file.as_fd()),
            Ear::Entry(dir, name) => fstatat(dir, *name, AtFlags::AT_SYMLINK_NOFOLLOW),
            Ear::Path(path) => stat(path),
        };
        let seen =
            |stat: FileStat| Seen { size: stat.st_size, time: jobdir::files::changed(&stat), inode: stat.st_ino };
        found.ok().map(seen)
    }
}

/// The idle window.
pub struct Silence {
    window: Duration,
    ears: Vec<(Ear, Option<Seen>)>,
    looked: Instant,
    looked_wall: Duration,
    until: Instant,
}

impl Silence {
    /// A window that starts now.
    pub fn new(window: Duration, ears: Vec<Ear>) -> Silence {
        let now = Instant::now();
        let ears = ears.into_iter().map(|ear| (ear.look(), ear)).map(|(seen, ear)| (ear, seen)).collect();
        Silence { window, ears, looked: now, looked_wall: here::wall(), until: now + window }
    }

    /// Its length.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// When it ends if nothing moves.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The time that we were not awake to see says nothing: a whole window from now.
    pub fn restart(&mut self) {
        self.until = self.until.max(Instant::now() + self.window);
    }

    /// Looks, and says whether the window is over without a sign.
    pub fn is_over(&mut self) -> bool {
        let (now, wall) = (Instant::now(), here::wall());
        if let Some(moment) = self.last_move(now, wall) {
            self.until = self.until.max(moment + self.window + TICK);
        }
        (self.looked, self.looked_wall) = (now, wall);
        now >= self.until
    }

    /// Lets `act` work on the open file `inode`: what has moved before is heard, the new time that `act` gives it
    /// is not. Whoever writes in the same moment changes its size, and is heard at the next look.
    pub fn unheard<T>(&mut self, inode: u64, act: impl FnOnce() -> T) -> T {
        self.is_over();
        let done = act();
        for (ear, before) in &mut self.ears {
            if let (Some(before), Some(now)) = (before, ear.look())
                && (now.inode, now.size, before.size) == (inode, before.size, now.size)
            {
                before.time = now.time;
            }
        }
        done
    }

    /// When something last moved since the last look; `None` where nothing did.
    fn last_move(&mut self, now: Instant, wall: Duration) -> Option<Instant> {
        let passed = now - self.looked;
        let stepped = wall.abs_diff(self.looked_wall + passed) > STEP;
        let mut last = None;
        for (ear, before) in &mut self.ears {
            let seen = ear.look();
            if seen == *before {
                continue;
            }
            let time = seen.map(|seen| seen.time).filter(|time| Some(*time) != before.map(|before| before.time));
            let age = time.and_then(|time| wall.checked_sub(time)).filter(|age| !stepped && *age <= passed + TICK);
            *before = seen;
            last = last.max(Some(age.map_or(now, |age| now - age.min(passed))));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    const WINDOW: Duration = Duration::from_secs(60);

    fn ear() -> (File, Silence) {
        let file = tempfile::tempfile().unwrap();
        let silence = Silence::new(WINDOW, vec![Ear::Open(file.try_clone().unwrap())]);
        (file, silence)
    }

    #[test]
    fn a_single_byte_starts_a_new_window_at_its_moment() {
        let (mut file, mut silence) = ear();
        file.write_all(b".").unwrap();
        let wrote = Instant::now();
        assert!(!silence.is_over());
        assert!(silence.until() >= wrote + WINDOW, "never early");
        assert!(silence.until() <= wrote + WINDOW + 3 * TICK);
        let until = silence.until();
        assert!(!silence.is_over());
        assert_eq!(silence.until(), until, "a look without a sign changes nothing");
    }

    #[test]
    fn a_truncation_and_a_rewrite_of_the_same_size_are_signs() {
        let (mut file, mut silence) = ear();
        file.write_all(b"xx").unwrap();
        silence.is_over();
        let until = silence.until();
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        silence.is_over();
        assert!(silence.until() > until);
    }

    #[test]
    fn what_we_do_to_a_file_ourselves_is_no_sign_and_hides_none() {
        use std::os::unix::fs::MetadataExt;
        let (mut file, mut silence) = ear();
        file.write_all(b"xx").unwrap();
        let inode = file.metadata().unwrap().ino();
        let touch = || file.set_modified(std::time::SystemTime::now() + Duration::from_secs(1)).unwrap();
        silence.unheard(inode, touch);
        let until = silence.until();
        assert!(until > silence.looked + WINDOW - Duration::from_millis(500), "what came before is heard");
        assert!(!silence.is_over());
        assert_eq!(silence.until(), until, "what we did is not");
        silence.unheard(inode, || {
            touch();
            (&file).write_all(b"x").unwrap();
        });
        silence.is_over();
        assert!(silence.until() > until, "what came in between is heard");
    }

    #[test]
    fn a_window_without_a_sign_is_over() {
        let (_file, mut silence) = ear();
        silence.until = Instant::now();
        assert!(silence.is_over());
    }

    #[test]
    fn a_time_that_cannot_be_true_counts_as_now() {
        for stepped in [Duration::from_secs(3600 * 3), Duration::from_secs(2)] {
            let (mut file, mut silence) = ear();
            file.write_all(b"x").unwrap();
            // As if the clock had been set forward between the look and now.
            silence.looked_wall -= stepped;
            silence.looked -= Duration::from_secs(1);
            let before = Instant::now();
            assert!(!silence.is_over());
            assert!(silence.until() >= before + WINDOW);
        }
        let (file, mut silence) = ear();
        let old = std::time::SystemTime::now() - Duration::from_secs(10_000);
        file.set_modified(old).unwrap();
        let before = Instant::now();
        assert!(!silence.is_over());
        assert!(silence.until() >= before + WINDOW, "a file time set back is a sign all the same");
    }

    #[test]
    fn a_watched_file_may_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.log");
        let mut silence = Silence::new(WINDOW, vec![Ear::Path(path.clone())]);
        let mut last = silence.until();
        for step in [true, false] {
            if step {
                std::fs::write(&path, "x").unwrap()
            } else {
                std::fs::remove_file(&path).unwrap()
            }
            silence.is_over();
            assert!(silence.until() > last);
            last = silence.until();
        }
    }
}
