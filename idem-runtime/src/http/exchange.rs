//! The output of a request's call.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::response::Parts;
use ::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;

use super::body::{BodyEnd, Buffered, Collected, read};
use super::headers::media_type;
use super::profile::Profile;
use super::protocol::{Messages, Protocol};
use super::recording::{Recorded, StreamRecorder};
use super::status::{KeyVerdict, StatusPolicy, is_payment_challenge};
use super::wire::{self, EncodableResponse};
use crate::error::Error;
use crate::outcome::chosen_life::ChosenLife;
use crate::outcome::codec::{
    Body as Opened, Encoded, Format, LaterAnswer, Undecodable, Unencodable, schema_of,
};
use crate::outcome::provenance::AnswerSource;
use crate::outcome::{Outcome, Sealed};
use crate::record::OutcomeKind;
use crate::record::transition::Remains;

/// The rules for storing responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(super) profile: Profile,
    /// `None`: [`RESPONSE_BYTES`], or the engine's limit of a value if larger.
    pub(super) max_response_bytes: Option<usize>,
    /// `None`: HTTP itself.
    pub(super) protocol: Option<Arc<dyn Protocol>>,
    /// Further media types of streams, beyond the two fixed ones.
    pub(super) stream_types: Vec<String>,
    pub(super) passes_streams: bool,
    /// `None`: the policy sets the life of every response.
    pub(super) life: Option<ResponseLife>,
}

#[derive(Clone)]
pub(super) struct ResponseLife(pub(super) Arc<ChooseLife>);

type ChooseLife = dyn Fn(&Parts) -> Option<Duration> + Send + Sync;

debug_fields!(ResponseLife {});

/// The default limit of a stored response, in bytes.
const RESPONSE_BYTES: usize = 4 << 20;

impl Rules {
    /// The limit of a stored response, in bytes of its layout.
    pub(super) fn max_bytes(&self, format: &Format) -> usize {
        let by_default = || RESPONSE_BYTES.max(format.max_value_bytes);
        let asked = self.max_response_bytes.unwrap_or_else(by_default);
        asked.min(format.max_own_bytes())
    }

    /// The body of a response that is not a handler's.
    pub(super) fn collected(&self, headers: &mut HeaderMap, body: Bytes) -> Collected {
        match &self.protocol {
            Some(protocol) => protocol.collected(headers, body),
            None => Collected::new(body, None),
        }
    }

    /// The status of a response, or of its protocol.
    pub(super) fn status_of<B>(&self, response: &Response<B>, body: &Collected) -> StatusCode {
        let protocol = self.protocol.as_ref();
        let treated_as = protocol.and_then(|it| it.status(response.headers(), body.trailers()));
        treated_as.unwrap_or(response.status())
    }

    /// Whether streams are passed on as they come, and not recorded.
    fn passes_streams(&self) -> bool {
        // A protocol has streams of its own.
        self.passes_streams || self.protocol.is_some()
    }

    /// Whether a response is streamed: waiting for its end would withhold it.
    fn is_stream(&self, headers: &HeaderMap) -> bool {
        let Some(content_type) = headers.get(CONTENT_TYPE) else {
            return false;
        };
        let media_type = media_type(content_type);
        let mut named = self.stream_types.iter().map(String::as_bytes);
        let is_it = |stream: &[u8]| media_type.eq_ignore_ascii_case(stream);
        is_it(b"text/event-stream") || is_it(b"multipart/x-mixed-replace") || named.any(is_it)
    }

    fn life_of<B: Default>(&self, response: &mut Response<B>) -> ChosenLife {
        let Some(ResponseLife(choose)) = &self.life else {
            return ChosenLife::Open;
        };
        let (parts, body) = mem::take(response).into_parts();
        let life = ChosenLife::of(|| choose(&parts));
        *response = Response::from_parts(parts, body);
        life
    }

