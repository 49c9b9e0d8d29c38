//! Durations as people write them: `90`, `0.5`, `90s`, `1.5m`, `2h`, `1d`, `1h30m`, `250ms`.

use std::time::Duration;

/// The units, largest first, with their length in nanoseconds.
const UNITS: [(&str, u128); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// A century: more is a slip of the keyboard, and less never overflows a clock.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// Reads a duration that a person has typed. A bare number counts seconds; units go from large to small, each at most
/// once. Negative values, `nan`, `inf`, exponents, white space, anything trailing, and more than a century are refused
/// with a reason.
pub fn parse(text: &str) -> Result<Duration, String> {
    match read(text) {
        Ok(duration) if duration > LONGEST => Err(format!("'{text}' is longer than a century")),
        read => read,
    }
}

/// Reads a duration that a tool has written: what is derived from a century may be several.
pub fn read(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration (such as 90, 1.5m or 1h30m)");
    let mut rest = text;
    let mut total: u128 = 0;
    let mut smaller = &UNITS[..];
    while !rest.is_empty() || rest.len() == text.len() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let length = if unit.is_empty() && rest.len() == text.len() && tail.is_empty() {
            smaller = &[];
            1_000_000_000
        } else {
            let at = smaller.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
            let length = smaller[at].1;
            smaller = &smaller[at + 1..];
            length
        };
        total += scaled(number, length).ok_or_else(wrong)?;
        rest = tail;
    }
    // No clock overflows by what a tool of ours can have written.
    if total > 16 * LONGEST.as_nanos() {
        return Err(wrong());
    }
    let nanos = u32::try_from(total % 1_000_000_000).map_err(|_| wrong())?;
    let seconds = u64::try_from(total / 1_000_000_000).map_err(|_| wrong())?;
    Ok(Duration::new(seconds, nanos))
}

/// `number` (digits with at most one point) times `length` nanoseconds, rounded down.
fn scaled(number: &str, length: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 20 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(15)];
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    Some(whole * length + part * length / 10_u128.pow(u32::try_from(fraction.len()).ok()?))
}

/// A duration in plain seconds (`600`, `0.3`), as [`parse`] and JSON read them.
pub fn seconds(duration: Duration) -> String {
    match duration.subsec_nanos() {
        0 => duration.as_secs().to_string(),
        nanos => format!("{}.{nanos:09}", duration.as_secs()).trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u128 {
        parse(text).unwrap().as_millis()
    }

    #[test]
    fn the_forms_that_people_write() {
        assert_eq!(ms("90"), 90_000);
        assert_eq!(ms("0.5"), 500);
        assert_eq!(ms(".5"), 500);
        assert_eq!(ms("90s"), 90_000);
        assert_eq!(ms("1.5m"), 90_000);
        assert_eq!(ms("2h"), 7_200_000);
        assert_eq!(ms("1d"), 86_400_000);
        assert_eq!(ms("1h30m"), 5_400_000);
        assert_eq!(ms("250ms"), 250);
        assert_eq!(ms("1d1h1m1s1ms"), 90_061_001);
        assert_eq!(ms("0"), 0);
        assert_eq!(ms("0.1"), 100);
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            " ",
            "-1",
            "+3",
            "nan",
            "NaN",
            "inf",
            "infinity",
            "1e3",
            "1x",
            "5 s",
            "s",
            ".",
            "..",
            "1.2.3",
            "1m1h",
            "1s1s",
            "1h30",
            "10 ",
            "٣",
            "1ms5",
            "0x10",
            "1,5",
            "5S",
            "99999999999999999999999",
            "36526d",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn seconds_are_read_back_as_they_were() {
        for nanos in [0, 1, 999_999_999, 300_000_000, 1_234_567_890, 86_400_000_000_000, 3_155_760_000_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse(&seconds(duration)).unwrap(), duration);
        }
        assert_eq!(seconds(Duration::from_millis(300)), "0.3");
        let longer = LONGEST * 4;
        assert_eq!(read(&seconds(longer)), Ok(longer));
        assert!(parse(&seconds(longer)).is_err());
    }
}
