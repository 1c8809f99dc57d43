//! Decoding of an answer's value.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::failure::Undecodable;
use super::layout::{AnswerFormat, Layout};
#[cfg(feature = "msgpack")]
use super::packed_number::plain_numbers;

/// The first bytes of a stored [`Reply`](crate::http::Reply): a member that no field of Rust is named as.
const REPLY: &[u8] = br#"{"$reply":"#;
#[cfg(feature = "msgpack")]
const PACKED_REPLY: &[u8] = b"\x82\xa6$reply";

/// The serialized value of a record, opened.
pub struct Body<'a> {
    pub(super) layout: Layout,
    pub(super) bytes: Cow<'a, [u8]>,
    /// Whether any type may read it, a stored reply too.
    pub(super) by_hand: bool,
}

impl Body<'_> {
    /// The bytes of a value that its own type encoded.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only responses are"))]
    pub(crate) fn own(&self) -> Result<&[u8], Undecodable> {
        match self.layout {
            Layout::Own => Ok(&self.bytes),
            Layout::Serialized(_) => Err(Undecodable::Mistyped { at: 0 }),
        }
    }

    /// Lets any type read the body: an operator reads an answer as a JSON value.
    pub(crate) fn by_hand(self) -> Self {
        Self {
            by_hand: true,
            ..self
        }
    }

    /// Whether the body is a stored reply, not a `T`'s own form.
    ///
    /// A process without the feature `http` meets those of another one.
    pub(crate) fn is_reply(&self) -> bool {
        let begins = match self.layout {
            Layout::Serialized(AnswerFormat::Json) => REPLY,
            #[cfg(feature = "msgpack")]
            Layout::Serialized(AnswerFormat::MessagePack) => PACKED_REPLY,
            Layout::Own => return false,
        };
        !self.by_hand && self.bytes.starts_with(begins)
    }

    pub(crate) fn take<T: DeserializeOwned>(&self) -> Result<T, Undecodable> {
        // The position, and not the message: serde's message may quote the stored value.
        let format = match self.layout {
            Layout::Serialized(format) => format,
            Layout::Own => return Err(Undecodable::Mistyped { at: 0 }),
        };
        match format {
            // `match`, since all of this is compiled with each type.
            AnswerFormat::Json => match serde_json::from_slice(&self.bytes) {
                Ok(value) => Ok(value),
                Err(error) => Err(mistyped(&error)),
            },
            #[cfg(feature = "msgpack")]
            AnswerFormat::MessagePack => {
                let bytes = match plain_numbers(&self.bytes) {
                    Ok(bytes) => bytes,
                    Err(at) => return Err(Undecodable::Mistyped { at }),
                };
                let mut rest = &*bytes;
                let value = T::deserialize(&mut rmp_serde::Deserializer::new(&mut rest));
                let at = bytes.len() - rest.len();
                match value {
                    // Trailing bytes mean that the value is of another type.
                    Ok(value) if rest.is_empty() => Ok(value),
                    _ => Err(Undecodable::Mistyped { at }),
                }
            }
        }
    }
}

fn mistyped(error: &serde_json::Error) -> Undecodable {
    Undecodable::Mistyped { at: error.column() }
}

debug_fields!(Body<'_> { layout, bytes: |it| it.bytes.len() });
