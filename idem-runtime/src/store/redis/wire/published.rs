//! Messages of the channels to which a connection subscribes, in RESP2 or RESP3.

use redis::Value;
use tokio::sync::mpsc::UnboundedSender;

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
