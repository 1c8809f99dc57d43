//! gRPC over HTTP/2: frames, status, time-outs
//! ([PROTOCOL-HTTP2](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md)).

use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use tonic::{Code, Status};

use super::refusal::not_unary;
use super::status::treated_as;
use crate::http::{Collected, Counter, KeyVerdict, Messages, Problem, Protocol};

pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

const STATUS: &str = "grpc-status";

/// The trailers, among the headers of a response without a message.
const TRAILERS: [&str; 3] = [STATUS, "grpc-message", "grpc-status-details-bin"];

/// The metadata without which a replay is no response: those trailers, and what describes the message.
pub(super) fn needed() -> impl Iterator<Item = &'static str> {
    TRAILERS
        .into_iter()
        .chain(["content-type", "grpc-encoding"])
}

/// The length of the frame before a message: a flag and the length of the message.
const FRAME: usize = 5;

/// A verdict of the service, by the error of a call.
pub(super) type Sort = dyn Fn(&Status) -> Option<KeyVerdict> + Send + Sync;

/// The protocol with a layer's settings.
#[derive(Clone, Default)]
pub(super) struct Grpc {
    pub(super) sort: Option<Arc<Sort>>,
}

impl Protocol for Grpc {
    fn timeout(&self, request: &HeaderMap) -> Option<Duration> {
        timeout(request.get(TIMEOUT)?.as_bytes())
    }

    fn not_unary(&self) -> Problem {
        not_unary()
    }

    fn counter(&self) -> Counter {
        let (mut frame, mut seen) = ([0; FRAME], 0);
        Box::new(move |data| {
            for (place, byte) in frame.iter_mut().skip(seen).zip(data) {
                *place = *byte;
            }
            seen += data.len();
            let [_, length @ ..] = frame;
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            match seen.checked_sub(FRAME) {
                Some(message) if message == length => Messages::One,
                Some(message) if message > length => Messages::More,
                _ => Messages::None,
            }
        })
    }

    fn status(&self, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<StatusCode> {
        let code = trailers_of(headers, trailers)?.get(STATUS)?;
        Some(treated_as(Code::from_bytes(code.as_bytes())))
    }

    fn verdict(&self, headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<KeyVerdict> {
        let sort = self.sort.as_ref()?;
        let status = Status::from_header_map(trailers_of(headers, trailers)?)?;
        (status.code() != Code::Ok).then(|| sort(&status))?
    }

    fn collected(&self, headers: &mut HeaderMap, body: Bytes) -> Collected {
        if body.is_empty() {
            return Collected::new(body, None);
        }
        let moved = TRAILERS.into_iter().filter_map(|name| {
            let value = headers.remove(name)?;
            Some((HeaderName::from_static(name), value))
        });
        let trailers = moved.collect();
        Collected::new(body, Some(trailers))
    }
}

/// The trailers; without a message, the headers.
fn trailers_of<'a>(
    headers: &'a HeaderMap,
    trailers: Option<&'a HeaderMap>,
) -> Option<&'a HeaderMap> {
    if headers.contains_key(STATUS) {
        return Some(headers);
    }
    trailers
}

/// Parses a time-out: a number of at most eight digits and a unit.
fn timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    let is_number = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    let number = number.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 60 * 60),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The message in the body of a unary call; `None`: it is compressed, or not alone.
pub(super) fn message(body: &[u8]) -> Option<&[u8]> {
    let (frame, message) = body.split_first_chunk::<FRAME>()?;
    let [0, length @ ..] = frame else {
        return None;
    };
    let is_alone = usize::try_from(u32::from_be_bytes(*length)) == Ok(message.len());
    is_alone.then_some(message)
}

/// Makes the response of a unary call, for hooks and operators.
///
/// A [reconcile hook](crate::http::IdempotencyLayer::reconcile) returns it. An `Ok` is the encoded message: that of prost's `message.encode_to_vec()`. An operator gives it to
/// [`Entry::resolve_response`](crate::admin::Entry::resolve_response) of an entry of
/// [`GrpcLayer::entry`](super::GrpcLayer::entry).
///
/// # Panics
///
/// If the message is 4 GiB or longer, which no frame can have.
///
/// ```
/// use idem_runtime::grpc::reply;
///
/// let found = reply(Ok(b"\x0a\x02p7"));
/// assert_eq!((&found.body()[..], &found.headers()["grpc-status"]), (&b"\0\0\0\0\x04\x0a\x02p7"[..], &"0".parse()?));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn reply<M: AsRef<[u8]>>(result: Result<M, Status>) -> Response<Bytes> {
    let message = match result {
        Ok(message) => message,
        Err(status) => return status.into_http(),
    };
    let message = message.as_ref();
    let length = u32::try_from(message.len()).expect("a frame's length has 32 bits");
    let body = [&[0][..], &length.to_be_bytes(), message].concat();
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(STATUS, HeaderValue::from_static("0"));
    response
}

debug_fields!(Grpc {
    sort: |it| it.sort.is_some()
});

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_out_is_read_as_the_protocol_writes_it() {
        for (text, time) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("3S", Some(Duration::from_secs(3))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("100000000m", None),
            ("m", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("+1S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout(text.as_bytes()), time, "{text}");
        }
    }

    proptest! {
        /// However the data are cut, one message counts as one.
        #[test]
        fn messages_are_counted_however_their_data_arrive(
            message in vec(any::<u8>(), 0..40),
            rest in vec(any::<u8>(), 0..3),
            cuts in vec(1_usize..7, 1..60),
        ) {
            let one = reply(Ok(&message)).into_body();
            let body = [&one[..], &rest].concat();
            let mut counter = Grpc::default().counter();
            let mut at = 0;
            for cut in cuts.into_iter().cycle().take(body.len()) {
                let end = body.len().min(at + cut);
                let counted = counter(&body[at..end]);
                at = end;
                let expected = match at.cmp(&one.len()) {
                    std::cmp::Ordering::Less => Messages::None,
                    std::cmp::Ordering::Equal => Messages::One,
                    std::cmp::Ordering::Greater => Messages::More,
                };
                prop_assert_eq!(counted, expected, "{} of {}", at, one.len());
            }
            prop_assert_eq!(super::message(&one), Some(&message[..]));
            prop_assert_eq!(super::message(&body), rest.is_empty().then_some(&message[..]));
        }
    }
}
