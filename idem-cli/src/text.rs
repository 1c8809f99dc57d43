//! Durations, times and sizes as text.

use std::time::{Duration, SystemTime};

use idem_runtime::FOREVER;

/// `250ms`, `90s`, `15m`, `24h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: write `90s`, `15m`, `24h` or `7d`");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let millis = number.checked_mul(millis).ok_or_else(wrong)?;
    Ok(Duration::from_millis(millis))
}

/// As [`parse_duration`], between 100 ms and an hour.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(3_600) {
        return Err("it must be between 100ms and 1h".to_owned());
    }
    Ok(interval)
}

/// Two units of a duration: `340ms`, `12s`, `3m 05s`, `2h 10m`, `5d 03h`.
pub(crate) fn duration(duration: Duration) -> String {
    if duration == FOREVER {
        return "for ever".to_owned();
    }
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The time that lies this long back: `2026-11-24 02:31:05 UTC`.
pub(crate) fn moment(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The same with milliseconds: attempts follow each other within a second. `2026-11-24 02:31:05.042 UTC`.
pub(crate) fn exact(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.subsec_millis());
    moment(time).replace(" UTC", &format!(".{millis:03} UTC"))
}

/// The date of a day since 1970, by 400-year cycles from March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_based = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 {
        march_based + 3
    } else {
        march_based - 9
    };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, day)
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 record`, `1,234 records`.
pub(crate) fn records(number: u64) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} record{plural}", count(number))
}

/// A text from the store, as it may be printed: control characters could move the cursor of a terminal, and marks of
/// direction reorder the text around them.
pub(crate) fn printed(text: &str) -> String {
    let is_mark = |character| {
        matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
    };
    text.replace(
        |character: char| character.is_control() || is_mark(character),
        "\u{fffd}",
    )
}

/// Milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds, written) in [
            ("90s", 90, "1m 30s"),
            ("15m", 900, "15m 00s"),
            ("24h", 86_400, "1d 00h"),
            ("7d", 604_800, "7d 00h"),
            ("12s", 12, "12s"),
            ("3h", 10_800, "3h 00m"),
        ] {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_secs(seconds));
            assert_eq!(duration(read), written);
        }
        for wrong in ["", "7", "h", "1.5h", "-1s", "1 h", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(duration(Duration::from_millis(340)), "340ms");
        assert_eq!(duration(FOREVER), "for ever");
    }

    #[test]
    fn a_moment_has_the_date_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_798_761_600, "2027-01-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(moment(time), text);
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_042);
        assert_eq!(exact(time), "1970-01-01 00:00:01.042 UTC");
    }

    #[test]
    fn a_printed_text_has_no_control_characters() {
        let text = "a\x1b[2Jb\nc\td\u{9b}e\u{202e}f\u{2066}g\u{200b}h\u{feff}";
        assert_eq!(printed(text), "a�[2Jb�c�d�e�f�g�h�");
        assert_eq!(
            printed("order …4711, Zürich, 東京, שלום"),
            "order …4711, Zürich, 東京, שלום"
        );
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }
}
