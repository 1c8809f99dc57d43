//! Replies of the RESP protocols, versions 2 and 3: <https://redis.io/docs/latest/develop/reference/protocol-spec>.
//!
//! The shapes of idem's own commands are read here: texts, numbers, nothing, and arrays of these. The client library
//! reads every other one, errors among them, from the bytes of its frame, so that both agree on what they mean. Messages of
//! channels, texts and maps are read from the values.

use std::io;

use redis::{RedisError, RedisResult, Value};
use tokio::sync::mpsc::UnboundedSender;

/// Deepest nesting of a reply. The scripts return arrays of plain values.
const MAX_DEPTH: u32 = 32;

/// Longest text, and largest number of elements; a server sends no text of more than half of it.
const MAX_LENGTH: usize = 1 << 30;

/// The first frame of some bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// It is not complete yet.
    Partial,
    /// A reply, and its length in bytes.
    Reply(Value, usize),
    /// A message that replies to no command, and its length in bytes.
    Push(usize),
}

/// Reads the first frame.
///
/// # Errors
///
/// Bytes that are no frame: the connection cannot be used any further.
pub(super) fn first(bytes: &[u8]) -> RedisResult<Frame> {
    Ok(match end(bytes, 0)? {
        None => Frame::Partial,
        Some(end) if bytes[0] == b'>' => Frame::Push(end),
        Some(end) => Frame::Reply(value(&bytes[..end])?.0, end),
    })
}

/// The length of a first text frame's text, and the frame's; `None`: it is none, or its length is not known.
pub(super) fn text_frame(bytes: &[u8]) -> RedisResult<Option<(usize, usize)>> {
    if !bytes.starts_with(b"$") {
        return Ok(None);
    }
    let Some((line, begin)) = line(bytes)? else {
        return Ok(None);
    };
    Ok(count(line)?.map(|length| (length, begin + length + 2)))
}

/// The length of the first frame; `None`: it is not complete.
fn end(bytes: &[u8], depth: u32) -> RedisResult<Option<usize>> {
    let Some((line, begin)) = line(bytes)? else {
        return Ok(None);
    };
    let children = match bytes[0] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => return Ok(Some(begin)),
        b'$' | b'=' | b'!' => {
            let Some(length) = count(line)? else {
                return Ok(Some(begin));
            };
            let end = begin + length + 2;
            return match bytes.get(end - 2..end) {
                None => Ok(None),
                Some(b"\r\n") => Ok(Some(end)),
                Some(_) => Err(no_frame()),
            };
        }
        b'*' | b'~' | b'>' => count(line)?.unwrap_or(0),
        b'%' => count(line)?.unwrap_or(0) * 2,
        // Attributes precede the reply that they describe.
        b'|' => count(line)?.unwrap_or(0) * 2 + 1,
        _ => return Err(no_frame()),
    };
    if depth == MAX_DEPTH {
        return Err(no_frame());
    }
    let mut at = begin;
    for _ in 0..children {
        match end(&bytes[at..], depth + 1)? {
            Some(length) => at += length,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The value of the first complete frame, and its length in bytes. A push is an array.
pub(super) fn value(bytes: &[u8]) -> RedisResult<(Value, usize)> {
    let (line, begin) = line(bytes)?.ok_or_else(no_frame)?;
    let plain = match bytes[0] {
        b'$' => match count(line)? {
            None => (Value::Nil, begin),
            Some(length) => (
                Value::BulkString(bytes[begin..begin + length].to_vec()),
                begin + length + 2,
            ),
        },
        b':' => (Value::Int(number(line)?), begin),
        b'+' if line == b"OK" => (Value::Okay, begin),
        b'_' if line.is_empty() => (Value::Nil, begin),
        b'*' | b'>' => match count(line)? {
            None => (Value::Nil, begin),
            Some(children) => {
                let mut at = begin;
                // Each of them has four bytes at least.
                let mut values = Vec::with_capacity(children.min(bytes.len() / 4));
                for _ in 0..children {
                    let (child, length) = value(&bytes[at..])?;
                    values.push(child);
                    at += length;
                }
                (Value::Array(values), at)
            }
        },
        _ => {
            let end = end(bytes, 0)?.ok_or_else(no_frame)?;
            (redis::parse_redis_value(&bytes[..end])?, end)
        }
    };
    Ok(plain)
}

/// The first line without type and end, and the position after it; `None`: it is not complete.
fn line(bytes: &[u8]) -> RedisResult<Option<(&[u8], usize)>> {
    /// Longest line; longer texts have a length before them.
    const MAX_LINE: usize = 64 * 1_024;
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) if at >= 2 && bytes[at - 1] == b'\r' => Ok(Some((&bytes[1..at - 1], at + 1))),
        None if bytes.len() <= MAX_LINE => Ok(None),
        _ => Err(no_frame()),
    }
}

