//! Durations as written in the attribute: `"24h"`.

/// Units from large to small, in milliseconds.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reason why a text is not a duration. `Display` is the rest of a sentence about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
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

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty; write a number and a unit, such as \"24h\""),
            Self::Negative => f.write_str("is negative; a duration runs forward"),
            Self::Zero => f.write_str("is zero"),
            Self::TooLong => f.write_str("is too long; milliseconds have to fit in 64 bits"),
            Self::Fraction => f.write_str(
                "is a fraction; write whole numbers, \"1h30m\" for one and a half hours",
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

/// Milliseconds of `"24h"`, `"1h30m"`, `"500ms"`.
pub(crate) fn millis(text: &str) -> Result<u64, Mistake> {
    if text.is_empty() {
        return Err(Mistake::Empty);
    }
    if text.starts_with('-') {
        return Err(Mistake::Negative);
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut largest_allowed = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        if after.starts_with(['.', ',']) {
            return Err(Mistake::Fraction);
        }
        if number.is_empty() {
            return Err(Mistake::Unreadable);
        }
        let (unit, after) = split(after, char::is_alphabetic);
        if unit.is_empty() {
            let unitless = after.is_empty();
            return Err(if unitless {
                Mistake::NoUnit(number.into())
            } else {
                Mistake::Unreadable
            });
        }
        let place = UNITS.iter().position(|(name, _)| *name == unit);
        let place = place.ok_or_else(|| Mistake::UnknownUnit(unit.into()))?;
        if place < largest_allowed {
            return Err(Mistake::Order);
        }
        largest_allowed = place + 1;
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(UNITS[place].1));
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or(Mistake::TooLong)?;
        rest = after;
    }
    if total == 0 {
        Err(Mistake::Zero)
    } else {
        Ok(total)
    }
}

/// Inverse of `millis`, in the largest unit that fits, for messages.
pub(crate) fn words(millis: u64) -> String {
    let (name, size) = UNITS
        .into_iter()
        .find(|(name, size)| *name != "w" && millis.is_multiple_of(*size))
        .unwrap_or(("ms", 1));
    format!("{}{name}", millis / size)
}

fn split(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::{Mistake, millis, words};

    #[test]
    fn every_unit_is_read() {
        assert_eq!(millis("1ms"), Ok(1));
        assert_eq!(millis("2s"), Ok(2_000));
        assert_eq!(millis("3m"), Ok(180_000));
        assert_eq!(millis("24h"), Ok(86_400_000));
        assert_eq!(millis("7d"), Ok(604_800_000));
        assert_eq!(millis("1w"), Ok(604_800_000));
    }

    #[test]
    fn units_are_combined_from_large_to_small() {
        assert_eq!(millis("1h30m"), Ok(5_400_000));
        assert_eq!(millis("1s500ms"), Ok(1_500));
        assert_eq!(millis("0h1s"), Ok(1_000));
        assert_eq!(millis("30m1h"), Err(Mistake::Order));
        assert_eq!(millis("1h1h"), Err(Mistake::Order));
    }

    #[test]
    fn each_mistake_has_its_own_name() {
        assert_eq!(millis(""), Err(Mistake::Empty));
        assert_eq!(millis("-1h"), Err(Mistake::Negative));
        assert_eq!(millis("0s"), Err(Mistake::Zero));
        assert_eq!(millis("0h0m"), Err(Mistake::Zero));
        assert_eq!(millis("30"), Err(Mistake::NoUnit("30".into())));
        assert_eq!(millis("1h30"), Err(Mistake::NoUnit("30".into())));
        assert_eq!(millis("3 hours"), Err(Mistake::Unreadable));
        assert_eq!(millis("3hours"), Err(Mistake::UnknownUnit("hours".into())));
        assert_eq!(millis("3µs"), Err(Mistake::UnknownUnit("µs".into())));
        assert_eq!(millis("1.5h"), Err(Mistake::Fraction));
        assert_eq!(millis("h"), Err(Mistake::Unreadable));
        assert_eq!(millis("1h-5m"), Err(Mistake::Unreadable));
    }

    #[test]
    fn more_than_64_bits_of_milliseconds_is_too_long() {
        assert_eq!(millis("18446744073709551615ms"), Ok(u64::MAX));
        assert_eq!(millis("18446744073709551616ms"), Err(Mistake::TooLong));
        assert_eq!(millis("18446744073709551615s"), Err(Mistake::TooLong));
        assert_eq!(millis("18446744073709551s616ms"), Err(Mistake::TooLong));
    }

    #[test]
    fn a_limit_is_said_in_its_largest_unit() {
        assert_eq!(words(100), "100ms");
        assert_eq!(words(86_400_000), "1d");
        assert_eq!(words(3_650 * 86_400_000), "3650d");
    }
}