    /// Encodes a response as an answer: status, stored headers, and this body.
    ///
    /// It [stands for](Self::status_of) the status `treated_as`.
    pub(super) fn encode<B>(
        &self,
        response: &Response<B>,
        treated_as: StatusCode,
        body: &Collected,
        format: &Format,
    ) -> Encoded {
        let outcome = match treated_as.as_u16() {
            ..400 => OutcomeKind::Value,
            _ => OutcomeKind::Error,
        };
        let trailers = body
            .trailers()
            .map(|trailers| self.profile.headers.of(trailers));
        let written = EncodableResponse {
            status: response.status(),
            headers: self.profile.headers.of(response.headers()).collect(),
            trailers: trailers.into_iter().flatten().collect(),
            body,
        };
        let (schema, limit) = (schema_of(SCHEMA), self.max_bytes(format));
        Encoded::own(outcome, schema, (written.max_bytes(), limit), |out| {
            written.write(out);
        })
    }
}

/// The outcome of a request: a response, an error, or idem's refusal.
pub(super) struct RequestEnd<B: Body, E> {
    pub(super) end: ServiceEnd<B, E>,
    pub(super) how: AnswerSource,
}

#[allow(
    clippy::large_enum_variant,
    reason = "nearly every exchange ends with a response"
)]
pub(super) enum ServiceEnd<B: Body, E> {
    Answered {
        response: Response<Buffered<B>>,
        /// Its status, or its protocol's.
        status: StatusCode,
        disposition: Disposition<B>,
    },
    Failed(E),
    /// The service has not begun.
    Unready(E),
    Refused(Error),
}

/// The part of a response to be stored.
pub(super) enum Disposition<B: Body> {
    /// All of it: its body, which is in memory, and the trailers.
    Whole,
    /// Nothing, for this reason.
    Lost(Unencodable),
    /// The body ended with an error.
    Broken,
    /// All of it, once it has come.
    Streamed(Option<Box<StreamRecorder<B>>>),
    /// The key is released, or its outcome is unknown.
    Nothing(KeyVerdict),
}

impl<B: Body, E> RequestEnd<B, E> {
    pub(super) fn executed(end: ServiceEnd<B, E>) -> Self {
        let how = AnswerSource::Executed;
        Self { end, how }
    }

    fn answered(
        response: Response<Buffered<B>>,
        status: StatusCode,
        disposition: Disposition<B>,
    ) -> Self {
        Self::executed(ServiceEnd::Answered {
            response,
            status,
            disposition,
        })
    }

    /// The response of the service, for a request with or without payment.
    ///
    /// The body of a response that is to be stored is read, up to the limit.
    pub(super) async fn of(
        response: Response<B>,
        has_payment: bool,
        rules: &Rules,
        max_bytes: usize,
    ) -> Self {
        let own = response.extensions().get::<KeyVerdict>().copied();
        if let Some(protocol) = &rules.protocol
            // Another status is that of a layer inside, which knows no message.
            && response.status() == StatusCode::OK
            && matches!(own, None | Some(KeyVerdict::Store))
        {
            let of_message = Self::of_message(response, own, &**protocol, rules, max_bytes);
            // Boxed, so that no other response has room for it.
            return Box::pin(of_message).await;
        }
        let (verdict, may_demand) = if let Some(verdict) = own {
            (verdict, false)
        } else {
            let policy = &rules.profile.status;
            policy.decide(response.status(), response.headers(), has_payment)
        };
        let status = response.status();
        let (parts, body) = response.into_parts();
        let is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS;
        let is_stream = !is_upgrade && rules.is_stream(&parts.headers);
        let (body, disposition) = match verdict {
            KeyVerdict::Store if is_upgrade || is_stream && rules.passes_streams() => (
                Buffered::passing(body),
                Disposition::Lost(Unencodable::Stream),
            ),
            // An error replaces no unknown outcome: it is held back, as every other response.
            KeyVerdict::Store if is_stream && status.as_u16() < 400 && fits(&body, max_bytes) => {
                let mut head = Response::new(());
                *head.status_mut() = status;
                *head.headers_mut() = parts.headers.clone();
                *head.extensions_mut() = parts.extensions.clone();
                let (recorder, body) = StreamRecorder::new(body, head, max_bytes);
                (
                    Buffered::recorded(body),
                    Disposition::Streamed(Some(recorder)),
                )
            }
            KeyVerdict::Store => {
                let (read, end) = read(Box::pin(body), max_bytes, |_| true).await;
                let disposition = match &end {
                    BodyEnd::Whole if may_demand && is_payment_challenge(&read.data) => {
                        Disposition::Nothing(KeyVerdict::Release)
                    }
                    BodyEnd::Whole => Disposition::Whole,
                    BodyEnd::More(_) => Disposition::Lost(Unencodable::TooLarge { max_bytes }),
                    BodyEnd::Broken(_) => Disposition::Broken,
                };
                (Buffered::new(read, end), disposition)
            }
            verdict => (Buffered::passing(body), Disposition::Nothing(verdict)),
        };
        let response = Response::from_parts(parts, body);
        Self::answered(response, status, disposition)
    }

