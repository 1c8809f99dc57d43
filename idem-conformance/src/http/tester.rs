//! One run against a target: numbers, keys, requests and their effects.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use serde_json::Value;

use super::client;
use super::key::{KeyCase, KeyPlace, now};
use super::operation::{NUMBER, Operation};
use super::response::ServerResponse;
use super::result::{Checked, failed, need};
use super::target::Target;

/// The header of the key.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header of an x402 payment.
const PAYMENT_SIGNATURE: HeaderName = HeaderName::from_static("payment-signature");

pub(super) struct Tester<'t> {
    pub(super) target: &'t Target,
    pub(super) place: KeyPlace,
    next: AtomicU64,
}

/// A request that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) operation: Operation,
    pub(super) number: u64,
    /// The body in place of the operation's.
    pub(super) body: Option<String>,
    pub(super) key: String,
    pub(super) case: KeyCase,
    /// The credentials of the other caller.
    pub(super) caller: Option<HeaderMap>,
    /// The number of its payment; `None` is a request without a payment.
    pub(super) payment: Option<u64>,
    /// Whether it accepts other terms of payment.
    pub(super) other_terms: bool,
}

impl<'t> Tester<'t> {
    pub(super) fn new(target: &'t Target, place: KeyPlace) -> Self {
        Self {
            target,
            place,
            next: AtomicU64::new(now() * 1_000),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A new request for an operation, with a key of its own.
    pub(super) fn asked(&self, operation: &Operation) -> Asked {
        self.asked_with(operation, KeyCase::Valid)
    }

    /// The usual operation.
    pub(super) fn usual(&self) -> Asked {
        self.asked(&self.target.operation)
    }

    pub(super) fn asked_with(&self, operation: &Operation, case: KeyCase) -> Asked {
        let number = self.number();
        Asked {
            operation: operation.clone(),
            number,
            body: None,
            key: self.place.key(case),
            case,
            caller: None,
            payment: (self.place == KeyPlace::Payment).then_some(number),
            other_terms: false,
        }
    }

    fn request(&self, asked: &Asked) -> Checked<Request<Bytes>> {
        let number = asked.number.to_string();
        let filled = |template: &str| template.replace(NUMBER, &number);
        let operation = &asked.operation;
        let base = self.target.base.to_string();
        let uri = format!("{}{}", base.trim_end_matches('/'), filled(&operation.path));
        let Ok(uri) = uri.parse::<Uri>() else {
            return failed("an address that begins with `http://` or `https://`", uri);
        };
        let body = asked
            .body
            .clone()
            .unwrap_or_else(|| filled(&operation.body));
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = operation.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.extend(asked.caller.as_ref().unwrap_or(&self.target.caller).clone());
        headers.extend(operation.headers.clone());
        if self.place == KeyPlace::Payment {
            if let Some(number) = asked.payment {
                let payment = self.payment(number, asked)?;
                headers.insert(PAYMENT_SIGNATURE, payment);
            }
        } else {
            for line in self.place.lines(&asked.key, asked.case) {
                headers.append(IDEMPOTENCY_KEY, line);
            }
        }
        Ok(request)
    }

    /// The payment with the identifier of the request.
    fn payment(&self, number: u64, asked: &Asked) -> Checked<HeaderValue> {
        let text = self.target.payment.replace(NUMBER, &number.to_string());
        let payment = serde_json::from_str::<Value>(&text).ok();
        let mut payment = need(
            payment.filter(Value::is_object),
            "a payment that is a JSON object (`payment`)",
        )?;
        if asked.case != KeyCase::Missing {
            let info = serde_json::json!({ "required": false, "id": asked.key });
            payment["extensions"]["payment-identifier"]["info"] = info;
        }
        if asked.other_terms {
            payment["accepted"]["amount"] = "1".into();
        }
        let encoded = STANDARD.encode(payment.to_string());
        Ok(HeaderValue::try_from(encoded).expect("base64 is a value of a header"))
    }

    pub(super) async fn send(&self, asked: &Asked) -> Checked<ServerResponse> {
        let request = self.request(asked)?;
        let answer = client::send(request, self.target.patience).await;
        answer.or_else(|reason| failed("a response", reason))
    }

    /// Sends a request, and returns when the response has begun.
    pub(super) async fn begin(&self, asked: &Asked) -> Checked<Response<Incoming>> {
        let request = self.request(asked)?;
        let begun = client::begin(request, self.target.patience).await;
        begun.or_else(|reason| failed("the begin of a response", reason))
    }

    /// The whole of a response that has begun.
    pub(super) async fn rest(&self, begun: Response<Incoming>) -> Checked<ServerResponse> {
        let answer = client::rest(begun, self.target.patience).await;
        answer.or_else(|reason| failed("the rest of a response", reason))
    }

    /// The response, which must be a success.
    pub(super) async fn succeeds(&self, asked: &Asked) -> Checked<ServerResponse> {
        let answer = self.send(asked).await?;
        if answer.is_success() {
            Ok(answer)
        } else {
            let of = format!(
                "a success for {} with {}",
                asked.operation,
                asked.case.phrase()
            );
            failed(of, answer.shown())
        }
    }

    /// The effects of the requests that follow.
    pub(super) async fn effects(&self) -> Checked<EffectCount<'_>> {
        let before = self.counted_effects().await?;
        Ok(EffectCount {
            tester: self,
            before,
        })
    }

    /// The number of effects so far, where the target counts them.
    async fn counted_effects(&self) -> Checked<Option<u64>> {
        let Some((operation, pointer)) = &self.target.effects else {
            return Ok(None);
        };
        let mut asked = self.asked_with(operation, KeyCase::Missing);
        asked.payment = None;
        self.counted(&asked, pointer).await.map(Some)
    }

    /// The number of effects in the response to this request.
    pub(super) async fn counted(&self, asked: &Asked, pointer: &str) -> Checked<u64> {
        let answer = self.send(asked).await?;
        let value = answer.member(pointer);
        let number = value.and_then(|value| match value {
            Value::Array(list) => u64::try_from(list.len()).ok(),
            value => value.as_u64(),
        });
        match number {
            Some(number) => Ok(number),
            None => failed(
                format!("a number of effects at `{pointer}`"),
                answer.shown(),
            ),
        }
    }
}

/// The effects of requests, where the target counts them.
pub(super) struct EffectCount<'t> {
    tester: &'t Tester<'t>,
    before: Option<u64>,
}

impl EffectCount<'_> {
    /// Their number until now.
    pub(super) async fn number(&self) -> Checked<Option<u64>> {
        let now = self.tester.counted_effects().await?;
        let since = now.zip(self.before);
        Ok(since.map(|(now, before)| now.saturating_sub(before)))
    }

    /// Ends a test unless there were so many.
    pub(super) async fn are(&self, expected: u64) -> Checked {
        match self.number().await? {
            Some(number) if number != expected => {
                failed(format!("effects: {expected}"), number.to_string())
            }
            _ => Ok(()),
        }
    }
}
