//! What the command lines of the tools have in common: values of options, read with the option's name in the message.

use std::fmt::Display;
use std::time::Duration;

use crate::duration;
use crate::exit::Fail;

/// The words of one tool's command line.
pub struct Words {
    /// Where they come from.
    pub parser: lexopt::Parser,
    tool: &'static str,
}

impl Words {
    /// Those of `tool`.
    pub fn new(tool: &'static str, parser: lexopt::Parser) -> Words {
        Words { parser, tool }
    }

    /// A wrong call.
    pub fn wrong(&self, why: impl Display) -> Fail {
        Fail::usage(self.tool, why)
    }

    /// The value of `option`, any bytes.
    pub fn value(&mut self) -> Result<std::ffi::OsString, Fail> {
        self.parser.value().map_err(|why| self.wrong(why))
    }

    /// The value of `option`, a text.
    pub fn text(&mut self, option: &str) -> Result<String, Fail> {
        self.value()?.into_string().map_err(|raw| self.wrong(format!("--{option}: '{}' is no text", raw.display())))
    }

    /// The value of `option`, a duration.
    pub fn span(&mut self, option: &str) -> Result<Duration, Fail> {
        let text = self.text(option)?;
        duration::parse(&text).map_err(|why| self.wrong(format!("--{option}: {why}")))
    }

    /// The value of `option`, a number of plain digits up to `most`: a sign is a slip.
    pub fn number(&mut self, option: &str, most: usize) -> Result<usize, Fail> {
        let text = self.text(option)?;
        let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        number
            .filter(|&n| n <= most)
            .ok_or_else(|| self.wrong(format!("--{option}: '{text}' is no number in its range")))
    }

    /// A command: this word and all that follow.
    pub fn command(&mut self, first: std::ffi::OsString) -> Result<Vec<std::ffi::OsString>, Fail> {
        let rest = self.parser.raw_args().map_err(|why| Fail::usage(self.tool, why))?;
        Ok(std::iter::once(first).chain(rest).collect())
    }
}
