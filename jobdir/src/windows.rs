//! The windows of a job: read once, at its claim, and derived from there. No tool has a literal of its own.

use std::ffi::OsString;
use std::time::Duration;

use reap::duration;

use crate::json::{Fields, Object};

/// What a caller may set; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Silence that ends the job.
    pub idle: Option<Duration>,
    /// Age that ends the job.
    pub hard: Option<Duration>,
    /// TERM to KILL.
    pub grace: Duration,
    /// Claim to owner.
    pub start: Option<Duration>,
    /// The age at which a live owner is suspect; `None`: derived.
    pub supervisor: Option<Duration>,
}

/// One knob: its flag, its variable, its default in seconds.
struct Knob {
    flag: &'static str,
    variable: &'static str,
    default: u64,
}

const IDLE: Knob = Knob { flag: "--idle", variable: "JOB_IDLE_SECS", default: 600 };
const HARD: Knob = Knob { flag: "--hard", variable: "JOB_HARD_SECS", default: 0 };
const GRACE: Knob = Knob { flag: "--grace", variable: "JOB_GRACE_SECS", default: 5 };
const START: Knob = Knob { flag: "--start-within", variable: "JOB_START_SECS", default: 60 };
const SUPERVISOR: Knob = Knob { flag: "--supervisor", variable: "JOB_SUPERVISOR_SECS", default: 0 };

/// From the hard limit and its grace to the caller's deadline.
const CALLER_MARGIN: Duration = Duration::from_secs(5);
/// From the hard limit and its grace to the supervisor's hard window.
const SUPERVISOR_MARGIN: Duration = Duration::from_secs(25);
/// How many idle windows a live owner may be silent.
const SILENT_WINDOWS: u32 = 3;
/// What a job inside a job keeps free before the outer deadline, to be reaped and recorded in.
const INNER_MARGIN: Duration = Duration::from_secs(1);
/// The shortest limit: nothing that is clamped may become 0, which means unlimited.
const SHORTEST: Duration = Duration::from_millis(1);

/// The flags of `jobdir claim` as they were typed.
#[derive(Default)]
pub struct Flags {
    /// `--idle`.
    pub idle: Option<Duration>,
    /// `--hard`.
    pub hard: Option<Duration>,
    /// `--grace`.
    pub grace: Option<Duration>,
    /// `--start-within`.
    pub start: Option<Duration>,
    /// `--supervisor`.
    pub supervisor: Option<Duration>,
}

impl Limits {
    /// Flag, else environment, else default. A value of the environment that cannot be read is
    /// reported to `warn`, and the default stands.
    pub fn choose(
        flags: &Flags,
        environment: &dyn Fn(&str) -> Option<OsString>,
        warn: &mut dyn FnMut(String),
    ) -> Limits {
        let mut pick =
            |flag: Option<Duration>, knob: &Knob| flag.unwrap_or_else(|| from_environment(knob, environment, warn));
        let some = |d: Duration| (!d.is_zero()).then_some(d);
        Limits {
            idle: some(pick(flags.idle, &IDLE)),
            hard: some(pick(flags.hard, &HARD)),
            grace: pick(flags.grace, &GRACE),
            start: some(pick(flags.start, &START)),
            supervisor: some(pick(flags.supervisor, &SUPERVISOR)),
        }
    }

    /// Inside a job that must end in `left`, so must this one, its grace included.
    pub fn clamped(self, left: Option<Duration>) -> Limits {
        let (hard, grace) = clamped(self.hard, self.grace, left);
        Limits { hard, grace, ..self }
    }
}

/// A hard limit and a grace that both end within `left`, with a margin to be reaped and recorded in.
pub fn clamped(hard: Option<Duration>, grace: Duration, left: Option<Duration>) -> (Option<Duration>, Duration) {
    let Some(left) = left else { return (hard, grace) };
    let left = left.saturating_sub(INNER_MARGIN.min(left / 10));
    let grace = grace.min(left / 2);
    let most = (left - grace).max(SHORTEST);
    (Some(hard.unwrap_or(most).min(most)), grace)
}

