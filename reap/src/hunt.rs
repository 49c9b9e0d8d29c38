//! Ends processes: a signal deepest first, a grace for those that live, then KILL until nothing is left.
//!
//! A tree does not hold still. Parents end and their children no longer hang below them, members fork while
//! they are listed, a leader's name outlives it. So the hunt goes in rounds: list, signal whoever is new, wait
//! for those that live, list again. A listing that finds nobody proves little: members that fork and exit all
//! the time slip through it. So a process group that a target led must answer "no such process" as well,
//! which is the kernel's own proof, or be sent KILL as a whole, which nobody in it can fork away from; where there is
//! no such group, two listings in a row must be empty.
//!
//! TERM goes deepest first, so that children are told before their parents could start them again. KILL goes
//! from the top down, since every member is held by then: a supervisor that sees its child die first has a
//! moment to start another one, which then hangs below pid 1 and is found by nobody.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::process::{self, BLINK, EVENTLESS, MoreDescriptors, Pin, Proc, Stat};
use crate::tree::Table;
use crate::{LINUX, ps};

/// How long a process that was sent KILL may take to go before it is called a survivor: one in
/// uninterruptible sleep never does, and nobody should wait for it for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long KILL is repeated against a tree that keeps growing.
const BOUND: Duration = Duration::from_secs(10);

/// How a hunt goes.
pub struct Plan<'a> {
    /// From the first signal to KILL.
    pub grace: Duration,
    /// The first signal.
    pub signal: i32,
    /// How many listings in a row must be empty where no group proves the end. The kernel's own proof (a subreaper's
    /// ECHILD) needs no patience here; a settler has nothing else.
    pub listings: usize,
    /// The seeds alone first, the others half a grace later: for supervisors that end their children themselves.
    pub root_first: bool,
    /// What the first look finds, where that is known already.
    pub first: Option<Table>,
    /// A descriptor that wants attention while the hunt waits, and the attention; it says whether the kernel itself has
    /// proved that nothing is left, and then nothing is listed again.
    pub wake: Option<(BorrowedFd<'a>, &'a mut dyn FnMut() -> bool)>,
}

impl Plan<'_> {
    /// TERM deepest first, then KILL after `grace`.
    pub fn after(grace: Duration) -> Plan<'static> {
        Plan {
            grace,
            signal: libc::SIGTERM,
            listings: if LINUX { 2 } else { 5 },
            root_first: false,
            first: None,
            wake: None,
        }
    }
}

/// What became of a member of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It went on its own or on the first signal.
    Ended,
    /// It was sent KILL, and is gone.
    Killed,
    /// It is still there.
    Survived,
}

/// One process that the hunt has met.
#[derive(Debug)]
pub struct Member {
    /// As it was first seen.
    pub stat: Stat,
    /// What became of it.
    pub fate: Fate,
    pin: Pin,
    signalled: bool,
    killed: Option<Instant>,
}

impl Member {
    /// What to say of a survivor.
    pub fn warning(&self) -> String {
        format!("process {} could not be ended", self.stat.proc.pid)
    }

    /// Sends the signal, and CONT after it where the member is stopped: it could not act on it otherwise.
    fn first_signal(&mut self, signal: i32, table: &Table) {
        self.signalled = true;
        let sent = self.pin.signal_listed(signal);
        let listed = || table.get(self.pin.proc.pid).cloned();
        let now = || if LINUX { self.pin.current() } else { listed() };
        if sent.is_ok() && now().is_some_and(|stat| stat.is_stopped()) {
            let _ = self.pin.signal_listed(libc::SIGCONT);
        }
    }

    fn kill(&mut self) {
        let _ = self.pin.signal_listed(libc::SIGKILL);
        self.killed.get_or_insert_with(Instant::now);
    }
}

