//! What a person sees: lines that fit the window, with nothing in them that could drive the terminal.
//!
//! What changes is drawn in place, at the end of what the terminal shows already. Nothing is hidden or switched that
//! would have to be put back, so that whoever is killed in between leaves a terminal that works.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

use crate::moment;
use crate::word::Word;

/// How a text is shown, where there is colour: the number of ECMA-48's SGR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Style {
    /// As it is.
    Plain = 0,
    /// Bold.
    Bold = 1,
    /// Faint.
    Faint = 2,
    /// Red.
    Red = 31,
    /// Green.
    Green = 32,
    /// Yellow.
    Yellow = 33,
    /// Magenta.
    Magenta = 35,
    /// Cyan.
    Cyan = 36,
}

impl From<Word> for Style {
    fn from(word: Word) -> Style {
        match word {
            Word::Claimed => Style::Faint,
            Word::Running => Style::Cyan,
            Word::Done => Style::Green,
            Word::Failed => Style::Red,
            Word::Timeout => Style::Yellow,
            Word::Unknown => Style::Magenta,
        }
    }
}

/// What the reader can show.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Colours.
    pub colour: bool,
    /// The cursor can be moved.
    pub moves: bool,
    /// So many columns; without end where it is no window.
    pub columns: usize,
    /// So many lines.
    pub rows: usize,
}

impl Paper {
    /// No window: a pipe or a file.
    pub const ENDLESS: Paper = Paper { colour: false, moves: false, columns: usize::MAX, rows: usize::MAX };

    /// What `out` is now: a window may change its size at any time.
    pub fn of(out: &(impl AsFd + IsTerminal)) -> Paper {
        if !out.is_terminal() {
            return Paper::ENDLESS;
        }
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let moves = set("TERM").is_some_and(|term| term != "dumb");
        let (columns, rows) = window(out);
        // The last column stays free: what a terminal does there differs.
        Paper { colour: moves && set("NO_COLOR").is_none(), moves, columns: columns - 1, rows }
    }

    /// Whether somebody looks at it.
    pub fn is_window(&self) -> bool {
        self.columns < usize::MAX
    }

    /// An empty line for it.
    pub fn line(&self) -> Line {
        Line { text: String::new(), width: 0, paper: *self }
    }
}

/// The window's columns and lines (ioctl_tty(2)); 80 and 24 where it does not tell.
fn window(out: &impl AsFd) -> (usize, usize) {
    // SAFETY: TIOCGWINSZ writes one winsize, and it is one that we own.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(out.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size);
        size
    };
    let or = |told: u16, usual: usize| if told == 0 { usual } else { usize::from(told) };
    (or(size.ws_col, 80), or(size.ws_row, 24))
}

/// One line: what does not fit is left out.
pub struct Line {
    text: String,
    width: usize,
    paper: Paper,
}

impl Line {
    /// Adds a text.
    pub fn put(mut self, style: Style, text: &str) -> Line {
        let text = fitting(&clean(text), self.paper.columns.saturating_sub(self.width)).to_owned();
        self.width += columns(&text);
        if self.paper.colour && style != Style::Plain && !text.is_empty() {
            self.text.push_str(&format!("\x1b[{}m{text}\x1b[m", style as u8));
        } else {
            self.text.push_str(&text);
        }
        self
    }

    /// Adds a text in a cell of so many columns, and two blanks.
    pub fn cell(self, style: Style, text: &str, width: usize) -> Line {
        let text = clean(text);
        let text = fitting(&text, width);
        let blanks = width.saturating_sub(columns(text)) + 2;
        self.put(style, text).put(Style::Plain, &" ".repeat(blanks))
    }

    /// Its text, without blanks at its end.
    pub fn text(&self) -> &str {
        self.text.trim_end_matches(' ')
    }
}