fn from_environment(
    knob: &Knob,
    environment: &dyn Fn(&str) -> Option<OsString>,
    warn: &mut dyn FnMut(String),
) -> Duration {
    let default = Duration::from_secs(knob.default);
    let Some(value) = environment(knob.variable) else { return default };
    let text = value.to_string_lossy();
    duration::parse(&text).unwrap_or_else(|why| {
        let stands = if knob.default == 0 { "unlimited".to_owned() } else { format!("{} s", knob.default) };
        warn(format!("{}: {why}; {} stays {stands}", knob.variable, knob.flag.trim_start_matches('-')));
        default
    })
}

/// All windows of a job, nested: worker's hard limit < caller's deadline <= supervisor's hard window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Silence that ends the job.
    pub idle: Option<Duration>,
    /// Age that ends the job.
    pub hard: Option<Duration>,
    /// TERM to KILL.
    pub grace: Duration,
    /// Claim to owner.
    pub start: Option<Duration>,
    /// How long after its start the caller stops waiting.
    pub deadline: Option<Duration>,
    /// Silence at which a live owner is suspect.
    pub silence: Option<Duration>,
    /// Age at which a live owner is suspect.
    pub age: Option<Duration>,
}

impl From<Limits> for Windows {
    fn from(limits: Limits) -> Windows {
        let Limits { idle, hard, grace, start, supervisor } = limits;
        let deadline = hard.map(|hard| hard + grace + CALLER_MARGIN);
        Windows {
            idle,
            hard,
            grace,
            start,
            deadline,
            silence: idle.map(|idle| idle * SILENT_WINDOWS + grace),
            age: hard.zip(deadline).map(|(hard, deadline)| match supervisor {
                Some(explicit) => explicit.max(deadline),
                None => hard + grace + SUPERVISOR_MARGIN,
            }),
        }
    }
}

impl Windows {
    /// The `limits` of meta.json, in seconds; null is unlimited.
    pub fn to_json(self) -> String {
        let some = |d: Option<Duration>| d.map(duration::seconds);
        Object::new()
            .value("idle_s", some(self.idle))
            .value("hard_s", some(self.hard))
            .value("grace_s", some(Some(self.grace)))
            .value("start_s", some(self.start))
            .value("deadline_s", some(self.deadline))
            .value("supervisor_idle_s", some(self.silence))
            .value("supervisor_hard_s", some(self.age))
            .end()
    }

    /// Reads them back; `None` where one is missing or is no duration.
    pub fn read(fields: &Fields<'_>) -> Option<Windows> {
        let window = |key: &str| match fields.get(key)?.get() {
            "null" => Some(None),
            text => duration::read(text).ok().map(Some),
        };
        Some(Windows {
            idle: window("idle_s")?,
            hard: window("hard_s")?,
            grace: window("grace_s")??,
            start: window("start_s")?,
            deadline: window("deadline_s")?,
            silence: window("supervisor_idle_s")?,
            age: window("supervisor_hard_s")?,
        })
    }
}

