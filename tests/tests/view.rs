//! What a person sees, on a real pseudo-terminal: a small terminal in here shows what a window would, and takes no
//! character and no sequence that the tools have no use for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use tests::{Folder, Kid, Ran, is_alive, pid_in, touch, until};

/// A window: the rows that were ever written, the last of which it shows.
struct Window {
    columns: usize,
    height: usize,
    rows: Vec<Vec<char>>,
    /// The cursor.
    at: (usize, usize),
    /// What no terminal should be sent.
    strange: Vec<String>,
    /// All that came.
    raw: String,
}

impl Window {
    fn top(&self) -> usize {
        self.rows.len().saturating_sub(self.height)
    }

    /// The rows, without blanks at their ends.
    fn lines(&self) -> Vec<String> {
        let rows = self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        let mut lines: Vec<String> = rows.collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    fn down(&mut self) {
        self.at.0 += 1;
        if self.at.0 == self.rows.len() {
            self.rows.push(Vec::new());
        }
    }

    fn feed(&mut self, text: &str) {
        self.raw.push_str(text);
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\r' => self.at.1 = 0,
                '\n' => self.down(),
                '\x1b' => {
                    let sequence: String = rest.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
                    let end = rest.as_str();
                    let last = text[..text.len() - end.len()].chars().next_back().unwrap();
                    self.sequence(sequence.strip_prefix('[').unwrap_or("?"), last);
                }
                // Tabs come from data alone: `id TAB word`.
                '\t' => (0..8 - self.at.1 % 8).for_each(|_| self.print(' ')),
                c if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) => self.strange.push(format!("{c:?}")),
                c => self.print(c),
            }
        }
    }

    fn sequence(&mut self, number: &str, last: char) {
        let (row, column) = self.at;
        match (number, last) {
            (up, 'A') => self.at.0 = row.saturating_sub(up.parse().unwrap()).max(self.top()),
            ("", 'K') => self.rows[row].truncate(column),
            ("", 'J') => {
                self.rows.truncate(row + 1);
                self.rows[row].truncate(column);
            }
            ("" | "1" | "2" | "31" | "32" | "33" | "35" | "36", 'm') => {}
            (other, last) => self.strange.push(format!("ESC {other} {last}")),
        }
    }

    fn print(&mut self, c: char) {
        if self.at.1 == self.columns {
            self.at.1 = 0;
            self.down();
        }
        let (row, column) = self.at;
        let row = &mut self.rows[row];
        row.resize(row.len().max(column + 1), ' ');
        row[column] = c;
        self.at.1 += 1;
    }

    /// Breaks what no longer fits, as most terminals do.
    fn resize(&mut self, columns: usize, height: usize) {
        let mut rows = Vec::new();
        for (at, row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            if at == self.at.0 {
                self.at = (rows.len(), 0);
            }
            match row.is_empty() {
                true => rows.push(row),
                false => rows.extend(row.chunks(columns).map(<[char]>::to_vec)),
            }
        }
        (self.rows, self.columns, self.height) = (rows, columns, height);
    }
}

/// A command on a terminal of its own.
struct Term {
    master: File,
    kid: Kid,
    window: Window,
    rest: Vec<u8>,
    ended: bool,
}

fn winsize(columns: usize, height: usize) -> libc::winsize {
    let size = |n: usize| u16::try_from(n).unwrap();
    libc::winsize { ws_row: size(height), ws_col: size(columns), ws_xpixel: 0, ws_ypixel: 0 }
}

