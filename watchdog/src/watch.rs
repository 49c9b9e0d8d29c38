//! Watches the command until something ends it, decides once what that was, and ends its tree.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use jobdir::files;
use jobdir::root::Named;
use jobdir::settle;
use nix::errno::Errno;
use nix::unistd::{ForkResult, fork};
use reap::LINUX;
use reap::exit::{Fail, Status, complain};
use reap::hunt::{self, Fate, Member, Plan};
use reap::process::{self, StartedWith, Stat};
use reap::tree::Table;

use crate::args::Args;
use crate::bell::{Bell, Exit, Signals};
use crate::delegate::{self, Inherited, Setting, Starting};
use crate::hollow::Hollow;
use crate::owned::{Ended, Owned};
use crate::ready::{self, Ready};
use crate::silence::{Ear, Silence};

/// A timer that fires later than this fired while we were stopped: what went by was not watched, and does not count.
/// Nobody can tell how much of it that was, so a fresh window begins.
const ASLEEP: Duration = Duration::from_secs(1);

/// How long a tree that slips through the listings is hunted.
const INSISTENCE: Duration = Duration::from_secs(10);

/// How long a command that was sent KILL may take to go.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// The variable by which the orphans of a command without a job are known where the kernel does not give them to us.
const MARK: &str = "WATCHDOG_MARK";

/// Said where a command leaves orphans and the kernel does not give them to us.
const MAY_HAVE_ESCAPED: &str =
    "it left orphans, known by their session and environment; one that has left both may go on";

/// What ended the command. Decided once; a natural end that races a limit or a cancel stays natural.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ended by itself.
    Natural,
    /// Nothing moved for so long.
    Idle(Duration),
    /// It ran for so long.
    Hard(Duration),
    /// A signal asked us to stop.
    Cancelled(i32),
    /// The log is past twice its bound, and its middle cannot be released for this reason.
    LogLimit(Errno),
    /// Somebody recorded an end while we were not awake to object.
    Lost,
}

/// Runs the command to its end, and returns the status to end with.
pub fn until_done(args: &Args, ready: Option<Ready>) -> Result<u8, Fail> {
    let signals = Signals::block(args.max_log.is_some()).map_err(|e| Fail::cannot("wait for", "signals", &e))?;
    if has_children()
        && let Some(status) = stand_aside(&signals)?
    {
        return Ok(status);
    }
    let inherited = Inherited::keep();
    adopt_orphans();
    let mut watch = Watch {
        signals,
        bell: Bell::default(),
        silence: None,
        hollow: None,
        hard: None,
        mark: None,
        orphans: false,
        unbegun: None,
        grace: args.grace,
        root_first: args.root_first,
    };
    match &args.job {
        Some(job) => watch.job(job, args, ready, &inherited),
        None => watch.alone(args, ready, &inherited),
    }
}