/// How long the job that we are part of may still run: `JOB_DEADLINE` (epoch seconds) in the environment. One that
/// cannot be read is reported to `warn` and not regarded.
pub fn outer_deadline(
    environment: &dyn Fn(&str) -> Option<OsString>,
    now: Duration,
    warn: &mut dyn FnMut(String),
) -> Option<Duration> {
    let value = environment("JOB_DEADLINE")?;
    let number = value.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let Some(seconds) = number.and_then(|text| text.parse().ok()) else {
        warn(format!("JOB_DEADLINE: '{}' is no time in epoch seconds; it is not regarded", value.display()));
        return None;
    };
    let deadline = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Some(deadline.saturating_sub(now).min(duration::LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn secs(s: u64) -> Option<Duration> {
        (s > 0).then_some(Duration::from_secs(s))
    }

    fn limits(idle: u64, hard: u64, grace: u64, supervisor: u64) -> Limits {
        Limits {
            idle: secs(idle),
            hard: secs(hard),
            grace: Duration::from_secs(grace),
            start: secs(60),
            supervisor: secs(supervisor),
        }
    }

    #[test]
    fn windows_are_nested_for_any_knob() {
        for idle in [0, 1, 600, 100_000] {
            for hard in [0, 1, 20, 1200, 1_000_000] {
                for grace in [0, 5, 3600] {
                    for supervisor in [0, 1, 1230, 2_000_000] {
                        let w = Windows::from(limits(idle, hard, grace, supervisor));
                        let (Some(hard), Some(deadline), Some(age)) = (w.hard, w.deadline, w.age) else {
                            assert_eq!((w.hard, w.deadline, w.age), (None, None, None));
                            continue;
                        };
                        assert!(hard + w.grace < deadline && deadline <= age, "{w:?}");
                        assert!(
                            w.idle
                                .zip(w.silence)
                                .is_none_or(|(idle, silence)| idle + w.grace < silence || idle.is_zero())
                        );
                    }
                }
            }
        }
        let w = Windows::from(limits(600, 1200, 5, 0));
        assert_eq!((w.deadline, w.silence, w.age), (secs(1210), secs(1805), secs(1230)));
    }

    #[test]
    fn windows_are_read_back_as_they_were() {
        let century = duration::LONGEST.as_secs();
        for w in [limits(600, 0, 5, 0), limits(0, 20, 0, 90), limits(century, century, century, 0)].map(Windows::from) {
            let text = w.to_json();
            assert_eq!(Windows::read(&json::fields(&text).unwrap()), Some(w));
        }
        assert_eq!(Windows::read(&json::fields("{\"idle_s\":\"x\"}").unwrap()), None);
    }

    #[test]
    fn a_bad_value_in_the_environment_is_a_warning_and_the_default() {
        let mut said = Vec::new();
        let environment = |name: &str| match name {
            "JOB_IDLE_SECS" => Some("soon".into()),
            "JOB_HARD_SECS" => Some("1m".into()),
            "JOB_GRACE_SECS" => Some("0".into()),
            _ => None,
        };
        let flags = Flags { start: Some(Duration::ZERO), ..Flags::default() };
        let limits = Limits::choose(&flags, &environment, &mut |warning| said.push(warning));
        assert_eq!((limits.idle, limits.hard, limits.grace), (secs(600), secs(60), Duration::ZERO));
        assert_eq!((limits.start, limits.supervisor), (None, None));
        assert_eq!(said, ["JOB_IDLE_SECS: 'soon' is no duration (such as 90, 1.5m or 1h30m); idle stays 600 s"]);
    }

    #[test]
    fn a_job_inside_a_job_ends_before_it() {
        for left in [0, 1, 3, 60, 1200] {
            let left = Duration::from_secs(left);
            for outer in [limits(600, 0, 5, 0), limits(600, 10, 5, 0), limits(0, 9999, 3600, 0)] {
                let inner = outer.clamped(Some(left));
                let hard = inner.hard.unwrap();
                assert!(hard + inner.grace <= left.max(SHORTEST), "{left:?} {inner:?}");
                assert!(outer.hard.is_none_or(|h| hard <= h));
            }
        }
        assert_eq!(limits(1, 0, 5, 0).clamped(None).hard, None);
    }

    #[test]
    fn an_outer_deadline_that_cannot_be_read_is_a_warning() {
        let left = |value: &'static str, said: &mut Vec<String>| {
            outer_deadline(&|_| Some(value.into()), Duration::from_secs(100), &mut |w| said.push(w))
        };
        let mut said = Vec::new();
        assert_eq!(left("160", &mut said), secs(60));
        assert_eq!(left("50", &mut said), Some(Duration::ZERO));
        assert!(said.is_empty());
        for bad in ["", "tomorrow", "-5", "1e3", "nan", "."] {
            assert_eq!(left(bad, &mut said), None);
        }
        assert_eq!(said.len(), 6);
    }
}