/// `text` for a screen: without the colours of a log and the zeros of a hole, its control characters, and whatever
/// turns the order of the others, replaced.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => match sequence(rest.as_str()) {
                Some(after) => rest = after.chars(),
                None => out.push(char::REPLACEMENT_CHARACTER),
            },
            '\0' => {}
            '\t' => out.push(' '),
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => out.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// What follows a control sequence (ECMA-48, 5.4) whose escape character has been read.
fn sequence(text: &str) -> Option<&str> {
    let text = text.strip_prefix('[')?.trim_start_matches(|c| matches!(c, '0'..='?'));
    text.trim_start_matches(|c| matches!(c, ' '..='/')).strip_prefix(|c| matches!(c, '@'..='~'))
}

/// How many columns a text takes at the most: a character that some terminals show wide counts as wide.
pub fn columns(text: &str) -> usize {
    text.chars().map(breadth).sum()
}

fn breadth(c: char) -> usize {
    match c {
        '\0'..='\u{10ff}' | '\u{1160}'..='\u{22ff}' | '\u{2400}'..='\u{25fc}' | char::REPLACEMENT_CHARACTER => 1,
        _ => 2,
    }
}

/// As much of a text as fits.
pub fn fitting(text: &str, most: usize) -> &str {
    let mut width = 0;
    let end = text.char_indices().find(|&(_, c)| {
        width += breadth(c);
        width > most
    });
    end.map_or(text, |(at, _)| &text[..at])
}

/// Lines that are drawn again in place.
pub struct Screen<W> {
    out: W,
    /// The widths of the lines that stand there.
    drawn: Vec<usize>,
}

impl<W: Write + AsFd + IsTerminal> Screen<W> {
    /// On a terminal; `None` on anything else.
    pub fn new(out: W) -> Option<Screen<W>> {
        out.is_terminal().then_some(Screen { out, drawn: Vec::new() })
    }

    /// What it can show now.
    pub fn paper(&self) -> Paper {
        Paper::of(&self.out)
    }

    /// Draws lines in place of those before, and leaves the cursor below them. Nothing on a terminal that cannot move
    /// its cursor, nor while we are in its background: then it is somebody else's.
    pub fn draw(&mut self, mut lines: Vec<Line>) -> io::Result<()> {
        let paper = self.paper();
        if !paper.moves || is_background(&self.out) {
            self.drawn.clear();
            return Ok(());
        }
        let room = paper.rows.saturating_sub(1);
        if lines.len() > room {
            let more = lines.len() + 1 - room;
            lines.truncate(room.saturating_sub(1));
            lines.push(paper.line().put(Style::Faint, &format!("and {more} more")));
        }
        let mut text = self.home(paper);
        for line in &lines {
            text.push_str(line.text());
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.drawn = lines.iter().map(|line| line.width).collect();
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush())
    }

    /// Takes away what was drawn.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.drawn.is_empty() { Ok(()) } else { self.draw(Vec::new()) }
    }

    /// Says a line that stays, above what is drawn next.
    pub fn say(&mut self, line: &Line) -> io::Result<()> {
        self.clear()?;
        self.out.write_all(format!("{}\n", line.text()).as_bytes()).and_then(|()| self.out.flush())
    }

    /// Moves to the first line that was drawn. In a window that has become narrower, each takes more of them now.
    fn home(&self, paper: Paper) -> String {
        let up: usize = self.drawn.iter().map(|width| width.div_ceil(paper.columns + 1).max(1)).sum();
        if up == 0 { "\r".to_owned() } else { format!("\r\x1b[{up}A") }
    }
}

/// Whether the terminal's foreground is another process group than ours.
fn is_background(out: &impl AsFd) -> bool {
    // SAFETY: tcgetpgrp(3) and getpgrp(2) take numbers; the first gives -1 where it is not our terminal at all.
    let (front, ours) = unsafe { (libc::tcgetpgrp(out.as_fd().as_raw_fd()), libc::getpgrp()) };
    front > 0 && front != ours
}

static LAST_WORDS: OnceLock<String> = OnceLock::new();