impl Term {
    fn start(command: &mut Command, columns: usize, height: usize) -> Term {
        let (mut master, mut slave) = (0, 0);
        let size = winsize(columns, height);
        let null = std::ptr::null_mut();
        // SAFETY: openpty(3) writes two descriptors, which are nobody else's, and reads one winsize.
        let (master, slave) = unsafe {
            assert_eq!(
                libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), (&raw const size).cast_mut()),
                0
            );
            libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(master, libc::F_SETFL, libc::O_NONBLOCK);
            (File::from_raw_fd(master), File::from_raw_fd(slave))
        };
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        if !command.get_envs().any(|(name, _)| name == "NO_COLOR") {
            command.env_remove("NO_COLOR");
        }
        // SAFETY: two system calls between fork and exec: the terminal becomes that of a session of its own.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let kid = Kid::start(command);
        // The command's own descriptors must be the last ones.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (strange, raw) = (Vec::new(), String::new());
        let window = Window { columns, height, rows: vec![Vec::new()], at: (0, 0), strange, raw };
        Term { master, kid, window, rest: Vec::new(), ended: false }
    }

    /// Takes what has come.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.master.read(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    self.rest.extend(&bytes[..read]);
                    let valid = match std::str::from_utf8(&self.rest) {
                        Ok(text) => text.len(),
                        Err(e) => {
                            assert_eq!(e.error_len(), None, "no UTF-8: {:?}", self.rest);
                            e.valid_up_to()
                        }
                    };
                    let rest = self.rest.split_off(valid);
                    let text = String::from_utf8(std::mem::replace(&mut self.rest, rest)).unwrap();
                    self.window.feed(&text);
                    continue;
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                // Nobody has the other end any more.
                Err(_) => self.ended = true,
            }
            assert_eq!(self.window.strange, [""; 0], "{}", self.window.lines().join("\n"));
            return;
        }
    }

    fn shows(&mut self, what: &str, is: impl Fn(&[String]) -> bool) {
        let shown = tests::comes_within(std::time::Duration::from_secs(20), || {
            self.read();
            is(&self.window.lines())
        });
        let last = self.window.raw.char_indices().rev().nth(500).map_or(0, |(at, _)| at);
        let raw = &self.window.raw[last..];
        assert!(shown, "{what} does not come:\n{}\n{raw:?}", self.window.lines().join("\n"));
    }

    fn shows_text(&mut self, text: &str) {
        self.shows(text, |lines| lines.iter().any(|line| line.contains(text)));
    }

    fn types(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).unwrap();
    }

    fn resize(&mut self, columns: usize, height: usize) {
        // What is drawn for one size and comes in another would stay: not even a terminal knows better.
        until("nothing is being drawn", || is_waiting(self.kid.pid()));
        self.read();
        self.window.resize(columns, height);
        let size = winsize(columns, height);
        // SAFETY: TIOCSWINSZ reads one winsize.
        assert_eq!(unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    /// Its status, and all that stands there in the end.
    fn end(mut self) -> (i32, Vec<String>, String) {
        until("the terminal is left", || {
            self.read();
            self.ended
        });
        (self.kid.end(), self.window.lines(), self.window.raw)
    }
}

fn on_terminal(folder: &Folder, args: &[&str], columns: usize, height: usize) -> Term {
    Term::start(&mut folder.tool("jobdir", args), columns, height)
}

/// A job that goes on until its folder has a file named `go` and itself.
fn busy(folder: &Folder, name: &str, options: &[&str], line: &str) -> String {
    let id = folder.claim(&[&["--id", name, "--name", name][..], options].concat());
    let go = folder.path(format!("go-{name}"));
    let line = format!("{line}; until [ -e {} ]; do sleep 0.02; done; exit 3", go.display());
    folder.start(&id, &["sh", "-c", &line]);
    id
}

fn go(folder: &Folder, name: &str) {
    touch(folder, &format!("go-{name}"));
}

#[test]
fn a_wait_shows_a_line_for_each_job_and_says_how_each_ended() {
    let folder = Folder::new();
    let said = "jobdir touch 'page 3 of 7'";
    let one = busy(&folder, "one", &["--idle", "1m", "--hard", "10m"], said);
    let two = busy(&folder, "two", &[], "echo first; echo last; printf '\\n\\n'");
    let queued = folder.claim(&["--id", "queued", "--start-within", "10m"]);
    let mut term = on_terminal(&folder, &["wait", &one, &two, &queued], 120, 24);
    term.shows("a line each", |lines| lines.len() == 3 && lines[0].contains("page 3") && lines[1].contains("last"));
    let lines = term.window.lines();
    assert!(lines[0].starts_with("one one  ") && lines[0].ends_with("0 B  page 3 of 7"), "{lines:?}");
    assert!(lines[0].contains("s [..........] 10m  silent ") && lines[0].contains("s [..........] 1m "), "{lines:?}");
    assert!(lines[1].starts_with("two two  ") && lines[1].ends_with("13 B  last"), "{lines:?}");
    assert!(lines[2].starts_with("queued") && lines[2].contains("not started"), "{lines:?}");
    go(&folder, "one");
    term.shows("the first end", |lines| lines.len() == 3 && lines[0].contains("exit status 3"));
    let lines = term.window.lines();
    let log = folder.root().join("jobs/one/out.log");
    let ran = lines[0].strip_prefix("one failed (exited): exit status 3, ran for ").expect(&lines[0]);
    assert!(ran.ends_with(&format!("s, log 0 B: {}", log.display())), "{lines:?}");
    assert!(lines[1].starts_with("two two") && lines[2].starts_with("queued"), "{lines:?}");
    go(&folder, "two");
    term.shows("the second end", |lines| lines.len() == 3 && lines[1].contains("exit status 3"));
    folder.run("jobdir", ["cancel", "queued"]);
    let (status, lines, raw) = term.end();
    assert_eq!((status, lines.len()), (1, 3), "{lines:?}");
    assert!(lines[1].starts_with("two failed") && lines[2].starts_with("queued failed (cancelled)"), "{lines:?}");
    assert!(raw.contains("\x1b[31mfailed (exited): exit status 3\x1b[m"), "{raw:?}");
}

#[test]
fn a_look_and_a_wait_for_any_say_how_it_ended_too() {
    let folder = Folder::new();
    let id = busy(&folder, "one", &[], "echo said");
    go(&folder, "one");
    folder.ended(&id);
    let (status, lines, _) = on_terminal(&folder, &["wait", "--slice", "0", &id], 200, 24).end();
    assert!(status == 1 && lines.len() == 1 && lines[0].starts_with("one failed (exited)"), "{lines:?}");
    let (status, lines, _) = on_terminal(&folder, &["wait", "--any", &id], 200, 24).end();
    assert!(status == 1 && lines.len() == 2 && lines[0].starts_with("one failed (exited)"), "{lines:?}");
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["one", "failed"]);
}

