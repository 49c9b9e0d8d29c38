//! Properties that hold for any knob and any document, by a generator whose seed a failure prints.
//! `PROPERTY_SEED=n` plays one seed again.
#![allow(clippy::unwrap_used)]

use std::panic::catch_unwind;
use std::time::Duration;

use jobdir::json::{self, Object};
use jobdir::record::Record;
use jobdir::windows::{Limits, Windows};
use reap::duration;
use serde_json::Value;

#[allow(dead_code)]
#[path = "../../fuzz/checks.rs"]
mod checks;

/// How many seeds a property is tried with.
const TRIES: u64 = 3000;

/// splitmix64: every seed is as good as any other.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// From nothing to a century, of any order of magnitude; often one of the edges.
    fn duration(&mut self) -> Duration {
        let century = duration::LONGEST;
        match self.below(8) {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(1),
            2 => century,
            3 => Duration::from_secs(self.below(1000)),
            _ => {
                let bits = self.below(62);
                Duration::from_nanos(self.next() >> (63 - bits)).min(century)
            }
        }
    }

    /// A limit as a knob gives it: 0 is none.
    fn limit(&mut self) -> Option<Duration> {
        Some(self.duration()).filter(|limit| !limit.is_zero())
    }

    fn limits(&mut self) -> Limits {
        Limits {
            idle: self.limit(),
            hard: self.limit(),
            grace: self.duration(),
            start: self.limit(),
            supervisor: self.limit(),
        }
    }

    /// White space between two tokens.
    fn space(&mut self, into: &mut String) {
        for _ in 0..self.below(6).saturating_sub(3) {
            into.push_str(self.pick(&[" ", "\n", "\r\n", "\t", "\r", "  "]));
        }
    }

    /// A string with its quotes, escaped in every way that JSON knows.
    fn string(&mut self, into: &mut String) {
        into.push('"');
        for _ in 0..self.below(6) {
            into.push_str(self.pick(&[
                "a",
                " ",
                "\\\"",
                "\\\\",
                "\\/",
                "\\n",
                "\\r",
                "\\u000a",
                "\\ud83d\\ude00",
                "{",
                "}",
                "[",
                "]",
                ":",
                ",",
                "é",
                "\u{2028}",
                "\u{7f}",
                "\u{85}",
                "'",
            ]));
        }
        into.push('"');
    }

    /// A value with white space around it.
    fn value(&mut self, into: &mut String, depth: u64) {
        self.space(into);
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => self.string(into),
            1 => into.push_str(self.pick(&["null", "true", "false"])),
            2 | 3 => into.push_str(self.pick(&[
                "0",
                "-0",
                "1.50",
                "-0.0e-7",
                "1E+2",
                "12345678901234567890",
                "1e400",
                "0.1000",
                "18446744073709551616",
            ])),
            4 => {
                into.push('[');
                for at in 0..self.below(4) {
                    if at > 0 {
                        into.push(',');
                    }
                    self.value(into, depth - 1);
                }
                self.space(into);
                into.push(']');
            }
            _ => self.object(into, depth - 1, &[]),
        }
        self.space(into);
    }

    /// An object with these members among others, in any order.
    fn object(&mut self, into: &mut String, depth: u64, members: &[&str]) {
        let mut all: Vec<String> = members.iter().map(|&member| member.to_owned()).collect();
        for at in 0..self.below(4) {
            let mut member = format!("\"new{at}");
            let mut rest = String::new();
            self.string(&mut rest);
            member.push_str(&rest[1..]);
            self.space(&mut member);
            member.push(':');
            self.value(&mut member, depth);
            let place = self.below(all.len() as u64 + 1);
            all.insert(usize::try_from(place).unwrap(), member);
        }
        into.push('{');
        for (at, member) in all.iter().enumerate() {
            if at > 0 {
                into.push(',');
            }
            self.space(into);
            into.push_str(member);
            self.space(into);
        }
        into.push('}');
    }
}