/// Ends the processes that `seeds` points at in each new listing, and everything below them. Returns all that
/// it met, deepest first as they were found. Already ended is success. An error means that the process
/// table could not be read: then nothing can be said of what is left.
///
/// Never signalled: this process, those above it, pid 1, and whoever merely shares a group or session with a target.
pub fn end(seeds: &mut dyn FnMut(&Table) -> Vec<i32>, plan: &mut Plan<'_>) -> io::Result<Vec<Member>> {
    let _descriptors = MoreDescriptors::allow();
    let mut hunt = Hunt::new();
    let start = Instant::now();
    let half = start + plan.grace / 2;
    let mercy = start + plan.grace;
    let mut empty = 0;
    loop {
        let table = plan.first.take().map_or_else(Table::read, Ok)?;
        let roots = seeds(&table);
        let found = hunt.meet(&table, &roots);
        let now = Instant::now();
        let killing = now >= mercy;
        if found.is_empty() {
            empty += 1;
            let led = !hunt.groups.is_empty();
            // Whoever is still in a group that a target led lives too briefly to be listed.
            hunt.signal_groups(if killing || empty >= plan.listings { libc::SIGKILL } else { plan.signal });
            if empty >= plan.listings || (led && hunt.groups.is_empty()) {
                break;
            }
            continue;
        }
        empty = 0;
        if killing {
            found.iter().rev().for_each(|&index| hunt.members[index].kill());
            hunt.signal_groups(libc::SIGKILL);
        } else {
            for &index in &found {
                let member = &mut hunt.members[index];
                if !member.signalled && (!plan.root_first || now >= half || roots.contains(&member.stat.proc.pid)) {
                    member.first_signal(plan.signal, &table);
                }
            }
        }
        let until = match (killing, plan.root_first && now < half) {
            (true, _) => now + PATIENCE,
            (false, true) => half,
            (false, false) => mercy,
        };
        if hunt.wait_for(&found, until, plan) {
            break;
        }
        let stuck = |&index: &usize| hunt.members[index].killed.is_some_and(|at| at.elapsed() >= PATIENCE);
        if killing && (hunt.living(found).iter().any(stuck) || mercy.elapsed() >= BOUND) {
            break;
        }
    }
    Ok(hunt.fates())
}

struct Hunt {
    members: Vec<Member>,
    known: HashMap<Proc, usize>,
    /// Groups and sessions whose leader was a target: id and leader.
    groups: HashMap<i32, Proc>,
    sessions: HashMap<i32, Proc>,
    /// Groups in which somebody else lives too, by the last listing.
    shared: HashSet<i32>,
    safe: HashSet<i32>,
    safe_groups: HashSet<i32>,
}

impl Hunt {
    fn new() -> Hunt {
        Hunt {
            members: Vec::new(),
            known: HashMap::new(),
            groups: HashMap::new(),
            sessions: HashMap::new(),
            shared: HashSet::new(),
            safe: HashSet::from([1, process::own_pid()]),
            safe_groups: HashSet::new(),
        }
    }

    /// Takes this process, those above it and the system's first out of the hunt, with their groups.
    fn shelter(&mut self, table: &Table) {
        for stat in table.above(process::own_pid()).chain(table.get(1)) {
            self.safe.insert(stat.proc.pid);
            self.safe_groups.insert(stat.group);
        }
    }

    /// Takes hold of every living member in this listing, and returns them, deepest first.
    fn meet(&mut self, table: &Table, roots: &[i32]) -> Vec<usize> {
        self.shelter(table);
        // An id that its leader has left lives on with the members; one with a new leader is a stranger's.
        for led in [&mut self.groups, &mut self.sessions] {
            led.retain(|id, leader| table.get(*id).is_none_or(|stat| stat.proc == *leader));
        }
        let living = || table.iter().filter(|stat| !stat.is_dead());
        // The orphans of ended members hang elsewhere by now: outside of their session. One whose parent is in it is
        // somebody else's child, which only shares the group or session with a target.
        let orphans = living().filter(|stat| {
            (self.groups.contains_key(&stat.group) || self.sessions.contains_key(&stat.session))
                && table.get(stat.parent).is_none_or(|parent| parent.session != stat.session)
        });
        // A member stays one when it no longer hangs below another.
        let known = living().filter(|stat| self.known.contains_key(&stat.proc));
        let members = orphans.chain(known).map(|stat| stat.proc.pid);
        let mut roots: Vec<i32> = roots.iter().copied().chain(members).collect();
        // What hangs below pid 1 or below our own ancestors is the whole machine.
        roots.retain(|pid| !self.safe.contains(pid));
        let mut found = Vec::new();
        let members = table.below(&roots);
        let below: HashSet<i32> = members.iter().map(|stat| stat.proc.pid).collect();
        for stat in members {
            if stat.is_dead() || self.safe.contains(&stat.proc.pid) {
                continue;
            }
            // Looked at in every listing: a member may come to lead after it was first met.
            if stat.group == stat.proc.pid && !self.safe_groups.contains(&stat.group) {
                self.groups.insert(stat.group, stat.proc);
            }
            if stat.session == stat.proc.pid {
                self.sessions.insert(stat.session, stat.proc);
            }
            if let Some(&index) = self.known.get(&stat.proc) {
                found.push(index);
            } else if let Some(pin) = Pin::listed(stat.proc) {
                found.push(self.members.len());
                self.known.insert(stat.proc, self.members.len());
                self.members.push(Member {
                    stat: stat.clone(),
                    fate: Fate::Ended,
                    pin,
                    signalled: false,
                    killed: None,
                });
            }
        }
        let strangers = living().filter(|stat| !self.known.contains_key(&stat.proc) && !below.contains(&stat.proc.pid));
        self.shared = strangers.map(|stat| stat.group).collect();
        found
    }