/// Lets SIGINT say one line on standard error before we die of it, as a shell expects. Where it is ignored, it stays so.
pub fn on_interrupt(words: &str) {
    // The terminal's own ^C stands before it.
    let _ = LAST_WORDS.set(format!("\r{}\n", clean(words)));
    let action = SigAction::new(SigHandler::Handler(interrupted), SaFlags::SA_RESETHAND, SigSet::empty());
    // SAFETY: the handler makes only calls that signal-safety(7) lists.
    unsafe {
        if let Ok(before) = sigaction(Signal::SIGINT, &action)
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            let _ = sigaction(Signal::SIGINT, &before);
        }
    }
}

extern "C" fn interrupted(_: i32) {
    let words = LAST_WORDS.get().map_or(&[][..], |words| words.as_bytes());
    // SAFETY: the bytes are ours, and as many as we say.
    unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    // Its default action is back (SA_RESETHAND), and takes place as soon as we return.
    let _ = raise(Signal::SIGINT);
}

/// How much of a limit is spent: `[###.......]`. Without a limit or room for it, nothing.
pub fn bar(spent: Duration, limit: Option<Duration>, cells: usize) -> Option<(Style, String)> {
    let limit = limit.filter(|limit| !limit.is_zero() && cells > 0)?;
    let part = (spent.as_secs_f64() / limit.as_secs_f64()).min(1.0);
    let style = if part < 0.5 {
        Style::Green
    } else if part < 0.8 {
        Style::Yellow
    } else {
        Style::Red
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let full = ((part * cells as f64) as usize).min(cells);
    Some((style, format!("[{}{}]", "#".repeat(full), ".".repeat(cells - full))))
}

/// A limit for people: `20m`, not `20m00s`.
pub fn limit(limit: Duration) -> String {
    let span = moment::span(limit);
    span.strip_suffix("00s")
        .or(span.strip_suffix("00m"))
        .or(span.strip_suffix("00h"))
        .map_or(span.clone(), str::to_owned)
}

/// A size for people: `512 B`, `12.3 KiB`.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.ilog2() / 10) as usize;
    // Tenths, in whole numbers.
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_is_left() {
        assert_eq!(clean("\x1b[1;32mok\x1b[m\tyes\0"), "ok yes");
        assert_eq!(clean("\x1b]0;title\x07\u{9b}2J\r\x1b[\x1b\u{202e}"), "�]0;title��2J��[��");
        assert_eq!(clean("\x1b[38;5"), "�[38;5");
    }

    #[test]
    fn a_line_fits_its_window() {
        let paper = Paper { columns: 7, ..Paper::ENDLESS };
        assert_eq!(paper.line().put(Style::Red, "12345678").text(), "1234567");
        assert_eq!(paper.line().put(Style::Plain, "日本語です").text(), "日本語");
        assert_eq!(paper.line().cell(Style::Plain, "日本", 3).put(Style::Plain, "end").text(), "日   en");
        let colour = Paper { colour: true, ..paper };
        assert_eq!(colour.line().put(Style::Red, "123456789").put(Style::Bold, "0").text(), "\x1b[31m1234567\x1b[m");
        assert_eq!(Paper { columns: 0, ..paper }.line().cell(Style::Plain, "a", 1).text(), "");
    }

    #[test]
    fn figures_for_people() {
        let bars = [0, 4, 5, 9, 10, 99].map(|s| bar(Duration::from_secs(s), Some(Duration::from_secs(10)), 5));
        let bars = bars.map(|bar| bar.map(|(_, text)| text).unwrap_or_default());
        assert_eq!(bars, ["[.....]", "[##...]", "[##...]", "[####.]", "[#####]", "[#####]"]);
        assert_eq!(
            [20, 1200, 1230, 7200, 172_800].map(|s| limit(Duration::from_secs(s))),
            ["20s", "20m", "20m30s", "2h", "2d"]
        );
        assert_eq!(
            [0, 1023, 1024, 12_595, 1 << 20, u64::MAX].map(size),
            ["0 B", "1023 B", "1.0 KiB", "12.2 KiB", "1.0 MiB", "15.9 EiB"]
        );
    }
}