/// Tries a property with many seeds; the first that fails is named.
fn hold(property: fn(&mut Random)) {
    let one = std::env::var("PROPERTY_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..TRIES, |seed: u64| seed..seed + 1) {
        let tried = catch_unwind(|| property(&mut Random(seed)));
        assert!(tried.is_ok(), "PROPERTY_SEED={seed} plays this again");
    }
}

#[test]
fn windows_are_nested_and_never_inverted_whatever_the_knobs_say() {
    hold(|random| {
        let limits = random.limits();
        let all = checks::nested(limits);
        if let (Some(explicit), Some(age), Some(deadline)) = (limits.supervisor, all.age, all.deadline) {
            assert_eq!(age, explicit.max(deadline), "an explicit window wins, but not below the caller's deadline");
        }
    });
}

#[test]
fn a_job_inside_a_job_always_ends_before_it_and_is_never_given_more() {
    hold(|random| {
        let (limits, left) = (random.limits(), random.duration());
        let inner = limits.clamped(Some(left));
        let hard = inner.hard.unwrap();
        // The shortest limit is a millisecond, since 0 would mean unlimited.
        assert!(hard + inner.grace <= left.max(Duration::from_millis(2)), "{limits:?} within {left:?}: {inner:?}");
        assert!(limits.hard.is_none_or(|outer| hard <= outer) && inner.grace <= limits.grace);
        assert_eq!((inner.idle, inner.start, inner.supervisor), (limits.idle, limits.start, limits.supervisor));
        checks::nested(inner);
        let again = inner.clamped(Some(left));
        assert!(again.hard.unwrap() <= hard && again.grace <= inner.grace);
        assert_eq!(limits.clamped(None), limits);
    });
}

#[test]
fn windows_that_nest_stay_below_what_a_clock_can_count() {
    hold(|random| {
        let Windows { deadline, silence, age, .. } = Windows::from(random.limits());
        for window in [deadline, silence, age].into_iter().flatten() {
            assert!(window <= duration::LONGEST * 5);
        }
    });
}

#[test]
fn a_duration_is_read_back_from_its_seconds_as_it_was() {
    hold(|random| {
        let length = random.duration();
        let seconds = duration::seconds(length);
        assert_eq!(duration::parse(&seconds), Ok(length));
        checks::duration(seconds.as_bytes());
    });
}

#[test]
fn a_duration_is_the_sum_of_its_units() {
    hold(|random| {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
        let (mut text, mut millis) = (String::new(), 0);
        for (unit, length) in units {
            if random.below(2) == 0 {
                let number = random.below(1000);
                text.push_str(&format!("{number}{unit}"));
                millis += number * length;
            }
        }
        let length = duration::parse(&text).ok();
        assert_eq!(length, (!text.is_empty()).then_some(Duration::from_millis(millis)), "{text}");
    });
}

#[test]
fn a_document_says_the_same_on_one_line() {
    hold(|random| {
        let mut text = String::new();
        random.value(&mut text, 4);
        let line = json::one_line(&text);
        assert!(checks::is_line(&line) && checks::is_same(&text, &line), "{text:?}");
        assert_eq!(json::one_line(&line), line);
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), serde_json::from_str::<Value>(&line).ok());
        checks::document(text.as_bytes());
    });
}

#[test]
fn a_record_of_a_newer_tool_goes_through_with_every_field_it_has() {
    hold(|random| {
        let known = ["\"job\":\"j\"", "\"claim\" : \"c\"", "\"status\": \"timeout\"", "\"log_tail2\":\"\\n\""];
        let mut text = String::new();
        random.object(&mut text, 3, &known);
        random.space(&mut text);
        let record = Record::read(text.clone().into_bytes(), "j").unwrap();
        let line = Object::extending(&record.text).text("log_tail", "t").value("attempt", Some(1)).end();
        let (before, after) = (json::fields(&text).unwrap(), json::fields(&line).unwrap());
        assert!(checks::is_line(&line));
        assert_eq!(json::members(&line), json::members(&text) + 2);
        for name in before.names() {
            let value = |fields: &json::Fields<'_>| fields.get(&name).unwrap().get().to_owned();
            assert!(checks::is_same(&value(&before), &value(&after)), "{name} in {text:?}");
        }
        checks::record(text.as_bytes());
    });
}
