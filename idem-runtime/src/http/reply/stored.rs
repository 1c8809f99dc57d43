//! A reply as a stored answer.

use std::any::type_name;
use std::collections::BTreeMap;
use std::time::Duration;

use ::http::StatusCode;
use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::super::headers::StoredHeaders;
use super::Reply;
use crate::outcome::codec::{Body, Replay, Sink, Undecodable, Unencodable};
use crate::outcome::provenance::AnswerSource;

/// The member that distinguishes a stored reply from a plain value.
///
/// It is not a valid name of a Rust field.
const MARK: &str = "$reply";

#[derive(Serialize)]
struct SerializedReply<'a, T> {
    #[serde(rename = "$reply")]
    head: ReplyHead,
    value: &'a T,
}

#[derive(Deserialize)]
struct DeserializedReply<T> {
    #[serde(rename = "$reply")]
    head: ReplyHead,
    value: T,
}

#[derive(Serialize, Deserialize)]
struct ReplyHead {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl ReplyHead {
    fn of<T>(reply: &Reply<T>) -> Self {
        let rules = StoredHeaders::of_author();
        Self {
            status: reply.status.as_u16(),
            headers: rules
                .of(&reply.headers)
                .map(|(name, value)| (name.as_str().to_owned(), text(value)))
                .collect(),
        }
    }

    /// `None` if [`of`](Self::of) cannot have produced it.
    ///
    /// A header that is never stored is left out: another version may have written it, or an intruder.
    fn open(self) -> Option<(StatusCode, HeaderMap)> {
        let status = StatusCode::from_u16(self.status).ok()?;
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            let name = HeaderName::try_from(name).ok()?;
            headers.try_append(name, bytes(&value)?).ok()?;
        }
        StoredHeaders::of_author().retain(&mut headers);
        Some((status, headers))
    }
}

/// One character for each byte: a header's value may not be UTF-8.
fn text(value: &HeaderValue) -> String {
    value.as_bytes().iter().copied().map(char::from).collect()
}

fn bytes(text: &str) -> Option<HeaderValue> {
    let bytes = text
        .chars()
        .map(u8::try_from)
        .collect::<Result<Vec<_>, _>>();
    HeaderValue::try_from(bytes.ok()?).ok()
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Replay for Reply<T> {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        out.put(&SerializedReply {
            head: ReplyHead::of(self),
            value: &self.value,
        })
    }

    fn read(body: &Body<'_>) -> Result<Self, Undecodable> {
        // Checked first: a `T` that accepts any members would also read a reply.
        if !is_reply(body) {
            return body.take().map(Self::ok);
        }
        let DeserializedReply { head, value } = body.take()?;
        let (status, headers) = head.open().ok_or(Undecodable::Mistyped { at: 0 })?;
        Ok(Self {
            status,
            headers,
            value,
            replayed: false,
        })
    }

    // The headers stay: a header that is not stored, such as `Set-Cookie`, is for the first client alone.
    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable> {
        match Self::read(body) {
            Ok(Self { value, .. }) => self.value = value,
            Err(error) => return Err(error.in_own_form(type_name::<T>())),
        }
        Ok(())
    }

    // That of the value, whose earlier answers it reads.
    fn schema() -> u32 {
        T::schema()
    }

    fn set_provenance(&mut self, how: AnswerSource, _: u16, _: Duration) {
        self.replayed = how != AnswerSource::Executed;
    }
}

#[allow(
    clippy::zero_sized_map_values,
    reason = "serde reads no set from members"
)]
fn is_reply(body: &Body<'_>) -> bool {
    let members = body.take::<BTreeMap<String, IgnoredAny>>();
    members.is_ok_and(|members| members.contains_key(MARK))
}
