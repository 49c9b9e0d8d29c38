//! Points in time on the wall clock, as durations since the epoch: for records and for people, never for deadlines.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

fn date(moment: Duration) -> OffsetDateTime {
    let nanos = i128::try_from(moment.as_nanos()).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// RFC 3339 in UTC with milliseconds: `2026-11-30T19:27:42.123Z`.
pub fn rfc3339(moment: Duration) -> String {
    let d = date(moment);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        d.year(),
        u8::from(d.month()),
        d.day(),
        d.hour(),
        d.minute(),
        d.second(),
        d.millisecond()
    )
}

/// The basic form that ids start with: `20261130T192742Z`.
pub fn stamp(moment: Duration) -> String {
    let d = date(moment);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        d.year(),
        u8::from(d.month()),
        d.day(),
        d.hour(),
        d.minute(),
        d.second()
    )
}

/// Reads RFC 3339; `None` where it is none, or before the epoch.
pub fn parse(text: &str) -> Option<Duration> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(date.unix_timestamp_nanos()).ok().map(Duration::from_nanos)
}

/// A span for people: `42s`, `3m10s`, `2h05m`, `3d04h`.
pub fn span(length: Duration) -> String {
    let s = length.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_back_to_the_millisecond() {
        let moment = Duration::from_millis(1_796_066_862_123);
        assert_eq!(rfc3339(moment), "2026-11-30T19:27:42.123Z");
        assert_eq!(parse(&rfc3339(moment)), Some(moment));
        assert_eq!(stamp(moment), "20261130T192742Z");
        assert_eq!(parse("2026-11-30T20:27:42.123+01:00"), Some(moment));
        for bad in ["", "yesterday", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn spans_for_people() {
        let spans: Vec<String> = [9, 190, 7500, 273_600].map(|s| span(Duration::from_secs(s))).into();
        assert_eq!(spans, ["9s", "3m10s", "2h05m", "3d04h"]);
    }
}
