//! Several statements in one message, with their arguments in the text.

use std::fmt::Write as _;

use super::argument::Argument;
use super::backend::SqlDriver;
use super::parameters::{TemplatePiece, split};

/// The text with its arguments in it.
///
/// Each argument but a number is written as the digits of its bytes, so that no part
/// of it can end the literal.
pub(super) fn with_literals<B: SqlDriver>(template: &str, arguments: &[Argument<'_>]) -> String {
    let mut text = String::with_capacity(template.len() + 512);
    push::<B>(&mut text, template, arguments);
    text
}

/// The text with the arguments of several calls in it.
///
/// Its part in brackets is repeated for each of them: `[separator|part]`.
#[cfg(feature = "mysql")]
pub(super) fn with_calls<B: SqlDriver>(template: &str, calls: &[Vec<Argument<'_>>]) -> String {
    let mut text = String::new();
    let (before, repeated) = template.split_once('[').unwrap_or((template, ""));
    let (part, after) = repeated.split_once(']').unwrap_or_default();
    let (separator, part) = part.split_once('|').unwrap_or_default();
    text.push_str(before);
    for (number, arguments) in calls.iter().enumerate() {
        if number > 0 {
            text.push_str(separator);
        }
        push::<B>(&mut text, part, arguments);
    }
    text.push_str(after);
    text
}

fn push<B: SqlDriver>(text: &mut String, template: &str, arguments: &[Argument<'_>]) {
    split(template, |piece| match piece {
        TemplatePiece::Text(piece) => text.push_str(piece),
        TemplatePiece::Argument(index) => match arguments[index] {
            Argument::Bytes(bytes) | Argument::Body(Some(bytes)) => {
                literal(text, B::BYTES, bytes);
            }
            Argument::Body(None) => text.push_str("NULL"),
            Argument::Int(number) => {
                let _ = write!(text, "{number}");
            }
            Argument::Text(value) => literal(text, B::TEXT, value.as_bytes()),
            // No script has several keys, nor several calls as one of its arguments.
            Argument::Keys(_) | Argument::Calls(_) => {}
        },
    });
}

fn literal(text: &mut String, (before, after): (&str, &str), bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str(before);
    text.reserve(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text.push_str(after);
}
