//! The process table at one moment, and what hangs below a process in it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::process::{self, LINE, Stat};
use crate::{LINUX, ps};

/// Every process that could be read. No single reading is the truth: while it is made, processes fork and end.
#[derive(Debug, Default)]
pub struct Table {
    stats: Vec<Stat>,
    children: HashMap<i32, Vec<usize>>,
    at: HashMap<i32, usize>,
}

impl Table {
    /// Reads /proc once: each process's stat, which gives parent, group, session and start time together.
    /// Entries that vanish or are hidden are left out. Without a /proc, ps(1) is asked; `NotFound` where that is of no
    /// use either.
    pub fn read() -> io::Result<Table> {
        if LINUX && process::has_proc()? { Table::of_proc() } else { ps::all().map(Table::new) }
    }

    fn of_proc() -> io::Result<Table> {
        let mut proc = Dir::open("/proc", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let pids: Vec<String> = proc
            .iter()
            .flatten()
            .filter_map(|entry| {
                entry.file_name().to_str().ok().filter(|n| n.as_bytes()[0].is_ascii_digit()).map(str::to_owned)
            })
            .collect();
        if pids.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut stats = Vec::with_capacity(pids.len());
        let mut line = [0; LINE];
        for pid in pids {
            let path = format!("{pid}/stat");
            let fd = match openat(proc.as_fd(), path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
                Ok(fd) => fd,
                // Half a table would look like a tree that has ended.
                Err(e @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)) => return Err(e.into()),
                Err(_) => continue,
            };
            if let Ok(length) = nix::unistd::read(&fd, &mut line) {
                stats.extend(Stat::parse(&line[..length]));
            }
        }
        Ok(Table::new(stats))
    }

    /// This process and `child`, where that is its only one and has none itself, by the kernel's own lists
    /// (proc_tid_children(5)): then nobody else has to be read. `None` where there are more, or no such lists. They may
    /// miss whoever is born or adopted meanwhile, so this is for a first look alone.
    pub fn lone(child: i32) -> Option<Table> {
        if !LINUX || !process::has_proc().ok()? {
            return None;
        }
        let children = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok();
        let me = process::own_pid();
        let stats = vec![process::stat(me).ok()?, process::stat(child).ok()?];
        let alone = children(me)?.trim_end().parse() == Ok(child) && children(child)?.is_empty();
        (alone && stats.iter().all(|stat| stat.threads == 1)).then(|| Table::new(stats))
    }

    /// A table of the given processes.
    pub fn new(stats: Vec<Stat>) -> Table {
        let mut children: HashMap<i32, Vec<usize>> = HashMap::new();
        for (index, stat) in stats.iter().enumerate() {
            children.entry(stat.parent).or_default().push(index);
        }
        let at = stats.iter().enumerate().map(|(index, stat)| (stat.proc.pid, index)).collect();
        Table { stats, children, at }
    }

    /// The process with this number.
    pub fn get(&self, pid: i32) -> Option<&Stat> {
        self.at.get(&pid).map(|&index| &self.stats[index])
    }

    /// All of them, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = &Stat> {
        self.stats.iter()
    }

    /// `pid` and everyone above it, from there up. A listing takes a moment, and may say of two that each is above the
    /// other: nobody is met twice.
    pub fn above(&self, pid: i32) -> impl Iterator<Item = &Stat> {
        let mut met = HashSet::new();
        let up = std::iter::successors(self.get(pid), |stat| self.get(stat.parent));
        up.take_while(move |stat| met.insert(stat.proc.pid))
    }

    /// The children of `pid`.
    pub fn children(&self, pid: i32) -> impl Iterator<Item = &Stat> {
        self.children.get(&pid).into_iter().flatten().map(|&index| &self.stats[index])
    }

    /// The roots and everything below them, deepest first: children die before their parents could
    /// start them again.
    pub fn below(&self, roots: &[i32]) -> Vec<&Stat> {
        let mut depth: HashMap<i32, usize> = HashMap::new();
        let mut open: Vec<(i32, usize)> = roots.iter().map(|&pid| (pid, 0)).collect();
        while let Some((pid, level)) = open.pop() {
            // A root may hang below another one; the greater depth counts. A loop in a table read while
            // parents change cannot go deeper than there are processes.
            if level > self.stats.len() || depth.get(&pid).is_some_and(|&known| known >= level) {
                continue;
            }
            depth.insert(pid, level);
            open.extend(self.children(pid).map(|child| (child.proc.pid, level + 1)));
        }
        let mut found: Vec<(usize, &Stat)> =
            depth.iter().filter_map(|(&pid, &level)| Some((level, self.get(pid)?))).collect();
        found.sort_by_key(|&(level, stat)| (std::cmp::Reverse(level), stat.proc.pid));
        found.into_iter().map(|(_, stat)| stat).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Proc;

    fn stat(pid: i32, parent: i32) -> Stat {
        let proc = Proc { pid, start: 1 };
        Stat { proc, parent, group: pid, session: pid, state: b'S', threads: 1, name: String::new() }
    }

    fn pids(found: &[&Stat]) -> Vec<i32> {
        found.iter().map(|s| s.proc.pid).collect()
    }

    #[test]
    fn the_deepest_come_first() {
        let table = Table::new(vec![stat(2, 1), stat(3, 2), stat(4, 3), stat(5, 2), stat(9, 1)]);
        assert_eq!(pids(&table.below(&[2])), [4, 3, 5, 2]);
        assert_eq!(pids(&table.below(&[3, 2])), [4, 3, 5, 2]);
        assert_eq!(pids(&table.below(&[77])), [0; 0]);
    }

    #[test]
    fn a_loop_of_parents_ends() {
        let table = Table::new(vec![stat(2, 3), stat(3, 2), stat(4, 4)]);
        let mut found = pids(&table.below(&[2, 4]));
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4]);
    }

    #[test]
    fn the_real_table_holds_this_process() {
        let table = Table::read().unwrap();
        assert!(table.get(crate::process::own_pid()).is_some());
    }
}
