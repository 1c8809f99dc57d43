//! Durations among the arguments, and the range of each.

use crate::args::DurationArg;
use crate::duration::{format_millis, parse_millis};
use std::ops::RangeInclusive;
use syn::{Error, Expr, Result};

/// A checked duration, or an expression that the runtime checks.
pub(crate) enum DurationSetting {
    Millis(u64),
    Expr(Expr),
    Forever,
}

/// Allowed milliseconds.
pub(super) type Range = RangeInclusive<u64>;

const DAY: u64 = 86_400_000;

/// In the order in which they are passed on.
pub(super) const DURATIONS: [(&str, Range); 4] = [
    ("ttl", 1_000..=3_650 * DAY),
    ("error_ttl", 1_000..=3_650 * DAY),
    ("lease", 100..=DAY),
    ("max_run", 100..=3_650 * DAY),
];

pub(super) const WAIT: Range = 1..=u64::MAX;

pub(super) fn check(name: &str, arg: &DurationArg, range: &Range) -> Result<DurationSetting> {
    let least = format_millis(*range.start());
    let (span, message) = match arg {
        DurationArg::Expr(expr) => return Ok(DurationSetting::Expr(expr.clone())),
        DurationArg::Forever(word) => match no_forever(name) {
            None => return Ok(DurationSetting::Forever),
            Some(message) => (word.span(), message),
        },
        DurationArg::Text(text) => {
            let message = match parse_millis(&text.value()) {
                Ok(0) => match name {
                    // Zero often means "not at all", for which there is another argument.
                    "wait" => "`wait` is zero; to reject a duplicate of a running call, write `on_running = reject`"
                        .to_owned(),
                    "error_ttl" => {
                        "`error_ttl` is zero; to store no errors, write `on_error = release`".to_owned()
                    }
                    _ => format!("`{name}` is zero; write at least \"{least}\""),
                },
                Ok(millis) if range.contains(&millis) => {
                    return Ok(DurationSetting::Millis(millis));
                }
                Ok(_) => {
                    let most = format_millis(*range.end());
                    format!("`{name}` must be between {least} and {most}")
                }
                Err(_) if text.value() == "forever" => no_forever(name).unwrap_or_else(|| {
                    format!("`forever` is a keyword; remove the quotes: `{name} = forever`")
                }),
                Err(defect) => format!("`{name}` {defect}"),
            };
            (text.span(), message)
        }
    };
    Err(Error::new(span, message))
}

/// Why the argument cannot be `forever`; only `ttl` and `error_ttl` can: a claim or a wait without a limit would never
/// end.
fn no_forever(name: &str) -> Option<String> {
    let because = match name {
        "ttl" | "error_ttl" => return None,
        "lease" => "the key would remain claimed after a crash; write a duration such as \"30s\"",
        "max_run" => {
            "a body that hangs would hold its claim for ever; write a duration such as \"1h\""
        }
        _ => "a caller must not wait without a limit; write a duration such as \"5s\"",
    };
    Some(format!("`{name}` cannot be `forever`: {because}"))
}
