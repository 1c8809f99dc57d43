//! Texts and maps in replies.

use redis::Value;

/// The text of a string reply.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// Names with their values: a map in RESP3, a list in RESP2.
pub(super) fn pairs(reply: Value) -> Option<Vec<(Value, Value)>> {
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
pub(super) fn text_pairs(reply: Value) -> impl Iterator<Item = (String, String)> {
    let pairs = pairs(reply).unwrap_or_default().into_iter();
    pairs.filter_map(|(name, value)| Some((text(&name)?, text(&value)?)))
}
