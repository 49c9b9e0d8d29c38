//! The one word in a job's `status`.

use std::fmt;

/// The states of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Claimed, and not started yet.
    Claimed,
    /// A watchdog owns it.
    Running,
    /// Exit 0, and the output, if any or if required, is valid.
    Done,
    /// Non-zero exit, signal, invalid output, spawn failure, cancelled.
    Failed,
    /// Ended by the idle or the hard limit.
    Timeout,
    /// We lost sight of it: an audit record, never to be rerun by a machine.
    Unknown,
}

impl Word {
    /// All of them.
    pub const ALL: [Word; 6] = [Word::Claimed, Word::Running, Word::Done, Word::Failed, Word::Timeout, Word::Unknown];

    /// Reads the word alone.
    pub fn parse(word: &str) -> Option<Word> {
        Word::ALL.into_iter().find(|w| w.as_str() == word)
    }

    /// Reads the file: exactly one word and a newline. Anything else is damage.
    pub fn read(file: &[u8]) -> Option<Word> {
        Word::parse(std::str::from_utf8(file).ok()?.strip_suffix('\n')?)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Word::Claimed => "claimed",
            Word::Running => "running",
            Word::Done => "done",
            Word::Failed => "failed",
            Word::Timeout => "timeout",
            Word::Unknown => "unknown",
        }
    }

    /// Whether the job has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Word::Claimed | Word::Running)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_word_and_a_newline() {
        for word in Word::ALL {
            assert_eq!(Word::read(format!("{word}\n").as_bytes()), Some(word));
        }
        for damaged in
            ["", "done", "done\r\n", "done\n\n", " done\n", "done done\n", "DONE\n", "runn\n", "\n", "done\0\n"]
        {
            assert_eq!(Word::read(damaged.as_bytes()), None, "{damaged:?}");
        }
    }
}