    /// Sends a signal to every group that a target led and that nobody else lives in, and forgets those that answer
    /// "no such process".
    fn signal_groups(&mut self, signal: i32) {
        let Hunt { groups, shared, .. } = self;
        groups.retain(|group, _| {
            // SAFETY: kill(2) takes two integers and touches no memory of ours. The number of a group is not given
            // away while the group has members, and a new leader was looked for in this very listing.
            !shared.contains(group) && Errno::result(unsafe { libc::kill(-group, signal) }) != Err(Errno::ESRCH)
        });
    }

    /// Waits until all of `found` have ended, or until the deadline. Says whether nothing is left at all.
    fn wait_for(&self, found: &[usize], until: Instant, plan: &mut Plan<'_>) -> bool {
        if !LINUX {
            self.look_until(found.to_vec(), until, plan);
            return false;
        }
        for &index in found {
            let pin = &self.members[index].pin;
            while !pin.wait(until, plan.wake.as_ref().map(|(fd, _)| *fd)) && Instant::now() < until {
                if let Some((fd, attend)) = &mut plan.wake
                    && process::readable(*fd)
                {
                    attend();
                }
            }
        }
        plan.wake.as_mut().is_some_and(|(_, attend)| attend())
    }

    /// The same where nobody can be held: a number that is free tells at once, and the table all the rest from time to
    /// time.
    fn look_until(&self, mut open: Vec<usize>, until: Instant, plan: &mut Plan<'_>) {
        let mut looked = Instant::now();
        while Instant::now() < until {
            open.retain(|&index| !ps::is_free(self.members[index].pin.proc.pid));
            if looked.elapsed() >= EVENTLESS {
                open = self.living(open);
                looked = Instant::now();
            }
            if open.is_empty() {
                break;
            }
            std::thread::sleep(BLINK);
            if let Some((fd, attend)) = &mut plan.wake
                && process::readable(*fd)
            {
                attend();
            }
        }
    }

    /// Those that have not ended. One look at the table tells of all that cannot be held.
    fn living(&self, of: Vec<usize>) -> Vec<usize> {
        let table = LazyCell::new(|| Table::read().ok());
        let is_listed = |proc: Proc| {
            let listed = |table: &Table| table.get(proc.pid).is_some_and(|stat| stat.proc == proc && !stat.is_dead());
            table.as_ref().is_none_or(listed)
        };
        let lives =
            |pin: &Pin| if LINUX { !pin.has_ended() } else { !ps::is_free(pin.proc.pid) && is_listed(pin.proc) };
        of.into_iter().filter(|&index| lives(&self.members[index].pin)).collect()
    }

    fn fates(mut self) -> Vec<Member> {
        let living: HashSet<usize> = self.living((0..self.members.len()).collect()).into_iter().collect();
        for (index, member) in self.members.iter_mut().enumerate() {
            member.fate = match (living.contains(&index), member.killed) {
                (true, _) => Fate::Survived,
                (false, Some(_)) => Fate::Killed,
                (false, None) => Fate::Ended,
            };
        }
        self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn a_tree_that_ignores_term_is_killed_after_the_grace() {
        let mut child = start("trap '' TERM; sleep 60 & sleep 60");
        let root = i32::try_from(child.id()).unwrap();
        let pin = Pin::take(process::stat(root).unwrap().proc).unwrap();
        while Table::read().unwrap().children(root).count() < 2 {
            std::thread::yield_now();
        }
        let members = end(&mut |_| vec![root], &mut Plan::after(Duration::from_millis(50))).unwrap();
        assert!(pin.has_ended());
        child.wait().unwrap();
        assert_eq!(members.len(), 3);
        assert_eq!(members.last().unwrap().stat.proc.pid, root, "the root comes last");
        assert_eq!(members.last().unwrap().fate, Fate::Killed);
    }

    #[test]
    fn nobody_to_end_is_success() {
        assert!(end(&mut |_| vec![], &mut Plan::after(Duration::ZERO)).unwrap().is_empty());
    }

    #[test]
    fn it_never_signals_itself_or_those_above_it() {
        let above = process::ancestors().unwrap();
        assert!(end(&mut |_| above.clone(), &mut Plan::after(Duration::ZERO)).unwrap().is_empty());
    }
}
