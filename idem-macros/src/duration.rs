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

/// Parses a duration such as `"24h"`, `"1h30m"` or `"500ms"` into milliseconds.
///
/// Else returns the defect, which follows the name of the argument: "`ttl` is a fraction".
pub(crate) fn parse_millis(text: &str) -> Result<u64, String> {
    let other = "is not a duration; write a number and a unit, such as \"24h\"";
    let too_long = "is too long; its milliseconds must fit in 64 bits";
    if text.is_empty() {
        return Err("is empty; write a number and a unit, such as \"24h\"".to_owned());
    }
    if text.starts_with('-') {
        return Err("cannot be negative; write a duration such as \"24h\"".to_owned());
    }
    let mut rest = text;
    let mut total = 0_u64;
    // Units come from large to small, so each has a larger index than the unit before it.
    let mut smallest_index = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit());
        if after.starts_with(['.', ',']) {
            return Err(
                "is a fraction; write whole numbers, such as \"1h30m\" for one and a half hours"
                    .to_owned(),
            );
        }
        if number.is_empty() {
            return Err(other.to_owned());
        }
        let (unit, after) = split(after, char::is_alphabetic);
        if unit.is_empty() {
            return Err(if after.is_empty() {
                format!("has no unit; write \"{number}s\" for seconds")
            } else {
                other.to_owned()
            });
        }
        let Some(index) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(format!(
                "has an unknown unit `{unit}`; the units are `ms`, `s`, `m` (minutes), `h`, `d` and `w`"
            ));
        };
        if index < smallest_index {
            return Err("repeats a unit or names a larger one later; write \"1h30m\"".to_owned());
        }
        smallest_index = index + 1;
        let part = number.parse::<u64>().ok();
        let part = part.and_then(|number| number.checked_mul(UNITS[index].1));
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or(too_long)?;
        rest = after;
    }
    Ok(total)
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
    use super::{format_millis, parse_millis};

    #[test]
    fn units_are_combined_from_large_to_small() {
        for (text, millis) in [
            ("1ms", 1),
            ("2s", 2_000),
            ("3m", 180_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
            ("1w", 604_800_000),
            ("1h30m", 5_400_000),
            ("1s500ms", 1_500),
            ("0h1s", 1_000),
            ("0h0m", 0),
            ("18446744073709551615ms", u64::MAX),
        ] {
            assert_eq!(parse_millis(text), Ok(millis), "{text}");
        }
    }

    /// Beside those of `tests/ui/fail/durations.rs`.
    #[test]
    fn each_invalid_text_has_its_own_error() {
        for (text, begin) in [
            ("30m1h", "repeats a unit"),
            ("1h30", "has no unit; write \"30s\""),
            ("3 hours", "is not a duration"),
            ("3µs", "has an unknown unit `µs`"),
            ("h", "is not a duration"),
            ("1h-5m", "is not a duration"),
            ("18446744073709551615s", "is too long"),
            ("18446744073709551s616ms", "is too long"),
        ] {
            let error = parse_millis(text).expect_err(text);
            assert!(error.starts_with(begin), "{text}: {error}");
        }
    }

    #[test]
    fn a_limit_is_printed_in_its_largest_unit_below_a_week() {
        assert_eq!(format_millis(100), "100ms");
        assert_eq!(format_millis(86_400_000), "1d");
        assert_eq!(format_millis(3_650 * 86_400_000), "3650d");
    }
}