    /// The response of a service whose status comes after its message.
    async fn of_message(
        response: Response<B>,
        own: Option<KeyVerdict>,
        protocol: &dyn Protocol,
        rules: &Rules,
        max_bytes: usize,
    ) -> Self {
        let (parts, body) = response.into_parts();
        let mut counter = protocol.counter();
        let mut messages = Messages::None;
        let show = |data: &[u8]| {
            messages = counter(data);
            messages != Messages::More
        };
        let (read, end) = read(Box::pin(body), max_bytes, show).await;
        let (headers, trailers) = (&parts.headers, read.trailers());
        let treated_as = protocol.status(headers, trailers);
        let disposition = match (&end, treated_as) {
            (BodyEnd::Broken(_), _) | (BodyEnd::Whole, None) => Disposition::Broken,
            (BodyEnd::More(_), _) if messages == Messages::More => {
                Disposition::Lost(Unencodable::Stream)
            }
            (BodyEnd::More(_), _) => Disposition::Lost(Unencodable::TooLarge { max_bytes }),
            (BodyEnd::Whole, Some(status)) => {
                // The method has returned its response, or a part of a stream, by the time of this error.
                let is_late = protocol.status(headers, None).is_none();
                let own = own.or_else(|| protocol.verdict(headers, trailers));
                match own.unwrap_or_else(|| rules.profile.status.verdict(status)) {
                    KeyVerdict::Store => Disposition::Whole,
                    KeyVerdict::Release if is_late && own.is_none() => {
                        Disposition::Nothing(KeyVerdict::Unknown)
                    }
                    verdict => Disposition::Nothing(verdict),
                }
            }
        };
        let status = treated_as.unwrap_or(parts.status);
        let response = Response::from_parts(parts, Buffered::new(read, end));
        Self::answered(response, status, disposition)
    }

    /// The response of an earlier attempt, found by a reconcile hook.
    ///
    /// It is stored, whatever its status.
    pub(super) fn landed(response: Response<Bytes>, rules: &Rules) -> Self {
        let (mut parts, body) = response.into_parts();
        let body = rules.collected(&mut parts.headers, body);
        let disposition = if is_final(parts.status) {
            Disposition::Whole
        } else {
            Disposition::Lost(Unencodable::Stream)
        };
        let response = Response::from_parts(parts, Buffered::whole(body));
        let status = rules.status_of(&response, response.body().read());
        Self::answered(response, status, disposition)
    }
}

/// Whether a response of this status is final (RFC 9110, section 15.2).
pub(super) fn is_final(status: StatusCode) -> bool {
    !status.is_informational()
}

/// The settlement without a stored answer. `status`: `None` without a complete response.
fn settled_as(verdict: KeyVerdict, status: Option<StatusCode>, policy: &StatusPolicy) -> Encoded {
    match verdict {
        KeyVerdict::Release => Encoded::Release(match status {
            // A layer inside may answer 408 for a handler that it cut off.
            Some(StatusCode::REQUEST_TIMEOUT) => Remains::Request,
            // The client may correct the request: the key accepts another one.
            Some(status) if status.is_client_error() && !policy.binds() => Remains::Nothing,
            // Only the same request may be repeated.
            _ => Remains::Request,
        }),
        KeyVerdict::Store | KeyVerdict::Unknown => Encoded::empty(OutcomeKind::Unknown, None),
    }
}

