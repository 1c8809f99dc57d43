//! Durations, and the limits of each.

use crate::args::Time;
use crate::duration::{self, Mistake};
use crate::errors::Errors;
use proc_macro2::Span;
use syn::Expr;

pub(crate) enum Length {
    Millis(u64),
    Expr(Expr),
    Forever,
}

/// In milliseconds.
pub(super) struct Limits(u64, u64);

const DAY: u64 = 86_400_000;
pub(super) const TTL: Limits = Limits(1_000, 3_650 * DAY);
pub(super) const LEASE: Limits = Limits(100, DAY);
pub(super) const MAX_RUN: Limits = Limits(100, 3_650 * DAY);
pub(super) const WAIT: Limits = Limits(1, u64::MAX);

pub(super) fn length(
    name: &str,
    time: Option<Time>,
    limits: &Limits,
    errors: &mut Errors,
) -> Option<Length> {
    match time? {
        Time::Expr(expr) => Some(Length::Expr(expr)),
        Time::Forever(word) => forever(name, word.span(), errors),
        Time::Text(text) if text.value() == "forever" => {
            if forever(name, text.span(), errors).is_some() {
                let message = format!("a word stands without quotes; write `{name} = forever`");
                errors.at(text.span(), message);
            }
            None
        }
        Time::Text(text) => match duration::millis(&text.value()) {
            Ok(millis) if millis < limits.0 || millis > limits.1 => {
                let (least, most) = (duration::words(limits.0), duration::words(limits.1));
                errors.at(
                    text.span(),
                    format!("`{name}` is between {least} and {most}"),
                );
                None
            }
            Ok(millis) => Some(Length::Millis(millis)),
            Err(mistake) => {
                errors.at(
                    text.span(),
                    format!("`{name}` {}", advice(name, &mistake, limits)),
                );
                None
            }
        },
    }
}

/// Only answers may be kept for ever.
fn forever(name: &str, span: Span, errors: &mut Errors) -> Option<Length> {
    let because = match name {
        "ttl" | "error_ttl" => return Some(Length::Forever),
        "lease" => "its key would stay taken after a crash; write a duration such as \"30s\"",
        "max_run" => "a body that hangs would keep its key; write a duration such as \"1h\"",
        _ => "a call ends; write a duration such as \"5s\"",
    };
    errors.at(span, format!("`{name}` cannot be `forever`: {because}"));
    None
}

/// Zero often means "not at all", for which there is another argument.
fn advice(name: &str, mistake: &Mistake, limits: &Limits) -> String {
    match (mistake, name) {
        (Mistake::Zero, "wait") => "is zero; not to wait is `on_running = reject`".to_owned(),
        (Mistake::Zero, "error_ttl") => {
            "is zero; not to keep errors is `on_error = release`".to_owned()
        }
        (Mistake::Zero, _) => format!("is zero; write at least \"{}\"", duration::words(limits.0)),
        _ => mistake.to_string(),
    }
}