struct Watch {
    signals: Signals,
    bell: Bell,
    silence: Option<Silence>,
    hollow: Option<Hollow>,
    /// The hard limit and its moment.
    hard: Option<(Duration, Instant)>,
    /// The variable that every process of the command carries, where that is how its orphans are found.
    mark: Option<(&'static str, String)>,
    /// Orphans of the command were found that hung below nobody.
    orphans: bool,
    /// A command whose exec was still going on when a window ended.
    unbegun: Option<Starting>,
    grace: Duration,
    root_first: bool,
}

/// A process that was exec'ed into a watchdog may have children from before. They are not the job's, and a subreaper
/// would adopt their orphans as well, with nothing to tell them from the command's: so the work is done
/// by a child that has none. Returns its status in the parent, which only passes signals on, and nothing in the child.
fn stand_aside(signals: &Signals) -> Result<Option<u8>, Fail> {
    let parent = nix::unistd::getpid();
    // SAFETY: the process has one thread, and the child may do whatever the parent may.
    let worker = match unsafe { fork() }.map_err(|e| Fail::cannot("fork", "a watchdog without children", &e.into()))? {
        ForkResult::Child => {
            // Whoever kills the process that he knows kills the watchdog.
            #[cfg(all(target_os = "linux", not(portable)))]
            // SAFETY: prctl(2) with integers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            let orphaned = nix::unistd::getppid() != parent;
            return if orphaned {
                Err(Fail::new(Status::Broken, "the watchdog was killed at its start"))
            } else {
                Ok(None)
            };
        }
        ForkResult::Parent { child } => child.as_raw(),
    };
    let mut bell = Bell { command: worker, ..Bell::default() };
    loop {
        bell.attend(signals);
        if bell.ended.is_some() {
            return Ok(Some(status_of(bell.ended)));
        }
        if let Some(signal) = bell.cancelled.take() {
            // SAFETY: kill(2) with integers; the number is our own child's, and was not collected yet.
            unsafe { libc::kill(worker, signal) };
        }
        signals.wait(None);
    }
}

impl Watch {
    /// A `timeout` that measures silence.
    fn alone(&mut self, args: &Args, ready: Option<Ready>, inherited: &Inherited) -> Result<u8, Fail> {
        let log = args.log.as_deref().map(open_log).transpose()?;
        let mut ears: Vec<Ear> = args.watch.iter().cloned().map(Ear::Path).collect();
        if let Some(log) = &log {
            ears.push(Ear::Open(log.try_clone().map_err(|e| Fail::cannot("open", "the log", &e))?));
        }
        let mut environment = vec![(ready::VARIABLE, None)];
        if !LINUX {
            let token = jobdir::id::random(16).map_err(|e| Fail::cannot("mark", "the command", &e))?;
            environment.push((MARK, Some(token.clone().into())));
            self.mark = Some((MARK, token));
        }
        let setting = Setting {
            command: &args.command,
            environment: &environment,
            streams: [None, log.as_ref().map(AsFd::as_fd), log.as_ref().map(AsFd::as_fd)],
            session: false,
            contain: args.contain,
            inherited,
        };
        if let Some(missing) = self.begin(&setting, (args.idle, args.hard), ears, (ready, None))? {
            complain("watchdog", &format!("warning: {missing}"));
        }
        let verdict = self.verdict(None)?;
        for survivor in self.reap(verdict, args, None) {
            complain("watchdog", &format!("warning: {survivor}"));
        }
        Ok(match verdict {
            Verdict::Natural => status_of(self.bell.ended),
            Verdict::Cancelled(signal) => signal_status(signal),
            Verdict::Idle(_) | Verdict::Hard(_) | Verdict::LogLimit(_) | Verdict::Lost => Status::Limit as u8,
        })
    }

    /// The owner of a job, from its claim to its record.
    fn job(
        &mut self,
        job: &std::ffi::OsStr,
        args: &Args,
        ready: Option<Ready>,
        inherited: &Inherited,
    ) -> Result<u8, Fail> {
        let (_, job) = Named::parse(job)?.open(args.root.as_deref())?;
        let mut owned = Owned::take(job, &args.command)?;
        let (idle, hard) = (owned.idle(), owned.hard);
        self.grace = owned.grace;
        self.mark = Some((settle::TOKEN, owned.token().to_owned()));
        let started = owned.streams(args.capture).and_then(|streams| {
            let mut ears: Vec<Ear> = args.watch.iter().cloned().map(Ear::Path).collect();
            for file in &streams[1..] {
                ears.push(Ear::Open(file.try_clone()?));
            }
            ears.push(Ear::Entry(owned.job.dir.try_clone()?, files::PROGRESS));
            self.hollow = args.max_log.map(|size| Hollow::new(&streams[2], size)).transpose()?;
            Ok((streams, ears))
        });
        let started = started.map_err(|e| Fail::cannot("open the streams of job", &owned.job.id, &e)).and_then(
            |(streams, ears)| {
                let setting = Setting {
                    command: &args.command,
                    environment: &owned.environment(args.max_output),
                    streams: [0, 1, 2].map(|number| Some(streams[number].as_fd())),
                    session: true,
                    contain: args.contain,
                    inherited,
                };
                self.begin(&setting, (idle, hard), ears, (ready, Some(&owned)))
            },
        );
        let verdict = started.and_then(|missing| {
            missing.into_iter().for_each(|text| owned.warn(text));
            owned.started(self.bell.command);
            self.verdict(Some(&owned))
        });
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(fail) => {
                self.attend(Some(&owned));
                owned.spawn_failed(&fail.text, &mut || self.pause())?;
                return Err(fail);
            }
        };
        let moment = Ended::now(&owned);
        let survivors = self.reap(verdict, args, Some(&owned));
        self.hollow.take().and_then(Hollow::finish).into_iter().for_each(|text| owned.warn(text));
        let exit = self.bell.ended;
        owned.record(verdict, exit, moment, survivors, args, &mut || self.pause())
    }

