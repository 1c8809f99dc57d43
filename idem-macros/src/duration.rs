//! Durations as written in the attribute: `"24h"`.

/// Units from large to small, with their length in milliseconds.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reason why a text is not a duration. Its `Display` follows the name of the argument: "`ttl` is zero".
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DurationError {
    Empty,
    Negative,
    Zero,
    TooLong,
    Fraction,
    NoUnit(String),
    UnknownUnit(String),
    Order,
    Unreadable,
}

impl std::fmt::Display for DurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty; write a number and a unit, such as \"24h\""),
            Self::Negative => f.write_str("cannot be negative; write a duration such as \"24h\""),
            Self::Zero => f.write_str("is zero"),
            Self::TooLong => f.write_str("is too long; its milliseconds must fit in 64 bits"),
            Self::Fraction => f.write_str(
                "is a fraction; write whole numbers, such as \"1h30m\" for one and a half hours",
            ),
            Self::NoUnit(number) => write!(f, "has no unit; write \"{number}s\" for seconds"),
            Self::UnknownUnit(unit) => write!(
                f,
                "has an unknown unit `{unit}`; the units are `ms`, `s`, `m` (minutes), `h`, `d` and `w`"
            ),
            Self::Order => {
                f.write_str("repeats a unit or names a larger one later; write \"1h30m\"")
            }
            Self::Unreadable => {
                f.write_str("is not a duration; write a number and a unit, such as \"24h\"")
            }
        }
    }
}

/// Parses a duration such as `"24h"`, `"1h30m"` or `"500ms"` into milliseconds.
pub(crate) fn parse_millis(text: &str) -> Result<u64, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut rest = text;
    let mut total = 0_u64;
    // Units come from large to small, so each has a larger index than the unit before it.
    let mut smallest_index = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        if after.starts_with(['.', ',']) {
            return Err(DurationError::Fraction);
        }
        if number.is_empty() {
            return Err(DurationError::Unreadable);
        }
        let (unit, after) = split(after, char::is_alphabetic);
        if unit.is_empty() {
            let unitless = after.is_empty();
            return Err(if unitless {
                DurationError::NoUnit(number.into())
            } else {
                DurationError::Unreadable
            });
        }
        let index = UNITS.iter().position(|(name, _)| *name == unit);
        let index = index.ok_or_else(|| DurationError::UnknownUnit(unit.into()))?;
        if index < smallest_index {
            return Err(DurationError::Order);
        }
        smallest_index = index + 1;
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(UNITS[index].1));
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or(DurationError::TooLong)?;
        rest = after;
    }
    if total == 0 {
        Err(DurationError::Zero)
    } else {
        Ok(total)
    }
}

/// Formats milliseconds for messages, in the largest unit that divides them; never in weeks, so that `ttl` has
/// the limit `3650d`.
pub(crate) fn format_millis(millis: u64) -> String {
    let (name, size) = UNITS
        .into_iter()
        .find(|(name, size)| *name != "w" && millis.is_multiple_of(*size))
        .unwrap_or(("ms", 1));
    format!("{}{name}", millis / size)
}

/// Splits a text after its first characters that are `inside`.
fn split(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::{DurationError, format_millis, parse_millis};

    #[test]
    fn every_unit_is_read() {
        assert_eq!(parse_millis("1ms"), Ok(1));
        assert_eq!(parse_millis("2s"), Ok(2_000));
        assert_eq!(parse_millis("3m"), Ok(180_000));
        assert_eq!(parse_millis("24h"), Ok(86_400_000));
        assert_eq!(parse_millis("7d"), Ok(604_800_000));
        assert_eq!(parse_millis("1w"), Ok(604_800_000));
    }

    #[test]
    fn units_are_combined_from_large_to_small() {
        assert_eq!(parse_millis("1h30m"), Ok(5_400_000));
        assert_eq!(parse_millis("1s500ms"), Ok(1_500));
        assert_eq!(parse_millis("0h1s"), Ok(1_000));
        assert_eq!(parse_millis("30m1h"), Err(DurationError::Order));
        assert_eq!(parse_millis("1h1h"), Err(DurationError::Order));
    }

    #[test]
    fn each_invalid_text_has_its_own_error() {
        assert_eq!(parse_millis(""), Err(DurationError::Empty));
        assert_eq!(parse_millis("-1h"), Err(DurationError::Negative));
        assert_eq!(parse_millis("0s"), Err(DurationError::Zero));
        assert_eq!(parse_millis("0h0m"), Err(DurationError::Zero));
        assert_eq!(parse_millis("30"), Err(DurationError::NoUnit("30".into())));
        assert_eq!(
            parse_millis("1h30"),
            Err(DurationError::NoUnit("30".into()))
        );
        assert_eq!(parse_millis("3 hours"), Err(DurationError::Unreadable));
        assert_eq!(
            parse_millis("3hours"),
            Err(DurationError::UnknownUnit("hours".into()))
        );
        assert_eq!(
            parse_millis("3µs"),
            Err(DurationError::UnknownUnit("µs".into()))
        );
        assert_eq!(parse_millis("1.5h"), Err(DurationError::Fraction));
        assert_eq!(parse_millis("h"), Err(DurationError::Unreadable));
        assert_eq!(parse_millis("1h-5m"), Err(DurationError::Unreadable));
    }

    #[test]
    fn more_than_64_bits_of_milliseconds_is_too_long() {
        assert_eq!(parse_millis("18446744073709551615ms"), Ok(u64::MAX));
        assert_eq!(
            parse_millis("18446744073709551616ms"),
            Err(DurationError::TooLong)
        );
        assert_eq!(
            parse_millis("18446744073709551615s"),
            Err(DurationError::TooLong)
        );
        assert_eq!(
            parse_millis("18446744073709551s616ms"),
            Err(DurationError::TooLong)
        );
    }

    #[test]
    fn a_limit_is_printed_in_its_largest_unit_below_a_week() {
        assert_eq!(format_millis(100), "100ms");
        assert_eq!(format_millis(86_400_000), "1d");
        assert_eq!(format_millis(3_650 * 86_400_000), "3650d");
    }
}
