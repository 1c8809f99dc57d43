//! Several statements in one message, with their arguments in the text.

use std::fmt::Write as _;

use super::backend::{Argument, SqlDriver};

/// A part of a template.
pub(super) enum Piece<'a> {
    Text(&'a str),
    /// An argument, counted from zero.
    Argument(usize),
}

/// Splits a template at its parameters (`?1`).
pub(super) fn pieces<'a>(template: &'a str, mut take: impl FnMut(Piece<'a>)) {
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

/// `?1 … ?2 … ?1` as `? … ? … ?`, of the arguments 0, 1 and 0.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn counted(template: &str) -> (String, Vec<usize>) {
    let (mut text, mut order) = (String::with_capacity(template.len()), Vec::new());
    pieces(template, |piece| match piece {
        Piece::Text(piece) => text.push_str(piece),
        Piece::Argument(index) => {
            text.push('?');
            order.push(index);
        }
    });
    (text, order)
}

/// The text with its arguments in it. Each argument but a number is written as the digits of its bytes, so that no part
/// of it can end the literal.
pub(super) fn written<B: SqlDriver>(template: &str, arguments: &[Argument<'_>]) -> String {
    let mut text = String::with_capacity(template.len() + 512);
    pieces(template, |piece| match piece {
        Piece::Text(piece) => text.push_str(piece),
        Piece::Argument(index) => match arguments[index] {
            Argument::Bytes(bytes) | Argument::Body(Some(bytes)) => {
                literal(&mut text, B::BYTES, bytes);
            }
            Argument::Body(None) => text.push_str("NULL"),
            Argument::Int(number) => {
                let _ = write!(text, "{number}");
            }
            Argument::Text(value) => literal(&mut text, B::TEXT, value.as_bytes()),
            // No script reads several places.
            Argument::Keys(_) => {}
        },
    });
    text
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