    /// Starts the command and its windows. An exec that hangs is waited for no longer than the command may run: what
    /// ends it then is for the verdict to say. Returns what the command has to do without.
    fn begin(
        &mut self,
        setting: &Setting<'_>,
        (idle, hard): (Option<Duration>, Option<Duration>),
        ears: Vec<Ear>,
        (ready, owned): (Option<Ready>, Option<&Owned>),
    ) -> Result<Option<String>, Fail> {
        // What is there before the command starts is no sign of its life.
        self.silence = idle.map(|idle| Silence::new(idle, ears));
        self.hard = hard.and_then(|hard| Some((hard, Instant::now().checked_add(hard)?)));
        let mut starting = delegate::start(setting)?;
        (self.bell.command, self.bell.report) = (starting.pid, starting.report.take());
        let until = self.limit();
        while !starting.has_begun()? {
            if self.bell.cancelled.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                let missing = starting.missing.take();
                self.unbegun = Some(starting);
                return Ok(missing);
            }
            self.signals.wait_also(Some(starting.fd()), until);
            self.attend(owned);
        }
        if let Some(ready) = ready {
            ready.say();
        }
        Ok(starting.missing)
    }

    /// When the next window ends.
    fn limit(&self) -> Option<Instant> {
        self.silence.as_ref().map(Silence::until).into_iter().chain(self.hard.map(|(_, at)| at)).min()
    }

    /// When there is something to look at, whatever happens.
    fn next(&self) -> Option<Instant> {
        self.limit().into_iter().chain(self.hollow.as_ref().and_then(Hollow::due)).min()
    }

    /// Takes in what has happened, and answers whoever asks, whatever we are at.
    fn attend(&mut self, owned: Option<&Owned>) {
        self.bell.attend(&self.signals);
        if std::mem::take(&mut self.bell.asked)
            && let Some(owned) = owned
        {
            owned.answer();
        }
    }

    /// Sleeps until something happens, looks, and decides. The failure is that of an exec that took so long.
    fn verdict(&mut self, owned: Option<&Owned>) -> Result<Verdict, Fail> {
        loop {
            self.bell.attend(&self.signals);
            if self.bell.ended.is_some() {
                self.unbegun.as_mut().map_or(Ok(true), Starting::has_begun)?;
                return Ok(self.end_of_itself());
            }
            if std::mem::take(&mut self.bell.continued) {
                self.silence.iter_mut().for_each(Silence::restart);
            }
            self.silence.iter_mut().filter(|silence| silence.until().elapsed() > ASLEEP).for_each(Silence::restart);
            self.hard =
                self.hard.map(|(hard, at)| (hard, if at.elapsed() > ASLEEP { Instant::now() + hard } else { at }));
            // Looked at whenever we are awake: whoever settled the job in the meantime thinks that we are dead.
            if owned.is_some_and(Owned::is_lost) {
                return Ok(Verdict::Lost);
            }
            if let Some(signal) = self.bell.cancelled {
                return Ok(Verdict::Cancelled(signal));
            }
            if let Some(hollow) = &mut self.hollow
                && (std::mem::take(&mut self.bell.rang) || hollow.due().is_some_and(|due| Instant::now() >= due))
                && let Err(e) = hollow.look(self.silence.as_mut())
            {
                return Ok(Verdict::LogLimit(e));
            }
            if let Some((hard, at)) = self.hard
                && Instant::now() >= at
            {
                return Ok(Verdict::Hard(hard));
            }
            let looked = std::mem::take(&mut self.bell.asked);
            let quiet = self.silence.as_mut().filter(|silence| looked || Instant::now() >= silence.until());
            if let Some(silence) = quiet
                && silence.is_over()
            {
                return Ok(Verdict::Idle(silence.window()));
            }
            if looked && let Some(owned) = owned {
                owned.answer();
            }
            self.signals.wait_also(self.bell.report.as_ref().map(|report| report.0.as_fd()), self.next());
        }
    }

    /// Whoever signals a whole group or control group reaches the command as well as us, in any order: where it died of the
    /// signal that asks us to stop, that is the cancel.
    fn end_of_itself(&mut self) -> Verdict {
        let Some(Exit::Signal(died)) = self.bell.ended else { return Verdict::Natural };
        if self.bell.cancelled.is_none() && died == libc::SIGTERM {
            self.signals.wait(Some(Instant::now() + Duration::from_millis(50)));
            self.bell.attend(&self.signals);
        }
        self.bell.cancelled.filter(|&asked| asked == died).map_or(Verdict::Natural, Verdict::Cancelled)
    }

    /// Ends whatever is left of the command, and names what would not go.
    fn reap(&mut self, verdict: Verdict, args: &Args, owned: Option<&Owned>) -> Vec<String> {
        // A question that came with the verdict is still open.
        self.attend(owned);
        if self.bell.childless || (verdict == Verdict::Natural && args.keep_children) {
            return Vec::new();
        }
        let survived = |members: &[Member]| members.iter().any(|member| member.fate == Fate::Survived);
        let mut members = self.hunt(self.grace, args.contain, owned);
        // A listing may miss who forks and exits all the time. The kernel does not: as long as it knows of a child, there
        // is somebody.
        let bound = Instant::now() + INSISTENCE;
        while !self.is_over(&members)
            && Instant::now() < bound
            && !members.as_ref().is_ok_and(|members| survived(members))
        {
            if members.is_err() {
                // Descriptors or memory may come back; an end is not recorded over the heads of the living for want of
                // them.
                self.signals.wait(Some(Instant::now() + Duration::from_millis(50)));
            }
            members = self.hunt(Duration::ZERO, args.contain, owned);
        }
        match members {
            Ok(members) if survived(&members) || !LINUX || self.bell.childless => {
                let survivors = members.iter().filter(|member| member.fate == Fate::Survived).map(Member::warning);
                survivors.chain(self.orphans.then(|| MAY_HAVE_ESCAPED.to_owned())).collect()
            }
            Ok(_) => vec!["something of the command goes on, too short-lived to be ended".to_owned()],
            // No table was needed: the kernel says that nobody is left.
            Err(_) if LINUX && self.bell.childless => Vec::new(),
            Err(e) => vec![format!(
                "whatever the command left behind may go on: cannot read the process table: {}",
                reap::exit::reason(&e)
            )],
        }
    }

    /// Whether there is nothing more to be done about what is left of the command.
    fn is_over(&self, hunted: &io::Result<Vec<Member>>) -> bool {
        match hunted {
            Ok(_) => self.bell.childless || !LINUX,
            // Without a process table there never will be.
            Err(e) => self.bell.childless || e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Ends the command where there is no process table to hunt by: it is our own child, and leads a group as a job. The
    /// first process of a namespace feels no TERM; after the grace it ends with all that is in it.
    fn end_command(&mut self, grace: Duration, owned: Option<&Owned>) {
        let command = if owned.is_some() { -self.bell.command } else { self.bell.command };
        for (signal, patience) in [(libc::SIGTERM, grace), (libc::SIGKILL, KILLED_WITHIN)] {
            let until = Instant::now() + patience;
            if self.bell.ended.is_none() {
                // SAFETY: kill(2) with integers; the number is our own child's, and was not collected yet.
                unsafe { libc::kill(command, signal) };
            }
            while self.bell.ended.is_none() && Instant::now() < until {
                self.signals.wait(Some(until));
                self.attend(owned);
            }
        }
    }

    /// One hunt for whatever is below us, in which we still answer.
    fn hunt(&mut self, grace: Duration, contained: bool, owned: Option<&Owned>) -> io::Result<Vec<Member>> {
        let me = process::own_pid();
        let Watch { signals, bell, hollow, mark, orphans, .. } = self;
        let house = bell.command;
        // As a subreaper we are the parent of every orphan below us: who is not below us is not the command's. In a
        // namespace its first process is the parent, and the command is below that one.
        let adopted = |table: &Table| {
            // Its number is its own only as long as it is our child.
            let lives = contained && table.get(house).is_some_and(|stat| stat.parent == me);
            let inside = lives.then(|| table.children(house)).into_iter().flatten();
            table.children(me).chain(inside).map(|stat| stat.proc.pid).collect()
        };
        // Elsewhere they are known by the job's token, and by the session that the command led, unless somebody else
        // leads one of that number by now.
        let mut known = |table: &Table| {
            let ours = table.get(house).map(|stat| stat.parent == me);
            let carried = mark.as_ref().map(|(name, token)| (StartedWith::new(name), token));
            let is_known = |stat: &&Stat| {
                (owned.is_some() && stat.session == house && ours != Some(false))
                    || carried.as_ref().is_some_and(|(all, token)| all.of(stat.proc.pid).contains(token))
            };
            let command = if ours == Some(true) { vec![house] } else { Vec::new() };
            let below: HashSet<i32> = table.below(&command).iter().map(|stat| stat.proc.pid).collect();
            let living = table.iter().filter(|stat| !stat.is_dead() && !below.contains(&stat.proc.pid));
            let left: Vec<i32> = living.filter(is_known).map(|stat| stat.proc.pid).collect();
            *orphans |= !left.is_empty();
            command.into_iter().chain(left).collect()
        };
        let mut seeds = |table: &Table| if LINUX { adopted(table) } else { known(table) };
        let mut attend = || {
            bell.attend(signals);
            if std::mem::take(&mut bell.asked)
                && let Some(owned) = owned
            {
                owned.answer();
            }
            // Whoever takes no notice of TERM may still fill the disk; what ends the job is decided.
            if std::mem::take(&mut bell.rang)
                && let Some(hollow) = hollow.as_mut()
            {
                let _ = hollow.look(None);
            }
            bell.childless
        };
        let wake = Some((signals.fd(), &mut attend as &mut dyn FnMut() -> bool));
        let first = Table::lone(house);
        let mut plan = Plan { root_first: self.root_first, first, wake, ..Plan::after(grace) };
        let members = hunt::end(&mut seeds, &mut plan);
        self.attend(owned);
        if members.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            self.end_command(grace, owned);
        }
        members
    }

    /// A second in which we still answer.
    fn pause(&mut self) {
        self.signals.wait(Some(Instant::now() + Duration::from_secs(1)));
        self.bell.attend(&self.signals);
    }
}

