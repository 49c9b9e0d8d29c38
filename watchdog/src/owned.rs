//! The job's side: ownership at the start, the one record at the end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use fs2::FileExt;
use jobdir::commit::{self, Outcome, Reserve};
use jobdir::files;
use jobdir::job::{Job, Trouble};
use jobdir::json;
use jobdir::meta::{Meta, Origin, Relation};
use jobdir::output;
use jobdir::owner::{Lock, Owner};
use jobdir::record::{End, Reason};
use jobdir::settle;
use jobdir::windows;
use jobdir::word::Word;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use reap::exit::{Fail, Status, reason};
use reap::{duration, here, process};

use crate::args::Args;
use crate::bell::Exit;
use crate::ready;
use crate::watch::{Verdict, status_of};

/// How long a commit that fails is tried again.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an output that cannot be read is tried again: an end without it is better than none.
const READING: Duration = Duration::from_secs(5);

/// Room in a record for what is not known at the start, its output left out.
const SPARE_ROOM: usize = 4096;

/// A job that this process owns.
pub struct Owned {
    /// The job.
    pub job: Job,
    meta: Meta,
    owner: Owner,
    lock: Lock,
    reserve: Reserve,
    warnings: Vec<String>,
    began: Instant,
    /// The age that ends the job: the claim's, or less where the job around this one has less left. The job may have
    /// waited since its claim.
    pub hard: Option<Duration>,
    /// TERM to KILL, in the same way.
    pub grace: Duration,
    /// A shared lock on the directory keeps age-based cleaners of /tmp away (systemd-tmpfiles honours it).
    _kept: Option<File>,
}

impl Owned {
    /// Takes the job: the lock, then a look whether it is still to be had, then the signature. A job that has an
    /// owner, or has ended, is refused with 3; one whose owner died is settled, and not run twice.
    pub fn take(job: Job, command: &[OsString]) -> Result<Owned, Fail> {
        let broken = |verb: &str, e: io::Error| Fail::cannot(verb, format_args!("job {}", job.id), &e);
        let taken = |why: &str| Fail::new(Status::Taken, format!("cannot own job {}: {why}", job.id));
        let unusable =
            |trouble: Trouble| Fail::new(Status::Broken, format!("cannot own job {}: {}", job.id, trouble.text()));
        let meta = job.meta().map_err(unusable)?;
        let lock = Lock::take(&job, Duration::from_secs(1)).map_err(|e| broken("lock", e))?;
        let lock = lock.ok_or_else(|| taken("it has an owner"))?;
        let word = job.word().map_err(unusable)?;
        // A power cut may have lost every trace of an owner: what was claimed before the last boot may have run.
        let here = Origin::here().map_err(|e| broken("judge", e))?;
        if meta.origin.seen_from(&here) == Relation::EarlierBoot
            || word != Word::Claimed
            || job.is_signed().map_err(unusable)?
            || is_recorded(&job)?
        {
            drop(lock);
            let _ = settle::settle_one(&job);
            return Err(taken("it was begun before, and is never run twice"));
        }
        if meta.origin.seen_from(&here) == Relation::SomeBoot {
            let why = "whether it was claimed in this boot cannot be told: /proc is hidden, or the clock was stepped";
            return Err(Fail::new(Status::Broken, format!("cannot own job {}: {why}", job.id)));
        }
        let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let owner = Owner::here(json::texts(words.iter().map(String::as_str))).map_err(|e| broken("own", e))?;
        let kept = job.dir.try_clone().map(File::from).ok();
        kept.iter().for_each(|dir| drop(FileExt::try_lock_shared(dir)));
        let mut warnings = Vec::new();
        let outer =
            windows::outer_deadline(&|name| std::env::var_os(name), here::wall(), &mut |text| warnings.push(text));
        let (hard, grace) = windows::clamped(meta.windows.hard, meta.windows.grace, outer);
        // The error may be as long as the command that it quotes.
        let empty = End::new(Word::Unknown, Reason::Wedged, None).to_json(&job.id, &meta, Some(&owner));
        let room = empty.len() + owner.command.len() + SPARE_ROOM;
        let reserve = match Reserve::take(&job, room as u64) {
            Ok(reserve) => reserve,
            // A file system that cannot reserve is no reason not to work; one without room is.
            Err(e) if e.raw_os_error().is_some_and(|e| files::is_unsupported(Errno::from_raw(e))) => {
                warnings.push(format!("no room could be reserved for this record: {}", reason(&e)));
                Reserve::default()
            }
            Err(e) => return Err(broken("reserve room for the record of", e)),
        };
        let began = Instant::now();
        let mut owned = Owned { job, meta, owner, lock, reserve, warnings, began, hard, grace, _kept: kept };
        match owned.sign() {
            Ok(true) => Ok(owned),
            Ok(false) => {
                owned.reserve.discard(&owned.job);
                Err(Fail::new(Status::Taken, format!("cannot own job {}: its end was recorded", owned.job.id)))
            }
            Err(e) => {
                owned.reserve.discard(&owned.job);
                Err(Fail::cannot("own", format_args!("job {}", owned.job.id), &e))
            }
        }
    }