#[test]
fn an_interrupt_ends_the_wait_and_leaves_the_job_alone() {
    let folder = Folder::new();
    let id = busy(&folder, "one", &[], "echo at work");
    for term in ["xterm", "dumb"] {
        let mut term = Term::start(folder.tool("jobdir", ["wait", &id]).env("TERM", term), 80, 24);
        until("the wait waits", || is_waiting(term.kid.pid()));
        term.types(b"\x03");
        let (status, lines, _) = term.end();
        assert_eq!(status, 130);
        assert_eq!(lines.last().unwrap(), "jobdir: stopped waiting; job one goes on");
    }
    assert_eq!(folder.word(&id), "running");
    assert!(is_alive(folder.owner(&id)));
}

/// Whether it is in ppoll(2), or in poll(2): then it has said what it has to say.
fn is_waiting(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/syscall"))
        .is_ok_and(|call| [libc::SYS_ppoll, libc::SYS_poll].iter().any(|n| call.starts_with(&format!("{n} "))))
}

#[test]
fn nothing_raw_reaches_the_screen() {
    let folder = Folder::new();
    let hostile = "\x1b]0;title\x07\x1b[2J\x1b[5;5Hhere\u{9b}3A\r\u{202e}turned\u{7}\x1b[31mred\x1b[m\x1b";
    let id = busy(&folder, "one", &["--meta", &format!("k={hostile}")], ":");
    let named = folder.claim(&["--name", hostile, "--start-within", "0"]);
    let log = [hostile.as_bytes(), b"\xff\xfe\x9b2J\x00\x00 tail"].concat();
    fs::write(folder.file(&id, "out.log"), log).unwrap();
    fs::write(folder.file(&named, "progress"), [hostile.as_bytes(), b"\xff\n"].concat()).unwrap();
    for args in [&["list"][..], &["show", &id], &["show", &named]] {
        let (status, lines, raw) = on_terminal(&folder, args, 160, 40).end();
        assert!(status == 0 && lines.len() > 2, "{args:?} {raw:?}");
    }
    // No more on a pipe: whoever reads a log's tail there may be a terminal in the end.
    let shown = folder.run("jobdir", ["show", &id]).out;
    assert!(shown.contains("turned\u{fffd}red\u{fffd}") && shown.contains("tail"), "{shown:?}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    let mut term = on_terminal(&folder, &["wait", &id, &named], 160, 24);
    term.shows_text("tail");
    term.shows_text("here");
    term.types(b"\x03");
    assert_eq!(term.end().0, 130);
    let mut term = on_terminal(&folder, &["list", "--watch"], 160, 24);
    term.shows_text("red");
    term.types(b"\x03");
    assert_eq!(term.end().0, 130);
    go(&folder, "one");
}

#[test]
fn a_window_of_any_size_is_enough() {
    let folder = Folder::new();
    let ids: Vec<String> =
        (0..6).map(|n| folder.claim(&["--id", &format!("job-{n}"), "--start-within", "9m"])).collect();
    let words: Vec<&str> = ["wait"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let mut term = on_terminal(&folder, &words, 60, 5);
    term.shows("as many as fit", |lines| lines.len() == 4 && lines[3] == "and 3 more");
    assert!(!term.window.raw.contains("and 9 more"), "Regression: the first look's lines were drawn with the second's");
    assert!(term.window.lines()[0].contains("[......]"), "{:?}", term.window.lines());
    // Each line takes two rows now, until it is drawn anew.
    term.resize(30, 10);
    term.shows("all six, narrow", |lines| lines.len() == 6 && lines.iter().all(|line| line.len() < 30));
    assert!(!term.window.lines()[0].contains('['), "{:?}", term.window.lines());
    term.resize(100, 24);
    term.shows("all six, wide", |lines| lines.len() == 6 && lines.iter().all(|line| line.contains("[..........] 9m")));
    for size in [(1, 1), (2, 2), (3, 1)] {
        term.resize(size.0, size.1);
        let drawn = term.window.raw.matches("\x1b[J").count();
        until("it is drawn again", || {
            term.read();
            term.window.raw.matches("\x1b[J").count() > drawn
        });
    }
    term.types(b"\x03");
    assert_eq!(term.end().0, 130);
    let (_, lines, _) = on_terminal(&folder, &["list"], 40, 24).end();
    assert!(lines.len() == 7 && lines.iter().all(|line| line.len() < 40), "{lines:?}");
}

#[test]
fn colours_are_for_those_who_want_them() {
    let folder = Folder::new();
    let id = busy(&folder, "one", &[], ":");
    let coloured = |variable: &str, value: &str, args: &[&str]| {
        let term = Term::start(folder.tool("jobdir", args).env(variable, value), 160, 40);
        let (status, lines, raw) = term.end();
        assert!(status == 0 && !lines.is_empty(), "{raw:?}");
        raw.contains('\x1b')
    };
    for args in [&["list"][..], &["show", &id]] {
        assert!(coloured("TERM", "xterm", args) && coloured("NO_COLOR", "", args));
        assert!(!coloured("NO_COLOR", "1", args) && !coloured("TERM", "dumb", args) && !coloured("TERM", "", args));
        assert!(!folder.run("jobdir", args).out.contains('\x1b'));
    }
    // Without colours it is still drawn in place; on a dumb terminal nothing is, and the end is said.
    let mut term = Term::start(folder.tool("jobdir", ["wait", &id]).env("NO_COLOR", "1"), 80, 24);
    term.shows_text("silent");
    let dumb = Term::start(folder.tool("jobdir", ["wait", &id]).env("TERM", "dumb"), 200, 24);
    until("the wait waits", || is_waiting(dumb.kid.pid()));
    go(&folder, "one");
    let (_, lines, raw) = term.end();
    assert!(raw.contains("\x1b[K") && !raw.contains("\x1b[m"), "{raw:?}");
    assert!(lines[0].starts_with("one failed"), "{lines:?}");
    let (_, lines, raw) = dumb.end();
    assert!(lines.len() == 1 && lines[0].starts_with("one failed (exited)") && !raw.contains('\x1b'), "{raw:?}");
}

#[test]
fn nobody_is_woken_for_a_line_that_nobody_sees() {
    if tests::is_portable("nobody looks while nothing happens") {
        return;
    }
    let folder = Folder::new();
    let id = busy(&folder, "one", &["--idle", "0"], ":");
    let mut plain = Kid::heard(&mut folder.tool("jobdir", ["wait", &id]));
    until("the wait waits", || is_waiting(plain.pid()));
    let turns = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = turns(plain.pid());
    let begun = Instant::now();
    let mut term = on_terminal(&folder, &["wait", &id], 80, 24);
    // The second look comes at once, since only then is anything watched.
    until("it has been drawn four times", || {
        term.read();
        term.window.raw.matches("\x1b[J").count() >= 4
    });
    assert!(begun.elapsed().as_millis() >= 2000, "no more than once a second");
    assert_eq!(turns(plain.pid()), before);
    go(&folder, "one");
    assert_eq!(term.end().0, 1);
    assert_eq!(plain.end(), 1);
    assert_eq!(plain.ran(), Ran { status: 1, out: String::new(), err: String::new() });
}

#[test]
fn a_list_is_for_people_on_a_terminal_and_plain_on_a_pipe() {
    let folder = Folder::new();
    let ended = busy(&folder, "ended", &[], ":");
    go(&folder, "ended");
    folder.ended(&ended);
    busy(&folder, "live", &["--idle", "1s"], "jobdir touch halfway");
    // Of another machine, and silent for too long: it can only be listed.
    let far = busy(&folder, "far", &["--idle", "10ms", "--grace", "10ms"], "sleep 0");
    folder.ended(&far);
    fs::remove_file(folder.file(&far, "result.json")).unwrap();
    fs::write(folder.file(&far, "status"), "running\n").unwrap();
    for file in ["owner.json", "meta.json"] {
        let text = fs::read_to_string(folder.file(&far, file)).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or("none".to_owned());
        let text = text.replace(boot.trim(), "another boot").replace(machine.trim(), "another machine");
        fs::write(folder.file(&far, file), text.replace("\"host\":\"", "\"host\":\"not-")).unwrap();
    }
    until("it is overdue", || folder.run("jobdir", ["list", "--json"]).out.contains("\"overdue\":true"));
    let (status, lines, raw) = on_terminal(&folder, &["list"], 100, 24).end();
    assert_eq!(status, 0);
    assert!(lines[0].starts_with("STATUS             ID     NAME   AGE  LAST"), "{lines:?}");
    assert!(lines[1].starts_with("running (overdue)  far ") && lines[1].contains("s ago"), "{lines:?}");
    assert!(lines[2].starts_with("running            live ") && lines[2].ends_with("halfway"), "{lines:?}");
    assert!(lines[3].starts_with("failed             ended ") && lines[3].contains("ago  exited"), "{lines:?}");
    let coloured = ["\x1b[31mrunning (overdue)", "\x1b[36mrunning\x1b", "\x1b[31mfailed\x1b"];
    assert!(coloured.iter().all(|text| raw.contains(text)), "{raw:?}");
    let plain = folder.run("jobdir", ["list"]);
    assert!(
        plain.out.starts_with("ID     NAME   STATUS             REASON  AGE  SILENT  ATTEMPT  PROGRESS\n"),
        "{plain:?}"
    );
    let (_, lines, _) = on_terminal(&folder, &["show", "far"], 100, 24).end();
    assert!(lines.iter().any(|line| line.contains("cannot be judged from here")), "{lines:?}");
    assert!(lines.iter().any(|line| line == "give up    jobdir finish far unknown"), "{lines:?}");
    go(&folder, "live");
}

#[test]
fn a_watched_list_changes_with_the_jobs() {
    let folder = Folder::new();
    let refused = Term::start(folder.tool("jobdir", ["list", "--watch"]).env("TERM", "dumb"), 80, 24).end();
    assert!(refused.0 == 2 && refused.1[0].contains("--watch takes a terminal"), "{refused:?}");
    let mut term = on_terminal(&folder, &["list", "--watch"], 80, 24);
    term.shows("an empty root", |lines| lines == ["no jobs"]);
    let id = busy(&folder, "one", &[], ":");
    term.shows("a job", |lines| lines.len() == 2 && lines[1].starts_with("running  one"));
    folder.claim(&["--id", "two", "--start-within", "0"]);
    term.shows("another", |lines| lines.len() == 3 && lines[1].starts_with("claimed  two"));
    go(&folder, "one");
    term.shows("an end", |lines| lines.len() == 3 && lines[2].starts_with("failed   one"));
    folder.sh(&format!("echo {id} | sweep --ack"));
    term.shows("a delivery", |lines| lines.len() == 2 && lines[1].starts_with("claimed  two"));
    term.types(b"\x03");
    let (status, lines, _) = term.end();
    assert_eq!((status, lines.len()), (130, 3), "{lines:?}");
    assert_eq!(lines[2], "^C");
}

/// The command behind a label of `jobdir show`.
fn told(shown: &str, label: &str) -> Option<String> {
    let line = shown.lines().find(|line| line.starts_with(&format!("{label:9}  ")))?;
    Some(line[11..].to_owned())
}

#[test]
fn what_show_says_to_type_works() {
    let folder = Folder::new();
    let id = busy(&folder, "one", &["--idle", "1m"], "echo hello");
    until("it has said hello", || fs::read_to_string(folder.file(&id, "out.log")).unwrap().contains("hello"));
    let shown = folder.run("jobdir", ["show", &id]);
    assert_eq!((shown.status, shown.err.as_str()), (0, ""));
    assert!(shown.out.contains("\nowner      pid ") && shown.out.contains(", which lives\n"), "{}", shown.out);
    assert!(shown.out.contains("\n  | hello\n"), "{}", shown.out);
    // The log is followed until the job ends.
    let mut follower = Kid::heard(folder.command("sh").args(["-c", &told(&shown.out, "follow").unwrap()]));
    until("it follows", || state_is_sleeping(follower.pid()));
    folder.sh(&told(&shown.out, "cancel").unwrap());
    assert_eq!(follower.end(), 0);
    assert_eq!(follower.ran().out, "hello\n");
    assert_eq!(folder.ended(&id), "failed");
}

fn state_is_sleeping(pid: i32) -> bool {
    tests::state(pid) == Some('S')
}

#[test]
fn what_a_job_has_left_running_can_be_reaped() {
    let folder = Folder::new();
    let id = folder.claim(&[]);
    let line = "setsid sleep 600 & echo $! >left; echo '{\"a\":1}' | jobdir put";
    let ran = tests::run(&mut folder.watchdog(&id, &["--keep-children"], line));
    assert_eq!(ran.status, 0, "{ran:?}");
    let left = pid_in(&folder, "left");
    // Named by its path, where its root is not the one that is meant without a word.
    let path = folder.root().join("jobs").join(&id);
    let shown = tests::run(folder.tool("jobdir", ["show"]).arg(&path).env_remove("JOBDIR_ROOT")).out;
    assert_eq!(told(&shown, "record").unwrap(), format!("jobdir result {}", path.display()));
    assert_eq!(told(&shown, "left over").unwrap(), format!("{left} (sleep)"));
    assert_eq!(told(&shown, "output").unwrap(), "{\"a\":1}");
    assert_eq!(folder.sh(&told(&shown, "reap").unwrap()).status, 0);
    assert!(!is_alive(left));
    assert_eq!(told(&folder.run("jobdir", ["show", &id]).out, "reap"), None);
}

#[test]
fn a_damaged_job_is_shown_as_far_as_it_can_be_read() {
    let folder = Folder::new();
    let id = busy(&folder, "one", &[], "echo last words");
    go(&folder, "one");
    folder.ended(&id);
    fs::write(folder.file(&id, "result.json"), "42\n").unwrap();
    let shown = folder.run("jobdir", ["show", &id]);
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(told(&shown.out, "state").unwrap().starts_with("unknown (damaged)"), "{}", shown.out);
    assert!(shown.out.contains("  | last words\n"), "{}", shown.out);
}