/// The status that a shell would show.
pub(crate) fn status_of(exit: Option<Exit>) -> u8 {
    match exit {
        Some(Exit::Code(code)) => u8::try_from(code).unwrap_or(Status::Broken as u8),
        Some(Exit::Signal(signal)) => signal_status(signal),
        None => Status::Broken as u8,
    }
}

fn signal_status(signal: i32) -> u8 {
    u8::try_from(signal + 128).unwrap_or(Status::Broken as u8)
}

fn open_log(path: &Path) -> Result<File, Fail> {
    let cannot = |e: std::io::Error| Fail::cannot("open log", path.display(), &e);
    // A FIFO that nobody reads must not hold us up; the command may block on it as it likes.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().append(true).create(true).custom_flags(flags).open(path).map_err(cannot)?;
    files::block(&file).map_err(cannot)?;
    Ok(file)
}

/// Makes us the parent of every orphan below us. Where that is refused, orphans go to init, and are found by their
/// session and by the job's token.
#[cfg(all(target_os = "linux", not(portable)))]
fn adopt_orphans() {
    // SAFETY: prctl(2) with integers.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn adopt_orphans() {}

/// Whether this process has children, by the kernel's word: a waitid(2) that collects nothing.
#[cfg(all(target_os = "linux", not(portable)))]
fn has_children() -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) != Err(Errno::ECHILD)
}

/// Whoever was our child before the command is told from it without that.
#[cfg(not(all(target_os = "linux", not(portable))))]
fn has_children() -> bool {
    false
}
