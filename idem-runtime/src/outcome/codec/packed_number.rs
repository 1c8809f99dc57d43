//! Numbers of `serde_json` in `MessagePack`, from a build with its feature `arbitrary_precision`.
//!
//! With it, a `Number` serializes as a private struct with its text, which is a map in `MessagePack`. A build without the
//! feature would read the map as a value of its own: a duplicate would get an object in place of the number.

use std::borrow::Cow;

/// The head of the map and its only key.
const HEAD: &[u8] = b"\x81\xbc$serde_json::private::Number";

/// Replaces each map by the number that `serde_json` reads from its text; `Err`: the place of one without a number.
///
/// A build with the feature reads the map itself, with all digits.
pub(super) fn plain_numbers(packed: &[u8]) -> Result<Cow<'_, [u8]>, usize> {
    let mut plain = Vec::new();
    let (mut at, mut copied) = (0, 0);
    // Items follow each other without a mark where a list or map ends, and no length is in bytes: a number of another
    // length changes nothing around it.
    while let Some(rest) = packed.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(text) = rest.strip_prefix(HEAD) else {
            at = length(rest).saturating_add(at);
            continue;
        };
        if is_arbitrary() {
            break;
        }
        let mut text_rest = text;
        let number: Option<serde_json::Number> = rmp_serde::decode::from_read(&mut text_rest)
            .ok()
            .and_then(|text: String| serde_json::from_str(&text).ok());
        plain.extend_from_slice(&packed[copied..at]);
        let number = number.ok_or(at)?;
        rmp_serde::encode::write(&mut plain, &number).map_err(|_| at)?;
        at = packed.len() - text_rest.len();
        copied = at;
    }
    if copied == 0 {
        return Ok(packed.into());
    }
    plain.extend_from_slice(&packed[copied..]);
    Ok(plain.into())
}

/// Whether this build has the feature.
fn is_arbitrary() -> bool {
    serde_json::from_str("1.0e0")
        .is_ok_and(|number: serde_json::Number| number.to_string() != "1.0")
}

/// The bytes of an item, without the items that it contains.
fn length(item: &[u8]) -> usize {
    // Of a length that is not there, the rest of the item is not there either.
    let size = |bytes: usize| {
        let size = item.get(1..=bytes).unwrap_or_default();
        size.iter()
            .fold(0, |size, byte| size << 8 | usize::from(*byte))
    };
    match item[0] {
        head @ 0xa0..=0xbf => 1 + usize::from(head & 0x1f),
        0xc4 | 0xd9 => 2 + size(1),
        0xc5 | 0xda => 3 + size(2),
        0xc6 | 0xdb => size(4).saturating_add(5),
        0xc7 => 3 + size(1),
        0xc8 => 4 + size(2),
        0xc9 => size(4).saturating_add(6),
        0xcc | 0xd0 => 2,
        0xcd | 0xd1 | 0xdc | 0xde => 3,
        0xca | 0xce | 0xd2 | 0xdd | 0xdf => 5,
        0xcb | 0xcf | 0xd3 => 9,
        head @ 0xd4..=0xd8 => 2 + (1 << (head - 0xd4)),
        _ => 1,
    }
}