    /// Writes down who owns the job now; `false` where an end was recorded in the meantime.
    fn sign(&self) -> io::Result<bool> {
        let job = &self.job;
        self.lock.sign()?;
        files::replace(job.fd(), files::OWNER, self.owner.to_json().as_bytes(), false)?;
        commit::set_view(job, Word::Running)?;
        if self.is_lost() {
            // Whatever stands there now is brought to its view like any other.
            let _ = settle::settle_one(job);
            return Ok(false);
        }
        // Only an output made during this run counts.
        files::remove(job.fd(), files::OUTPUT)?;
        files::remove(job.fd(), files::STDOUT)?;
        Ok(true)
    }

    /// The silence that ends the job.
    pub fn idle(&self) -> Option<Duration> {
        self.meta.windows.idle
    }

    /// What every process of the job carries.
    pub fn token(&self) -> &str {
        &self.meta.claim
    }

    /// What the command finds in its environment.
    pub fn environment(&self, max_output: u64) -> Vec<(&'static str, Option<OsString>)> {
        let deadline = self.hard.map(|hard| (self.owner.started_at + hard).as_secs().to_string());
        vec![
            ("JOB_ID", Some(self.job.id.clone().into())),
            ("JOB_DIR", Some(self.job.path.clone().into())),
            (settle::TOKEN, Some(self.meta.claim.clone().into())),
            ("JOB_DEADLINE", deadline.map(OsString::from)),
            (output::LIMIT, Some(max_output.to_string().into())),
            (ready::VARIABLE, None),
        ]
    }

    /// Standard input, output and error of the command.
    pub fn streams(&self, capture: bool) -> io::Result<[File; 3]> {
        let dir = self.job.fd();
        let input = match files::open(dir, files::INPUT, OFlag::O_RDONLY) {
            Ok(input) => File::from(input),
            Err(e) if e.kind() == io::ErrorKind::NotFound => File::open("/dev/null")?,
            Err(e) => return Err(e),
        };
        let append = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
        let log = File::from(files::open(dir, files::LOG, append)?);
        let output = match capture {
            true => File::from(files::open(dir, files::STDOUT, append)?),
            false => log.try_clone()?,
        };
        // They were opened so that a FIFO cannot block us.
        for stream in [&input, &output, &log] {
            files::block(stream)?;
        }
        Ok([input, output, log])
    }

    /// The command runs: its session is written down, by its leader, for whoever may have to end it for us.
    pub fn started(&mut self, command: i32) {
        // One that has ended already is still there: nobody but us collects it.
        self.owner.session = process::stat(command).ok().map(|stat| stat.proc);
        if let Err(e) = files::replace(self.job.fd(), files::OWNER, self.owner.to_json().as_bytes(), false) {
            self.warnings.push(format!("the session could not be written down: {}", reason(&e)));
        }
    }

    /// Something to say in the record beside the verdict.
    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Answers whoever asks whether we are well.
    pub fn answer(&self) {
        // If it cannot be written, the asker judges without it, and we shall find that we have lost the claim.
        let _ = self.lock.answer();
    }

