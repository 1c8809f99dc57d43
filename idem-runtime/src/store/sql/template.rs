//! Templates of statements: their parameters (`?1`), and the part that is repeated for each of several calls
//! (`[separator|part]`).

use std::fmt::Write as _;

use super::argument::SqlArgument;
use super::dialect::{Around, Dialect};

/// A part of a template.
enum Piece<'a> {
    Text(&'a str),
    /// An argument, counted from zero.
    Argument(usize),
}

/// Splits a template at its parameters.
fn split<'a>(template: &'a str, mut take: impl FnMut(Piece<'a>)) {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('?') {
        take(Piece::Text(before));
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = after[..digits].parse::<usize>().unwrap_or(1);
        take(Piece::Argument(number - 1));
        rest = &after[digits..];
    }
    take(Piece::Text(rest));
}

/// Numbered parameters as `?`, and the argument of each, from 0 on.
pub(super) fn positional(template: &str) -> (String, Vec<usize>) {
    let (mut text, mut order) = (String::with_capacity(template.len()), Vec::new());
    split(template, |piece| match piece {
        Piece::Text(piece) => text.push_str(piece),
        Piece::Argument(index) => {
            text.push('?');
            order.push(index);
        }
    });
    (text, order)
}

/// A template with a repeated part.
pub(super) struct Repeated<'a> {
    pub(super) before: &'a str,
    pub(super) separator: &'a str,
    pub(super) part: &'a str,
    pub(super) after: &'a str,
}

impl<'a> Repeated<'a> {
    pub(super) fn of(template: &'a str) -> Self {
        let (before, repeated) = template.split_once('[').unwrap_or((template, ""));
        let (part, after) = repeated.split_once(']').unwrap_or_default();
        let (separator, part) = part.split_once('|').unwrap_or_default();
        Self {
            before,
            separator,
            part,
            after,
        }
    }
}

/// The text for several calls, whose parameters are positional.
#[cfg(feature = "_sqlite")]
pub(super) fn for_calls(template: &Repeated<'_>, calls: usize) -> String {
    let parts = vec![template.part; calls].join(template.separator);
    format!("{}{parts}{}", template.before, template.after)
}

/// Several statements in one message, with their arguments in the text.
///
/// Each argument but a number is written as the digits of its bytes, so that no part of it can end the literal.
pub(super) fn with_literals(
    dialect: &Dialect,
    template: &str,
    arguments: &[SqlArgument<'_>],
) -> String {
    let mut text = String::with_capacity(template.len() + 512);
    push(dialect, &mut text, template, arguments);
    text
}

/// The text with the arguments of several calls in it.
pub(super) fn with_calls(
    dialect: &Dialect,
    template: &str,
    calls: &[Vec<SqlArgument<'_>>],
) -> String {
    let template = Repeated::of(template);
    let mut text = template.before.to_owned();
    for (number, arguments) in calls.iter().enumerate() {
        if number > 0 {
            text.push_str(template.separator);
        }
        push(dialect, &mut text, template.part, arguments);
    }
    text.push_str(template.after);
    text
}

fn push(dialect: &Dialect, text: &mut String, template: &str, arguments: &[SqlArgument<'_>]) {
    split(template, |piece| match piece {
        Piece::Text(piece) => text.push_str(piece),
        Piece::Argument(index) => match arguments[index] {
            SqlArgument::Bytes(bytes) => literal(text, dialect.bytes, bytes),
            SqlArgument::Int(number) => {
                let _ = write!(text, "{number}");
            }
            SqlArgument::Text(value) => literal(text, dialect.text, value.as_bytes()),
            // No script has an array.
            SqlArgument::Null | SqlArgument::Array(_) => text.push_str("NULL"),
        },
    });
}

fn literal(text: &mut String, (before, after): Around, bytes: &[u8]) {
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