/// A length, or none: `-1`.
fn count(line: &[u8]) -> RedisResult<Option<usize>> {
    match number(line)? {
        -1 => Ok(None),
        number => match usize::try_from(number) {
            Ok(count) if count <= MAX_LENGTH => Ok(Some(count)),
            _ => Err(no_frame()),
        },
    }
}

fn number(line: &[u8]) -> RedisResult<i64> {
    let digits = if let [b'-' | b'+', digits @ ..] = line {
        digits
    } else {
        line
    };
    if digits.is_empty() || digits.len() > 19 {
        return Err(no_frame());
    }
    let mut number = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(no_frame());
        }
        // Towards the negative end, which is one further away.
        number = (number.checked_mul(10))
            .and_then(|number| number.checked_sub(i64::from(digit - b'0')))
            .ok_or_else(no_frame)?;
    }
    if line[0] == b'-' {
        Ok(number)
    } else {
        number.checked_neg().ok_or_else(no_frame)
    }
}

/// The error of bytes that are no reply. It ends the connection, as its loss does.
fn no_frame() -> RedisError {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the server does not speak the protocol of Redis",
    )
    .into()
}

/// A message of a channel.
pub(crate) struct Published {
    pub(crate) channel: String,
    pub(crate) payload: Vec<u8>,
}

impl Published {
    /// Delivers a message; returns any other reply.
    pub(super) fn deliver(reply: Value, messages: &UnboundedSender<Self>) -> Option<Value> {
        let Value::Array(parts) = reply else {
            return Some(reply);
        };
        if !matches!(parts.first(), Some(Value::BulkString(kind)) if kind == b"message" || kind == b"smessage")
        {
            return Some(Value::Array(parts));
        }
        if let Ok([_, Value::BulkString(channel), Value::BulkString(payload)]) =
            <[Value; 3]>::try_from(parts)
            && let Ok(channel) = String::from_utf8(channel)
        {
            // The receiver may be gone, and the connection with it.
            let _ = messages.send(Self { channel, payload });
        }
        None
    }
}

/// Whether a push is the reply to a subscription or its end.
pub(crate) fn is_confirmation(push: &Value) -> bool {
    matches!(push, Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(kind)) if kind.ends_with(b"subscribe")))
}

/// The text of a string reply.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// Names with their values: a map in RESP3, a list in RESP2.
pub(crate) fn pairs(reply: Value) -> Option<Vec<(Value, Value)>> {
    match reply {
        Value::Map(pairs) => Some(pairs),
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            Some(std::iter::from_fn(|| Some((parts.next()?, parts.next()?))).collect())
        }
        _ => None,
    }
}

/// The pairs of a map whose name and value are texts.
pub(crate) fn text_pairs(reply: Value) -> impl Iterator<Item = (String, String)> {
    let pairs = pairs(reply).unwrap_or_default().into_iter();
    pairs.filter_map(|(name, value)| Some((text(&name)?, text(&value)?)))
}

#[cfg(test)]
mod tests;
