//! Replies of the scripts.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::record::{Header, Journal};
use crate::store::{StoreError, StoreErrorKind, Unreadable};

/// A script's reply: one letter, then its fields. 1 is short for `C` and 0.
pub(super) struct ScriptReply {
    pub(super) code: u8,
    first: Option<Value>,
    second: Option<Value>,
}

impl ScriptReply {
    pub(super) fn parse(value: Value) -> Result<Self, StoreError> {
        let parts = match value {
            Value::Array(parts) => parts,
            Value::Int(1) => {
                return Ok(Self {
                    code: b'C',
                    first: Some(Value::Int(0)),
                    second: None,
                });
            }
            _ => return Err(unexpected()),
        };
        let mut parts = parts.into_iter();
        match parts.next() {
            Some(Value::BulkString(code)) if code.len() == 1 => Ok(Self {
                code: code[0],
                first: parts.next(),
                second: parts.next(),
            }),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn number(&self) -> Result<u64, StoreError> {
        match self.first {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn millis(&self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    pub(super) fn size(&self) -> Result<usize, StoreError> {
        match self.second {
            Some(Value::Int(number)) => usize::try_from(number).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        }
    }

    /// The first field, as bytes.
    pub(super) fn bytes(self) -> Result<Bytes, StoreError> {
        bytes(self.first)
    }

    /// The second field, a journal; empty if it is another.
    pub(super) fn journal(&mut self) -> Journal {
        match self.second.take() {
            Some(Value::BulkString(bytes)) => Journal::new(bytes.into()),
            _ => Journal::default(),
        }
    }

    /// The second field, a record.
    pub(super) fn record(self) -> Result<Bytes, StoreError> {
        bytes(self.second)
    }

    /// The reason for which the value is not a readable record, if that is the reply.
    pub(super) fn unreadable(&self) -> Option<Unreadable> {
        match (self.code, &self.first) {
            (b'I', _) => Some(Unreadable::Immortal),
            (b'V', Some(Value::BulkString(start))) => Some(match Header::decode(start) {
                Err(error) => error,
                // The script and this code disagree about the layout of a record.
                Ok(_) => Unreadable::Type,
            }),
            (b'T', _) => Some(Unreadable::Type),
            _ => None,
        }
    }

    /// The reply for a value that is not a string.
    pub(super) fn wrong_type() -> Self {
        Self {
            code: b'T',
            first: None,
            second: None,
        }
    }
}

/// Whether a script's reply reports a write: a granted claim (`A`, `F`), a completion, release,
/// renewal or resolution (`C`), a lost claim that was written again (`L`).
pub(super) fn wrote(reply: &Value) -> bool {
    match reply {
        Value::Int(written) => *written == 1,
        Value::Array(parts) => {
            matches!(parts.first(), Some(Value::BulkString(code)) if matches!(code[..], [b'A' | b'C' | b'F' | b'L']))
        }
        _ => false,
    }
}

/// The server's time at the end of a reply, in microseconds.
pub(super) fn time_of(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    match parts.last() {
        Some(Value::Int(micros)) => u64::try_from(*micros).ok(),
        _ => None,
    }
}

fn bytes(value: Option<Value>) -> Result<Bytes, StoreError> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(bytes.into()),
        _ => Err(unexpected()),
    }
}

/// The error of a reply that no script returns.
pub(super) fn unexpected() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "Redis answered a script with something that the script does not return; look for a proxy \
         that rewrites replies",
    )
}
