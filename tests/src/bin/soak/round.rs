//! One root, and everybody who works on it until he is killed.
#![allow(clippy::unwrap_used)]

use std::array;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use tests::invariant::{self, Ledger};
use tests::scenario::{Stage, lines, tools};
use tests::trace::carriers;
use tests::{comes_within, status_of};

/// The longest time between a move's start of somebody and its kill.
const MOMENT: Duration = Duration::from_millis(8);
/// The most jobs and the most processes of ours at a time: a small machine is to be busy, not late.
const JOBS: usize = 16;
const ACTORS: usize = 12;
/// A claim nobody takes up ends after this.
const START: Duration = Duration::from_secs(2);
/// How long the killed may take to be gone, and how long a round to come to rest.
const GOING: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(30);

/// What jobs do.
const WORKS: [&str; 10] = [
    "exit 0",
    "sleep .2; exit 7",
    "kill -USR1 $$",
    "echo '{\"n\":1}' | jobdir put; jobdir touch half; sleep .1",
    "echo hello; sleep 60",
    "while :; do echo on; sleep .05; done",
    "trap '' TERM; setsid sleep 60 & (sleep 60; sleep 60) & while :; do sleep 60; done",
    "sleep 60 & setsid sleep 60 & exit 0",
    "(setsid sleep 60 &); while :; do jobdir touch; sleep .1; done",
    "sleep .25; echo on; sleep .25",
];

/// With which statuses somebody who was left alone may end.
fn may_end(role: &str, status: i32) -> bool {
    let also: &[i32] = match role {
        "claimer" => &[3],
        // Taken or gone already; its watchdog's own end, before it was ready.
        "launcher" => &[3, 66, 124, 137, 143],
        "waiter" => &[1, 66, 75, 124],
        "canceller" => &[66],
        // A handler that refuses, or somebody else was quicker with the acknowledgement and a prune.
        "handling" | "acker" => &[1],
        // Its reader was killed.
        "scribe" => &[141],
        _ => &[],
    };
    status == 0 || also.contains(&status)
}

/// A child of ours. What it says goes to a file, so that it is not lost with it.
struct Actor {
    role: &'static str,
    child: Child,
    said: PathBuf,
    killed: bool,
}

/// What a round came to.
#[derive(Default)]
pub struct Outcome {
    pub kills: BTreeMap<&'static str, usize>,
    pub ends: BTreeMap<String, usize>,
    pub violations: Vec<String>,
}

/// What was seen and done so far.
#[derive(Default)]
struct Seen {
    ledger: Ledger,
    /// How often claims printed an id, and what prunes printed.
    printed: HashMap<String, usize>,
    pruned: Vec<String>,
    /// Jobs whose watchdog we killed, and those that we cancelled: an end that says so has that cause, or none.
    orphaned: HashSet<String>,
    cancelled: HashSet<String>,
    /// Claims whose end was told.
    over: HashSet<String>,
}