/// Whether the declared length of a body is within the limit.
fn fits(body: &impl Body, max_bytes: usize) -> bool {
    usize::try_from(body.size_hint().lower()).is_ok_and(|bytes| bytes <= max_bytes)
}

/// Records a streamed response. Its encoding, once it has ended.
async fn recorded<B: Body>(
    mut recorder: Box<StreamRecorder<B>>,
    rules: Arc<Rules>,
    format: Format,
) -> Encoded {
    match recorder.record().await {
        Recorded::Whole(data, trailers) => {
            let (head, body) = (&mut recorder.head, Collected::new(data, trailers));
            let mut encoded = rules.encode(head, head.status(), &body, &format);
            encoded.choose_life(rules.life_of(head));
            encoded
        }
        Recorded::TooLarge => {
            let max_bytes = rules.max_bytes(&format);
            let lost = Unencodable::TooLarge { max_bytes };
            Encoded::empty(OutcomeKind::Tombstone, Some(lost))
        }
        Recorded::Broken => {
            let status = &rules.profile.status;
            settled_as(status.without_response(), None, status)
        }
    }
}

/// The tag of a stored response: see [`schema_of`].
pub(super) const SCHEMA: &str = "HttpResponse";

impl<B: Body, E> Sealed for RequestEnd<B, E> {}

impl<B, E> Outcome<Arc<Rules>> for RequestEnd<B, E>
where
    B: Body + Send + 'static,
    B::Error: Send,
{
    fn encode(&mut self, rules: &Arc<Rules>, format: &Format) -> Encoded {
        let policy = &rules.profile.status;
        let ServiceEnd::Answered {
            response,
            status,
            disposition,
        } = &mut self.end
        else {
            return match self.end {
                ServiceEnd::Failed(_) => settled_as(policy.without_response(), None, policy),
                // A body returns a response or an error; only idem refuses.
                _ => Encoded::Release(Remains::Request),
            };
        };
        match disposition {
            Disposition::Whole => {}
            Disposition::Streamed(recorder) => {
                let recorder = recorder.take().expect("a response is encoded once");
                return Encoded::later(LaterAnswer {
                    is_cancelled: Arc::clone(&recorder.is_cancelled),
                    answer: Box::pin(recorded(recorder, Arc::clone(rules), format.clone())),
                    is_unknown_meanwhile: policy.without_response() == KeyVerdict::Unknown,
                    overdue: Unencodable::Stream,
                });
            }
            Disposition::Lost(why) => return Encoded::empty(OutcomeKind::Tombstone, Some(*why)),
            Disposition::Nothing(verdict) => return settled_as(*verdict, Some(*status), policy),
            Disposition::Broken => return settled_as(policy.without_response(), None, policy),
        }
        let mut encoded = rules.encode(response, *status, response.body().read(), format);
        encoded.choose_life(rules.life_of(response));
        encoded
    }

    fn decode(_: OutcomeKind, body: &Opened<'_>) -> Result<Self, Undecodable> {
        let stored = wire::read(body.own()?)?;
        let mut response = Response::new(Buffered::whole(stored.body));
        *response.status_mut() = stored.status;
        *response.headers_mut() = stored.headers;
        let disposition = Disposition::Nothing(KeyVerdict::Store);
        Ok(Self::answered(response, stored.status, disposition))
    }

    fn set_provenance(&mut self, how: AnswerSource, _: u16, _: Duration) {
        self.how = how;
    }

    fn tells_age() -> bool {
        false
    }

    fn refuse(error: Error) -> Self {
        Self::executed(ServiceEnd::Refused(error))
    }

    fn succeeded(&self) -> bool {
        matches!(&self.end, ServiceEnd::Answered { status, .. } if status.as_u16() < 400)
    }

    fn schemas() -> [u32; 2] {
        [schema_of(SCHEMA); 2]
    }
}
