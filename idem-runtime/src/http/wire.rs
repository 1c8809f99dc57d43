//! Encoding of a response in a record.
//!
//! ```text
//! 0     version of this layout: 1
//! 1–2   status, big-endian
//!       headers:  count, then for each its name and its value
//!       trailers: as headers
//!       body:     all the rest
//! ```
//! A count is a number, and a name or a value is its length, a number, before its bytes. A number is unsigned LEB128 of
//! as few bytes as possible, and at most 32 bits. Names are in lower case, and a repeated name is written repeatedly,
//! its values in their order. The layout is binary rather than JSON, because a body is stored as it is, whatever its
//! bytes are.

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;

use super::body::Collected;
use crate::outcome::codec::Undecodable;

const VERSION: u8 = 1;
/// The longest encoding of a number, in bytes.
const NUMBER: usize = 5;

pub(super) struct EncodableResponse<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(&'a HeaderName, &'a HeaderValue)>,
    pub(super) trailers: Vec<(&'a HeaderName, &'a HeaderValue)>,
    pub(super) body: &'a Collected,
}

impl EncodableResponse<'_> {
    /// An upper bound of the encoded length.
    pub(super) fn max_bytes(&self) -> usize {
        let fields = self.headers.iter().chain(&self.trailers);
        let fields: usize = fields
            .map(|(name, value)| name.as_str().len() + value.len() + 2 * NUMBER)
            .sum();
        1 + 2 + 2 * NUMBER + fields + self.body.data.len()
    }

    /// Appends the encoding.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(self.status.as_u16().to_be_bytes());
        for fields in [&self.headers, &self.trailers] {
            put_number(out, fields.len());
            for (name, value) in fields {
                put_bytes(out, name.as_str().as_bytes());
                put_bytes(out, value.as_bytes());
            }
        }
        out.extend_from_slice(&self.body.data);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(0x80 | low_bits(number));
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}

#[derive(Debug)]
pub(super) struct DecodedResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Collected,
}

/// Reads the output of [`EncodableResponse::write`], and nothing else.
pub(super) fn read(bytes: &[u8]) -> Result<DecodedResponse, Undecodable> {
    let mut reader = ResponseReader { bytes, at: 0 };
    match reader.byte()? {
        VERSION => {}
        tag => return Err(Undecodable::Format { tag }),
    }
    let status = u16::from_be_bytes([reader.byte()?, reader.byte()?]);
    let status = StatusCode::from_u16(status).map_err(|_| reader.mistyped())?;
    let headers = reader.fields()?;
    let trailers = Some(reader.fields()?).filter(|trailers| !trailers.is_empty());
    let body = Collected::new(Bytes::copy_from_slice(reader.rest()), trailers);
    Ok(DecodedResponse {
        status,
        headers,
        body,
    })
}

struct ResponseReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ResponseReader<'a> {
    fn mistyped(&self) -> Undecodable {
        Undecodable::Mistyped { at: self.at }
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Undecodable> {
        let taken = self.rest().get(..length).ok_or(Undecodable::Short)?;
        self.at += length;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Undecodable> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Result<usize, Undecodable> {
        let mut number = 0_u64;
        for place in 0..NUMBER {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                let is_shortest = byte != 0 || place == 0;
                let number = u32::try_from(number)
                    .ok()
                    .filter(|_| is_shortest)
                    .and_then(|number| usize::try_from(number).ok());
                return number.ok_or_else(|| self.mistyped());
            }
        }
        Err(self.mistyped())
    }

    fn text(&mut self) -> Result<&'a [u8], Undecodable> {
        let length = self.number()?;
        self.take(length)
    }

    fn fields(&mut self) -> Result<HeaderMap, Undecodable> {
        // The count is not trusted for an allocation: each field takes two bytes at least.
        let mut fields = HeaderMap::new();
        for _ in 0..self.number()? {
            let text = self.text()?;
            let name = HeaderName::from_bytes(text).map_err(|_| self.mistyped())?;
            // The parser lower-cases names.
            if name.as_str().as_bytes() != text {
                return Err(self.mistyped());
            }
            let value = HeaderValue::from_bytes(self.text()?).map_err(|_| self.mistyped())?;
            let appended = fields.try_append(name, value);
            appended.map_err(|_| self.mistyped())?;
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pairs(headers: &HeaderMap) -> Vec<(&HeaderName, &HeaderValue)> {
        headers.iter().collect()
    }

    fn written(status: u16, headers: &HeaderMap, trailers: &HeaderMap, body: &[u8]) -> Vec<u8> {
        let body = Collected::new(Bytes::copy_from_slice(body), None);
        let written = EncodableResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: pairs(headers),
            trailers: pairs(trailers),
            body: &body,
        };
        let mut out = Vec::new();
        written.write(&mut out);
        assert!(out.len() <= written.max_bytes());
        out
    }

    fn body(stored: &DecodedResponse) -> Vec<u8> {
        stored.body.data.to_vec()
    }

    #[test]
    fn the_layout_is_frozen() {
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static("\"7\""));
        let bytes = written(201, &headers, &HeaderMap::new(), b"done");
        assert_eq!(bytes, b"\x01\x00\xc9\x01\x04etag\x03\"7\"\x00done");
    }

    #[test]
    fn what_is_not_of_this_version_is_not_guessed_at() {
        assert!(matches!(
            read(&[2, 0, 200, 0, 0]),
            Err(Undecodable::Format { tag: 2 })
        ));
        assert!(matches!(read(&[]), Err(Undecodable::Short)));
        // A status of 99, a number in more bytes than it takes, a name in capital letters.
        for bytes in [
            &[1, 0, 99, 0, 0][..],
            &[1, 0, 200, 0x80, 0, 0],
            &[1, 0, 200, 1, 1, b'A', 1, b'1', 0],
        ] {
            let read = read(bytes);
            assert!(
                matches!(read, Err(Undecodable::Mistyped { .. })),
                "{bytes:?}"
            );
        }
    }

    fn fields() -> impl Strategy<Value = HeaderMap> {
        vec(("[a-z][a-z0-9-]{0,9}", vec(32_u8..=255, 0..200)), 0..20).prop_map(|fields| {
            let mut map = HeaderMap::new();
            for (name, mut value) in fields {
                value.retain(|byte| *byte != 127);
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                map.append(name, HeaderValue::from_bytes(&value).unwrap());
            }
            map
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            status in 100_u16..1_000,
            headers in fields(),
            trailers in fields(),
            content in vec(any::<u8>(), 0..5_000),
        ) {
            let stored = read(&written(status, &headers, &trailers, &content)).unwrap();
            prop_assert_eq!(stored.status.as_u16(), status);
            prop_assert_eq!(&stored.headers, &headers);
            let told = stored.body.trailers().cloned().unwrap_or_default();
            prop_assert_eq!(told, trailers);
            prop_assert_eq!(body(&stored), content);
        }

        #[test]
        fn a_response_that_is_cut_is_not_another_one(headers in fields(), cut in any::<prop::sample::Index>()) {
            let whole = written(200, &headers, &HeaderMap::new(), b"");
            let cut = cut.index(whole.len());
            prop_assert!(read(&whole[..cut]).is_err());
        }

        #[test]
        fn no_change_of_a_byte_is_a_panic(
            headers in fields(),
            trailers in fields(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = written(200, &headers, &trailers, b"body");
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(stored) = read(&bytes) {
                let trailers = stored.body.trailers().cloned().unwrap_or_default();
                let again = written(stored.status.as_u16(), &stored.headers, &trailers, &body(&stored));
                prop_assert_eq!(again.len(), bytes.len());
            }
        }
    }
}