    /// Whether the job's directory was removed.
    fn is_gone(&self) -> bool {
        nix::sys::stat::fstat(&self.job.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether somebody else has recorded an end.
    pub fn is_lost(&self) -> bool {
        matches!(files::look(self.job.fd(), files::RESULT), Ok(Some(_)))
    }

    /// Records that the command could not be started.
    pub fn spawn_failed(&mut self, why: &str, pause: &mut dyn FnMut()) -> Result<(), Fail> {
        let mut end = End::new(Word::Failed, Reason::SpawnFailed, why.to_owned());
        end.ran = Some(Duration::ZERO);
        self.commit(end, pause).map(drop)
    }

    /// Records the end, once nothing is left that could write; returns the status to end with.
    pub fn record(
        &mut self,
        verdict: Verdict,
        exit: Option<Exit>,
        moment: Ended,
        survivors: Vec<String>,
        args: &Args,
        pause: &mut dyn FnMut(),
    ) -> Result<u8, Fail> {
        // From here on a publication would come too late to stand in the record.
        let _closed = output::close(&self.job);
        let deadline = Instant::now() + READING;
        let output = loop {
            match output::published(&self.job, args.max_output) {
                // That it cannot be read just now says nothing of the command's work.
                Err(Trouble::Unreadable(_)) if Instant::now() < deadline => self.bide(pause),
                read => break read.map_err(|trouble| trouble.text().to_owned()),
            }
        };
        let required = if args.require_output { Some("there is no output") } else { None };
        let invalid = match &output {
            Err(why) => Some(why.as_str()),
            Ok(None) => required,
            Ok(Some(_)) => None,
        };
        let (word, reason, error) = match verdict {
            Verdict::Natural => match (exit, invalid) {
                (Some(Exit::Code(0)), Some(why)) => (Word::Failed, Reason::InvalidOutput, Some(why.to_owned())),
                (Some(Exit::Code(0)), None) => (Word::Done, Reason::Exited, None),
                (Some(Exit::Signal(signal)), _) => {
                    (Word::Failed, Reason::Signaled, Some(format!("killed by {}", name_of(signal))))
                }
                (code, _) => (Word::Failed, Reason::Exited, Some(format!("exit status {}", status_of(code)))),
            },
            Verdict::Idle(window) => {
                (Word::Timeout, Reason::Idle, Some(format!("no output for {} s", duration::seconds(window))))
            }
            Verdict::Hard(window) => {
                (Word::Timeout, Reason::Hard, Some(format!("not ended within {} s", duration::seconds(window))))
            }
            Verdict::Cancelled(signal) => {
                (Word::Failed, Reason::Cancelled, Some(format!("cancelled by {}", name_of(signal))))
            }
            Verdict::LogLimit(e) => {
                let most = args.max_log.unwrap_or_default().saturating_mul(2);
                let why = io::Error::from(e);
                let text =
                    format!("its log is past {most} bytes, and cannot be shortened: {}", reap::exit::reason(&why));
                (Word::Failed, Reason::LogLimit, Some(text))
            }
            Verdict::Lost => (Word::Unknown, Reason::Wedged, Some("the claim was lost while it ran".to_owned())),
        };
        let mut end = End::new(word, reason, error);
        (end.exit_code, end.signal) = match exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        (end.ended_at, end.ran, end.progress_at) = (moment.at, Some(moment.ran), moment.last_sign);
        end.log_bytes = self.job.log_bytes().unwrap_or_default();
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) {
            let spent = |time: nix::sys::time::TimeVal| {
                Duration::from_micros(u64::try_from(nix::sys::time::TimeValLike::num_microseconds(&time)).unwrap_or(0))
            };
            end.cpu = Some(spent(usage.user_time()) + spent(usage.system_time()));
            end.max_rss_kib = u64::try_from(usage.max_rss()).ok();
        }
        end.warnings = survivors;
        if reason != Reason::InvalidOutput
            && let Err(why) = &output
        {
            end.warnings.push(format!("the output is not valid: {why}"));
        }
        end.output = output.unwrap_or(None);
        match self.commit(end, pause)? {
            Outcome::Lost => Err(Fail::new(
                Status::Broken,
                format!("job {} was lost: another end is recorded; ours is in {}", self.job.id, files::LATE),
            )),
            Outcome::Won => Ok(match reason {
                Reason::Exited | Reason::Signaled => status_of(exit),
                Reason::Idle | Reason::Hard => Status::Limit as u8,
                Reason::Cancelled => 128 + libc::SIGTERM as u8,
                _ => Status::No as u8,
            }),
        }
    }

    /// Lets a second pass, in which we still answer.
    fn bide(&self, pause: &mut dyn FnMut()) {
        pause();
        self.answer();
    }

    /// Commits the record. What fails is tried again for a minute; a disk with room for the record alone gets
    /// the record alone. A commit that loses leaves its record beside the one that stands.
    fn commit(&mut self, mut end: End, pause: &mut dyn FnMut()) -> Result<Outcome, Fail> {
        end.warnings.splice(0..0, self.warnings.drain(..));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = end.to_json(&self.job.id, &self.meta, Some(&self.owner));
            match commit::commit(&self.job, &text, end.word, &mut self.reserve) {
                Ok(Outcome::Won) => return Ok(Outcome::Won),
                Ok(Outcome::Lost) => {
                    let _ = files::replace(self.job.fd(), files::LATE, format!("{text}\n").as_bytes(), true);
                    return Ok(Outcome::Lost);
                }
                Err(e) if end.output.is_some() && is_full(&e) => {
                    end.output = None;
                    end.warnings.push(format!("the output stayed beside the record alone: {}", reason(&e)));
                }
                // A directory that was removed does not come back.
                Err(e) if Instant::now() >= deadline || self.is_gone() => {
                    return Err(Fail::cannot("record the end of job", &self.job.id, &e));
                }
                Err(_) => self.bide(pause),
            }
        }
    }
}

/// When the verdict fell: by the wall clock, and how long the job had run on the clock that does not step.
pub struct Ended {
    at: Duration,
    ran: Duration,
    /// The last sign of life until then: what is done to the tree and to its log afterwards is none.
    last_sign: Option<Duration>,
}

impl Ended {
    /// Now.
    pub fn now(owned: &Owned) -> Ended {
        Ended { at: here::wall(), ran: owned.began.elapsed(), last_sign: owned.job.last_sign().unwrap_or_default() }
    }
}

fn is_recorded(job: &Job) -> Result<bool, Fail> {
    files::look(job.fd(), files::RESULT)
        .map(|found| found.is_some())
        .map_err(|e| Fail::cannot("look at the record of job", &job.id, &e))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

fn name_of(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}
