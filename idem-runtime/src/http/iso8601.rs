//! Durations as text (ISO 8601).

use std::time::Duration;

/// Writes a time as an ISO 8601 duration, such as `PT30M`.
///
/// In hours, minutes and seconds, because a day is not always 24 hours: 30 days are `PT720H`. A part of a second is left
/// out.
#[must_use]
pub fn iso8601_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut text = "PT".to_owned();
    for (number, unit) in [
        (seconds / 3_600, 'H'),
        (seconds / 60 % 60, 'M'),
        (seconds % 60, 'S'),
    ] {
        if number > 0 {
            text.push_str(&number.to_string());
            text.push(unit);
        }
    }
    if seconds == 0 {
        text.push_str("0S");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_hours_minutes_and_seconds() {
        for (seconds, text) in [
            (0, "PT0S"),
            (1, "PT1S"),
            (60, "PT1M"),
            (1_800, "PT30M"),
            (3_600, "PT1H"),
            (3_661, "PT1H1M1S"),
            (86_400, "PT24H"),
            (90_001, "PT25H1S"),
            (30 * 86_400, "PT720H"),
        ] {
            assert_eq!(iso8601_duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!(iso8601_duration(Duration::from_millis(1_999)), "PT1S");
    }
}
