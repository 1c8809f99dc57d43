//! Durations among the arguments, and the range of each.

use crate::args::DurationArg;
use crate::duration::{self, DurationError};
use crate::errors::Errors;
use proc_macro2::Span;
use std::ops::RangeInclusive;
use syn::Expr;

/// A duration whose range was checked, unless it is an expression, which the runtime checks.
pub(crate) enum DurationSetting {
    Millis(u64),
    Expr(Expr),
    Forever,
}

/// Allowed milliseconds.
pub(super) type Range = RangeInclusive<u64>;

const DAY: u64 = 86_400_000;
pub(super) const TTL: Range = 1_000..=3_650 * DAY;
pub(super) const LEASE: Range = 100..=DAY;
pub(super) const MAX_RUN: Range = 100..=3_650 * DAY;
pub(super) const WAIT: Range = 1..=u64::MAX;

/// Checks the duration of the argument `name`.
pub(super) fn check(
    name: &str,
    arg: Option<DurationArg>,
    range: &Range,
    errors: &mut Errors,
) -> Option<DurationSetting> {
    match arg? {
        DurationArg::Expr(expr) => Some(DurationSetting::Expr(expr)),
        DurationArg::Forever(word) => check_forever(name, word.span(), errors),
        DurationArg::Text(text) if text.value() == "forever" => {
            if check_forever(name, text.span(), errors).is_some() {
                let message =
                    format!("`forever` is a keyword; remove the quotes: `{name} = forever`");
                errors.at(text.span(), message);
            }
            None
        }
        DurationArg::Text(text) => match duration::parse_millis(&text.value()) {
            Ok(millis) if range.contains(&millis) => Some(DurationSetting::Millis(millis)),
            Ok(_) => {
                let least = duration::format_millis(*range.start());
                let most = duration::format_millis(*range.end());
                let message = format!("`{name}` must be between {least} and {most}");
                errors.at(text.span(), message);
                None
            }
            Err(error) => {
                let advice = advice(name, &error, range);
                errors.at(text.span(), format!("`{name}` {advice}"));
                None
            }
        },
    }
}

/// Accepts `forever` for `ttl` and `error_ttl` only: a claim or a wait without a limit would never end.
fn check_forever(name: &str, span: Span, errors: &mut Errors) -> Option<DurationSetting> {
    let because = match name {
        "ttl" | "error_ttl" => return Some(DurationSetting::Forever),
        "lease" => "the key would remain claimed after a crash; write a duration such as \"30s\"",
        "max_run" => {
            "a body that hangs would hold its claim for ever; write a duration such as \"1h\""
        }
        _ => "a caller must not wait without a limit; write a duration such as \"5s\"",
    };
    errors.at(span, format!("`{name}` cannot be `forever`: {because}"));
    None
}

/// Text that follows the name. Zero often means "not at all", for which there is another argument.
fn advice(name: &str, error: &DurationError, range: &Range) -> String {
    match (error, name) {
        (DurationError::Zero, "wait") => {
            "is zero; to reject a duplicate of a running call, write `on_running = reject`"
                .to_owned()
        }
        (DurationError::Zero, "error_ttl") => {
            "is zero; to store no errors, write `on_error = release`".to_owned()
        }
        (DurationError::Zero, _) => format!(
            "is zero; write at least \"{}\"",
            duration::format_millis(*range.start())
        ),
        _ => error.to_string(),
    }
}