/// A root, and who works on it.
pub struct Round {
    stage: Stage,
    dice: u64,
    moves: usize,
    actors: Vec<Actor>,
    /// Claims to be started, and ids that were printed of late.
    claimed: VecDeque<String>,
    recent: VecDeque<String>,
    seen: Seen,
    outcome: Outcome,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Round {
    /// A fresh root, and the moves of this seed.
    pub fn new(seed: u64) -> Round {
        let stage = Stage::new();
        fs::create_dir(stage.path("ran")).unwrap();
        Round {
            stage,
            dice: seed,
            moves: 0,
            actors: Vec::new(),
            claimed: VecDeque::new(),
            recent: VecDeque::new(),
            seen: Seen::default(),
            outcome: Outcome::default(),
        }
    }

    /// splitmix64.
    fn roll(&mut self) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 1).unwrap()
    }

    /// One move: somebody starts, and a moment later somebody is killed. It is drawn whole, whatever it then meets, so
    /// that the next one is the same for the same seed.
    pub fn play(&mut self) {
        let [act, work, pick, moment, prey] = array::from_fn(|_| self.roll());
        self.moves += 1;
        self.absorb();
        if self.moves.is_multiple_of(50) {
            self.seen.ledger.look(&self.stage);
        }
        if self.actors.len() < ACTORS {
            self.act(act, work, pick);
        }
        sleep(MOMENT * u32::try_from(moment % 100).unwrap() / 100);
        let killed = match prey % 20 {
            0 => self.kill_stranger(true, pick),
            1 => self.kill_stranger(false, pick),
            _ => self.kill_actor(pick),
        };
        if let Some(role) = killed {
            *self.outcome.kills.entry(role).or_insert(0) += 1;
        }
    }

    fn act(&mut self, act: usize, work: usize, pick: usize) {
        let id = (!self.recent.is_empty()).then(|| self.recent[pick % self.recent.len()].clone());
        match (act % 14, id) {
            (0..=3, _) => self.claim(pick),
            // Now and then somebody starts one again that runs, or has ended, or is gone.
            (4..=7, Some(id)) if pick.is_multiple_of(4) => self.launch(&id, WORKS[work % WORKS.len()]),
            (4..=7, _) => {
                if let Some(id) = self.claimed.pop_front() {
                    self.launch(&id, WORKS[work % WORKS.len()]);
                }
            }
            (8, Some(id)) => self.start("waiter", &["jobdir", "wait", "--slice", "300ms", &id]),
            (9, Some(id)) => {
                self.start("canceller", &["jobdir", "cancel", &id]);
                self.seen.cancelled.insert(id);
            }
            (10 | 11, _) => {
                let said = self.spawn("sweeper", &["sweep"], Stdio::null(), true);
                let said = self.spawn("scribe", &["tee"], said.unwrap().into(), true);
                self.spawn("acker", &["sweep", "--ack"], said.unwrap().into(), false);
            }
            (12, _) => {
                let status = if pick.is_multiple_of(4) { "1" } else { "0" };
                self.start("handling", &["sweep", "--", "sh", "-c", "cat; exit $0", status]);
            }
            (13, _) => self.start("pruner", &["jobdir", "prune", "--older-than", "0"]),
            _ => {}
        }
    }

    fn claim(&mut self, pick: usize) {
        let claimers = self.actors.iter().filter(|actor| actor.role == "claimer").count();
        if self.strangers(true).len() + self.claimed.len() + claimers < JOBS {
            let line = "jobdir claim --start-within 2s --idle 300ms --hard 600ms --grace 100ms";
            let given = format!("given-{}", pick % 16);
            let words = line.split(' ').chain(["--id", &given].into_iter().filter(|_| pick.is_multiple_of(3)));
            self.start("claimer", &words.collect::<Vec<_>>());
        }
    }

    fn launch(&mut self, id: &str, work: &str) {
        let line = format!("echo >>ran/$JOB_CLAIM; {work}");
        self.start("launcher", &["detach", "--ready", "watchdog", "--job", id, "sh", "-c", &line]);
    }

    fn start(&mut self, role: &'static str, words: &[&str]) {
        self.spawn(role, words, Stdio::null(), false);
    }

    fn spawn(&mut self, role: &'static str, words: &[&str], stdin: Stdio, piped: bool) -> Option<ChildStdout> {
        let said = self.stage.path(&format!("{}-{role}.said", self.moves));
        let file = |path: PathBuf| File::options().append(true).create(true).open(path).unwrap();
        let mut command = self.stage.command(words[0]);
        command.args(&words[1..]).stdin(stdin).stderr(file(said.with_extension("err")));
        if role == "scribe" {
            command.arg(&said);
        }
        command.stdout(if piped { Stdio::piped() } else { file(said.clone()).into() });
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take();
        self.actors.push(Actor { role, child, said, killed: false });
        stdout
    }

    fn kill_actor(&mut self, pick: usize) -> Option<&'static str> {
        let all = self.actors.iter_mut().filter(|actor| actor.role != "scribe" && !actor.killed);
        let mut living: Vec<_> = all.filter_map(|one| one.child.try_wait().unwrap().is_none().then_some(one)).collect();
        let n = pick % living.len().max(1);
        let victim = living.get_mut(n)?;
        victim.killed = victim.child.kill().is_ok();
        Some(victim.role)
    }

    /// Through a descriptor that was there before the last look: a number may be somebody else's by now.
    fn kill_stranger(&mut self, is_watchdog: bool, pick: usize) -> Option<&'static str> {
        let all = self.strangers(is_watchdog);
        let pid = *all.get(pick % all.len().max(1))?;
        // SAFETY: pidfd_open(2) takes two integers.
        let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).ok()?;
        // SAFETY: the kernel has just made it for us.
        let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })?;
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        if !self.strangers(is_watchdog).contains(&pid) {
            return None;
        }
        if is_watchdog {
            self.seen.orphaned.extend(words.split('\0').skip_while(|word| *word != "--job").nth(1).map(str::to_owned));
        }
        // SAFETY: pidfd_send_signal(2) takes a descriptor that is open, and may have no information.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, 0, 0) };
        (sent == 0).then_some(if is_watchdog { "watchdog" } else { "delegate" })
    }

    /// Those who are not our children: the living watchdogs, or the living processes of jobs.
    fn strangers(&self, watchdogs: bool) -> Vec<i32> {
        let watchdog = tools().join("watchdog");
        let is_one = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let is_watchdog = || fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == watchdog);
            let in_job = environment.split(|&b| b == 0).any(|entry| entry.starts_with(b"JOB_CLAIM="));
            if watchdogs { !in_job && is_watchdog() } else { in_job }
        };
        carriers(&self.stage.mark).into_iter().filter(is_one).collect()
    }

    fn broken(&mut self, what: impl std::fmt::Display) {
        self.outcome.violations.push(format!("move {}: {what}", self.moves));
    }

    /// Takes in who has ended, and what they said.
    fn absorb(&mut self) {
        let ended: Vec<Actor> = self.actors.extract_if(.., |actor| actor.child.try_wait().unwrap().is_some()).collect();
        for mut actor in ended {
            let status = status_of(actor.child.wait().unwrap());
            let said = fs::read_to_string(&actor.said).unwrap_or_default();
            let err = actor.said.with_extension("err");
            let words = fs::read_to_string(&err).unwrap_or_default();
            let _ = (fs::remove_file(&actor.said), fs::remove_file(err));
            if !actor.killed && !may_end(actor.role, status) {
                self.broken(format!("{} ended with {status}: {}", actor.role, words.trim_end()));
            }
            match actor.role {
                // Status 3 says a word instead, and no word has a dash.
                "claimer" if said.ends_with('\n') && said.contains('-') => {
                    let id = said.trim_end().to_owned();
                    *self.seen.printed.entry(id.clone()).or_insert(0) += 1;
                    self.claimed.push_back(id.clone());
                    self.recent.push_front(id);
                    self.recent.truncate(JOBS);
                }
                // A reader may take a last line without its end for whole, too.
                "scribe" | "handling" => self.take(lines(&(said + "\n"))),
                "pruner" => self.seen.pruned.extend(said.lines().map(str::to_owned)),
                _ => {}
            }
        }
    }

    /// Takes in lines that were emitted. The first of a claim says how it ended, and that must have its cause.
    fn take(&mut self, lines: Vec<Value>) {
        for line in &lines {
            let [job, claim, status, reason] = ["job", "claim", "status", "reason"].map(|key| text(&line[key]));
            if !self.seen.over.insert(claim.clone()) {
                continue;
            }
            let ran = self.stage.path("ran").join(&claim).exists();
            let caused = match (status.as_str(), reason.as_str()) {
                ("unknown", "worker-died") => self.seen.orphaned.contains(&job),
                ("unknown", "never-started") => !ran,
                ("failed", "cancelled") => self.seen.cancelled.contains(&job),
                ("unknown", _) => false,
                ("done", _) | (_, "exited") => ran,
                _ => true,
            };
            if !caused {
                self.broken(format!("without a cause: {line}"));
            }
            *self.outcome.ends.entry(format!("{status}/{reason}")).or_insert(0) += 1;
        }
        self.seen.ledger.emit(lines);
    }

    /// Lets all come to rest, sweeps once, and asks for every promise.
    pub fn finish(mut self) -> Outcome {
        let stopped = Instant::now();
        let rest = comes_within(REST, || {
            self.absorb();
            self.actors.is_empty() && self.strangers(true).is_empty() && stopped.elapsed() > START
        });
        if !rest {
            let roles: Vec<&str> = self.actors.iter().map(|actor| actor.role).collect();
            self.broken(format!("no rest: {roles:?} and {} watchdogs", self.strangers(true).len()));
        }
        self.seen.ledger.look(&self.stage);
        let ids = self.stage.jobs().into_iter().map(|(id, _)| id);
        let unsettled: Vec<String> =
            ids.filter(|id| ["claimed", "running"].contains(&self.stage.word(id).as_str())).collect();
        let ran = self.stage.sh("sweep >last; status=$?; cat last; exit $status");
        self.take(lines(&ran.out));
        let mut found = invariant::is_settled(&self.stage, &unsettled, &ran);
        self.seen.ledger.look(&self.stage);
        found.extend(self.seen.ledger.found());
        found.extend(invariant::view_agrees(&self.stage));
        found.extend(invariant::acknowledged_was_emitted(&self.stage, &self.seen.ledger));
        found.extend(invariant::emissions_agree(&self.seen.ledger));
        found.extend(invariant::nobody_alive_is_dead(&self.stage));
        let ran = self.stage.sh("sweep --ack <last && sweep && jobdir prune --older-than 0 >pruned");
        if (ran.status, ran.out.as_str(), ran.err.as_str()) != (0, "", "") || !self.stage.jobs().is_empty() {
            self.broken(format!("what was swept, acknowledged and pruned is not gone: {ran:?}"));
        }
        found.extend(invariant::nothing_hidden(&self.stage));
        found.into_iter().for_each(|one| self.broken(format!("{}: {}", one.invariant, one.what)));
        // All commands that go on do so for longer than a round: whoever outlives his job is still here.
        if !comes_within(GOING, || self.strangers(false).is_empty()) {
            self.broken(format!("processes outlive their jobs: {:?}", self.strangers(false)));
        }
        self.is_accounted_for();
        for actor in &mut self.actors {
            let _ = (actor.child.kill(), actor.child.wait());
        }
        self.outcome
    }

    /// Each claim that was printed was emitted, what was pruned was emitted, and no command was started twice.
    fn is_accounted_for(&mut self) {
        let claims = |id: &String| -> HashSet<String> {
            self.seen.ledger.emitted.get(id).into_iter().flatten().map(|line| text(&line["claim"])).collect()
        };
        let lost = self.seen.printed.iter().filter(|(id, n)| claims(id).len() < **n);
        let lost =
            lost.map(|(id, n)| format!("{id} was printed {n} times, and {} claims of it emitted", claims(id).len()));
        let unsaid =
            self.seen.pruned.iter().filter(|id| claims(id).is_empty()).map(|id| format!("{id} was pruned unsaid"));
        let runs = fs::read_dir(self.stage.path("ran")).unwrap().flatten();
        let runs = runs.map(|one| (one.file_name(), fs::read(one.path()).unwrap_or_default().len()));
        let again = runs.filter(|(_, n)| *n > 1).map(|(claim, n)| format!("{} was started {n} times", claim.display()));
        let found: Vec<String> = lost.chain(unsaid).chain(again).collect();
        found.into_iter().for_each(|what| self.broken(what));
    }
}
