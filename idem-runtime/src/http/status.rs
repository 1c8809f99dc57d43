//! Verdicts about a key, by the status of the response.

use std::fmt;

use ::http::header::WWW_AUTHENTICATE;
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The header that tells SDKs whether to repeat a request.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// The header of a payment challenge, x402 version 2.
const PAYMENT_REQUIRED: HeaderName = HeaderName::from_static("payment-required");

/// The header of the settlement of a payment, x402 version 2.
const PAYMENT_RESPONSE: HeaderName = HeaderName::from_static("payment-response");

/// Treatment of a key once its request has been answered.
///
/// The layer's [`StatusPolicy`] decides by the status. A handler with better knowledge sets it:
///
/// ```
/// use axum::http::StatusCode;
/// use axum::response::{IntoResponse, Response};
/// use idem_runtime::http::KeyVerdict;
///
/// fn try_again_later() -> Response {
///     let mut response = (StatusCode::BAD_GATEWAY, "the provider refused the connection").into_response();
///     // Nothing was sent, so nothing can have happened.
///     response.extensions_mut().insert(KeyVerdict::Release);
///     response
/// }
/// # assert_eq!(try_again_later().extensions().get(), Some(&KeyVerdict::Release));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyVerdict {
    /// The response is stored, and every repeat of the request gets it.
    Store,
    /// Nothing was done: the next request with the key is executed.
    ///
    /// After a 4xx other than 408 it may be a corrected one, unless the policy is [`StatusPolicy::successes`]; after
    /// any other status another request with the key is a 422 `key-reused`. A handler that requested a derived key or
    /// made an idempotent call binds the key to its request in any case.
    Release,
    /// It is unknown whether it was done.
    ///
    /// A repeat gets `outcome-unknown` until the outcome is resolved (see [`Entry`](crate::admin::Entry)); it is not
    /// executed.
    Unknown,
}

/// Policy of storing responses, by their status.
///
/// | status | [`careful`](Self::careful) | [`draft`](Self::draft) | [`stripe`](Self::stripe) | why |
/// |---|---|---|---|---|
/// | 1xx, 2xx, 3xx | store | store | store | it was done |
/// | 400, 422 | release | store | release | the request is not valid, and nothing was done: the client corrects it, and sends it with the same key or a new one |
/// | 401, 407, 411, 417, 421, 425, 426, 428, 511 | release | **release** | release | a challenge: the client repeats the request with credentials, a length, a precondition, or over another connection |
/// | 402 with a challenge (below) | release | **release** | release | a challenge: the client repeats the request with a payment |
/// | 403 | release | store | release | the caller was not let in; the same request may be let in later |
/// | 404, 412, 423 | release | store | store | the target does not exist, has changed (`If-Match` is no part of the request's fingerprint) or is locked: now, and perhaps not later |
/// | 405, 406, 413, 414, 415, 416, 431 | release | store | release | the server did not take the request in this form |
/// | 429 | release | store | release | not now: the request came too often |
/// | 409 | store | store | release | a conflict is a business answer ("sold out"); at Stripe, it is a request that still runs |
/// | 402 without a challenge, 410, 424, 451, every other 4xx | store | store | store | a business answer ("card declined") |
/// | 501, 503, 505, 506, 510 | release | store | store | the server states that it did not try |
/// | 408, 500, 502, 504, 507, 508, every other 5xx, and above | **unknown** | store | store | ambiguous: it may have been done. A time-out layer inside answers 408 for a handler that it cut off |
///
/// A layer *inside* this one answers in the handler's place: before the handler was called (authentication, limits,
/// load shedding, routing), with the statuses above, or after it had begun (time-outs, caught panics), for which it
/// should answer 408, 500 or 504. A layer that answers 503 for a handler that it cut off belongs outside, where this
/// layer lets the handler run to its end; or its status is named: `.on(SERVICE_UNAVAILABLE, KeyVerdict::Unknown)`.
///
/// A 402 is a challenge if it has the header `PAYMENT-REQUIRED` (x402, version 2) or `WWW-Authenticate` (L402, and other
/// schemes of payment), or its body is a JSON object with a member `x402Version` (x402, version 1). The request that
/// pays is another one: `PAYMENT-SIGNATURE` and `X-PAYMENT` [count](super::Fingerprinter::ignore_payment) in its
/// fingerprint, so that the paid response is not replayed to a repeat with another payment or without one. A 402 for a
/// request that has one of them is stored, whatever it asks for: where the payment is settled after the handler, the
/// handler has run. The client pays under another key. `on(StatusCode::PAYMENT_REQUIRED, KeyVerdict::Release)` is for a
/// service that does nothing before the payment is settled, and [`x402`](Self::x402) reads what that layer says of it.
///
/// [`terminal`](Self::terminal) and [`successes`](Self::successes) store no server error, and no failure: partners
/// demand it ([`Profile`](super::Profile)).
///
/// A redirect (307, 308) is stored: the request to its target is another one. So is a 303, which asks for a `GET`.
///
/// [`ambiguous`](Self::ambiguous) changes the last line of the table, and [`on`](Self::on) changes any single status,
/// challenges included. idem's own refusals are never stored. A policy is printed (`Display`) as one line.
///
/// Sources: [draft-ietf-httpapi-idempotency-key-header-07, section
/// 2.6](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2.6);
/// [RFC 9110, section 15](https://www.rfc-editor.org/rfc/rfc9110#section-15); Stripe's pages
/// [Idempotent requests](https://docs.stripe.com/api/idempotent_requests) and [Advanced error
/// handling](https://docs.stripe.com/error-low-level); x402's [HTTP
/// transport](https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/http.md).
///
/// ```
/// use http::StatusCode;
/// use idem_runtime::http::{StatusPolicy, KeyVerdict};
///
/// let policy = StatusPolicy::careful().on(StatusCode::NOT_FOUND, KeyVerdict::Store);
/// assert_eq!(policy.verdict(StatusCode::CREATED), KeyVerdict::Store);
/// assert_eq!(policy.verdict(StatusCode::NOT_FOUND), KeyVerdict::Store);
/// assert_eq!(policy.verdict(StatusCode::UNPROCESSABLE_ENTITY), KeyVerdict::Release);
/// assert_eq!(policy.verdict(StatusCode::BAD_GATEWAY), KeyVerdict::Unknown);
///
/// let bold = StatusPolicy::careful().ambiguous(KeyVerdict::Release);
/// assert_eq!(bold.verdict(StatusCode::BAD_GATEWAY), KeyVerdict::Release);
/// ```
#[derive(Clone, Debug)]
pub struct StatusPolicy {
    released: &'static [u16],
    ambiguous: KeyVerdict,
    /// Verdicts for single statuses; the last one for a status applies.
    own: Vec<(StatusCode, KeyVerdict)>,
    /// Whether responses carry the retry hint for SDKs.
    advises: bool,
    /// Whether a key that a 4xx released accepts no other request.
    binds: bool,
    /// Whether a paid request's 402 is read by x402's rules of settlement.
    reads_settlement: bool,
}

/// The 5xx of a server that did not try, sorted.
const NOT_TRIED: &[u16] = &[501, 503, 505, 506, 510, 511];

const CAREFUL: &[u16] = &[
    400, 401, 403, 404, 405, 406, 407, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 425, 426,
    428, 429, 431, 501, 503, 505, 506, 510, 511,
];

const STRIPE: &[u16] = &[
    400, 401, 403, 405, 406, 407, 409, 411, 413, 414, 415, 416, 417, 421, 422, 425, 426, 428, 429,
    431, 511,
];

/// Statuses that ask for the same request with an addition, or elsewhere.
///
/// RFC 9110, section 15.5; RFC 6585, sections 3 and 6; RFC 8470, section 5.2.
const CHALLENGES: &[u16] = &[401, 407, 411, 417, 421, 425, 426, 428, 511];

/// Challenges, a lapsed login, a limit, and the unambiguous 5xx.
const TERMINAL: &[u16] = &[
    401, 407, 411, 417, 419, 421, 425, 426, 428, 429, 501, 503, 505, 506, 510, 511,
];

/// Every 4xx but the ambiguous 408, and the unambiguous 5xx.
const FAILURES: &[u16] = &{
    let (mut all, mut at, mut code) = ([0; 105], 0, 400);
    while at < all.len() {
        all[at] = match at {
            ..99 => code,
            _ => NOT_TRIED[at - 99],
        };
        code += if code == 407 { 2 } else { 1 };
        at += 1;
    }
    all
};

/// A payment challenge in a body, x402 version 1.
#[derive(Deserialize)]
struct PaymentChallenge {
    #[serde(rename = "x402Version")]
    _version: IgnoredAny,
}

pub(super) fn is_payment_challenge(body: &[u8]) -> bool {
    // A map only: serde reads a struct from a list too.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    is_object && serde_json::from_slice::<PaymentChallenge>(body).is_ok()
}

/// Whether the request may have been done.
fn is_ambiguous(code: u16) -> bool {
    code == 408 || code >= 500 && !NOT_TRIED.contains(&code)
}

impl Default for StatusPolicy {
    /// [`careful`](Self::careful).
    fn default() -> Self {
        Self::careful()
    }
}

impl StatusPolicy {
    /// Stores results and decisions, and never repeats an ambiguous request.
    ///
    /// A refusal before anything was done releases the key.
    #[must_use]
    pub fn careful() -> Self {
        Self {
            released: CAREFUL,
            ambiguous: KeyVerdict::Unknown,
            own: Vec::new(),
            advises: false,
            binds: false,
            reads_settlement: false,
        }
    }

    /// The draft's rule: a repeat gets the earlier result, whatever it was.
    ///
    /// In the draft's words, "success or an error". A challenge is neither: it asks for the same request with something
    /// added, and releases the key. Refusing a repeat of a running request at once is another setting:
    /// [`OnRunning::Reject`](crate::OnRunning::Reject) of [`on_running`](super::IdempotencyLayer::on_running).
    #[must_use]
    pub fn draft() -> Self {
        Self {
            released: CHALLENGES,
            ambiguous: KeyVerdict::Store,
            ..Self::careful()
        }
    }

    /// Stripe's rule: stores every response of the endpoint, a 500 too.
    ///
    /// Responses from before the endpoint are not stored: validation, credentials, conflicts, limits.
    ///
    /// SDKs for Stripe repeat a 409 and every status of 500 and above by themselves, unless the response has
    /// `Stripe-Should-Retry: false`. Under this policy a response has it where a repeat gets nothing else: a response
    /// with such a status that is stored, or of unknown outcome, the first time and when it is replayed; and a
    /// [`Problem`](super::Problem) has the value of its `retryable`. A header that the handler has set stays.
    #[must_use]
    pub fn stripe() -> Self {
        Self {
            released: STRIPE,
            ambiguous: KeyVerdict::Store,
            advises: true,
            ..Self::careful()
        }
    }

    /// Stores successes and final refusals, and no server error.
    ///
    /// Stored are 1xx, 2xx, 3xx and 4xx, except challenges (401, 428, a 402 with a challenge, …),
    /// 419 and 429.
    ///
    /// A 5xx is never stored, nor is a 408, and a repeat is executed: [`ambiguous`](Self::ambiguous) outcomes release the
    /// key as well, bound to its request. **An effect that happened before such a response happens twice**, unless it is
    /// idempotent itself, or a transaction that was rolled back.
    #[must_use]
    pub fn terminal() -> Self {
        Self {
            released: TERMINAL,
            ambiguous: KeyVerdict::Release,
            ..Self::careful()
        }
    }

    /// Stores successes alone; a repeat of a failure is executed.
    ///
    /// Stored are 1xx, 2xx and 3xx. A failure of any kind releases the key, bound to its request: a corrected request is a 422 `key-reused`. With the
    /// risk and the retry hints of [`terminal`](Self::terminal) and [`stripe`](Self::stripe).
    #[must_use]
    pub fn successes() -> Self {
        Self {
            released: FAILURES,
            ambiguous: KeyVerdict::Release,
            advises: true,
            binds: true,
            ..Self::careful()
        }
    }

    /// [`careful`](Self::careful) behind the payment layer of x402, version 2.
    ///
    /// That layer verifies a payment before the handler, and settles it after it. A 402 of a request with a payment is
    ///
    /// | its header | its meaning | the key |
    /// |---|---|---|
    /// | `PAYMENT-REQUIRED`, and no `PAYMENT-RESPONSE` | the payment was not valid, and the handler did not run | released |
    /// | `PAYMENT-RESPONSE` | the settlement failed after the handler | stored: the client pays under another id |
    /// | neither | the settlement ended with an error, and the payment may have been made | as [`ambiguous`](Self::ambiguous) |
    ///
    /// Source: x402's [HTTP transport](https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/http.md), and
    /// its middleware for Express.
    #[must_use]
    pub fn x402() -> Self {
        Self {
            reads_settlement: true,
            ..Self::careful()
        }
    }

    /// Treatment of a key whose request has an ambiguous outcome.
    ///
    /// That is after 408, 500, 502, 504 and every other 5xx but 501, 503, 505, 506, 510 and 511; when the handler
    /// panics, its service fails, or the body of its response breaks off.
    ///
    /// [`KeyVerdict::Release`] risks that it is done twice. [`KeyVerdict::Store`] stores a response; if there is no response
    /// to store, the outcome is unknown.
    #[must_use]
    pub fn ambiguous(mut self, verdict: KeyVerdict) -> Self {
        self.ambiguous = verdict;
        self
    }

    /// Sets the treatment of a key after this status.
    #[must_use]
    pub fn on(mut self, status: StatusCode, verdict: KeyVerdict) -> Self {
        self.own.push((status, verdict));
        self
    }

    /// The treatment of a key after a response to a (paid) request.
    ///
    /// And whether the body may be a payment challenge, which releases the key: see [`is_payment_challenge`]. No
    /// status but 402 needs more than its number.
    pub(super) fn decide(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        has_payment: bool,
    ) -> (KeyVerdict, bool) {
        let is_named = self.own.iter().any(|(of, _)| *of == status);
        let has = |name| headers.contains_key(name);
        let is_decided = has_payment && (has(PAYMENT_RESPONSE) || !self.reads_settlement);
        let verdict = if status != StatusCode::PAYMENT_REQUIRED || is_named || is_decided {
            self.verdict(status)
        } else if has(PAYMENT_REQUIRED) || !has_payment && has(WWW_AUTHENTICATE) {
            KeyVerdict::Release
        } else if has_payment {
            // The settlement of the payment is unknown.
            self.without_response()
        } else {
            return (self.verdict(status), true);
        };
        (verdict, false)
    }

    /// The treatment of a key after this status; a 402: without challenge.
    #[must_use]
    pub fn verdict(&self, status: StatusCode) -> KeyVerdict {
        let own = self.own.iter().rev().find(|(of, _)| *of == status);
        let code = status.as_u16();
        match own {
            Some((_, verdict)) => *verdict,
            None if self.released.contains(&code) => KeyVerdict::Release,
            None if is_ambiguous(code) => self.ambiguous,
            None => KeyVerdict::Store,
        }
    }

    /// Whether a released key accepts its own request alone, whatever the status.
    pub(super) fn binds(&self) -> bool {
        self.binds
    }

    /// Adds the policy's retry hint for SDKs; a handler's value stays.
    pub(super) fn advise(&self, headers: &mut HeaderMap, should_retry: bool) {
        if self.advises {
            let value = if should_retry { "true" } else { "false" };
            let value = HeaderValue::from_static(value);
            headers.entry(SHOULD_RETRY).or_insert(value);
        }
    }

    /// The same for a response whose repeats get nothing else.
    pub(super) fn advise_of_final<B>(&self, response: &mut Response<B>) {
        let status = response.status();
        // SDKs repeat no other status.
        if status == StatusCode::CONFLICT || status.as_u16() >= 500 {
            self.advise(response.headers_mut(), false);
        }
    }

    /// The treatment of a key whose request has no response.
    pub(super) fn without_response(&self) -> KeyVerdict {
        match self.ambiguous {
            KeyVerdict::Release => KeyVerdict::Release,
            KeyVerdict::Store | KeyVerdict::Unknown => KeyVerdict::Unknown,
        }
    }
}

/// The statuses of each verdict, and other differences from [`careful`](StatusPolicy::careful).
impl fmt::Display for StatusPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, of) in [
            ("release", KeyVerdict::Release),
            ("unknown", KeyVerdict::Unknown),
        ] {
            let mut ranges: Vec<(u16, u16)> = Vec::new();
            let statuses = (100..=599).filter_map(|code| StatusCode::from_u16(code).ok());
            for status in statuses.filter(|status| self.verdict(*status) == of) {
                let code = status.as_u16();
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == code => *last = code,
                    _ => ranges.push((code, code)),
                }
            }
            let ranges = ranges.iter().map(|(first, last)| {
                if first == last {
                    first.to_string()
                } else {
                    format!("{first}-{last}")
                }
            });
            let ranges: Vec<_> = ranges.collect();
            if !ranges.is_empty() {
                write!(f, "{name} {}; ", ranges.join(", "))?;
            }
        }
        f.write_str("store the rest")?;
        for (is_set, text) in [
            (self.binds, "; a released key keeps its request"),
            (self.reads_settlement, "; a paid 402 by its settlement"),
            (self.advises, "; retry hints for SDKs"),
        ] {
            f.write_str(if is_set { text } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(policy: &StatusPolicy, verdict: KeyVerdict) -> Vec<u16> {
        let all = (100..1_000).filter_map(|code| StatusCode::from_u16(code).ok());
        let with = all.filter(|status| policy.verdict(*status) == verdict);
        with.map(|status| status.as_u16()).collect()
    }

    /// Every status from `from` on that is not in `but`.
    fn rest(from: u16, but: &[u16]) -> Vec<u16> {
        (from..1_000).filter(|code| !but.contains(code)).collect()
    }

    #[test]
    fn a_policy_decides_by_its_lists_and_the_ambiguous_statuses() {
        let ambiguous = [vec![408], rest(500, NOT_TRIED)].concat();
        let policies: [fn() -> _; 5] = [
            StatusPolicy::careful,
            StatusPolicy::draft,
            StatusPolicy::stripe,
            StatusPolicy::terminal,
            StatusPolicy::successes,
        ];
        let by_default = [
            KeyVerdict::Unknown,
            KeyVerdict::Store,
            KeyVerdict::Store,
            KeyVerdict::Release,
            KeyVerdict::Release,
        ];
        let lists = [CAREFUL, CHALLENGES, STRIPE, TERMINAL, FAILURES];
        for ((policy, released), by_default) in policies.into_iter().zip(lists).zip(by_default) {
            let left = rest(100, released);
            let others = [KeyVerdict::Unknown, KeyVerdict::Release, KeyVerdict::Store];
            let set = others.map(|verdict| (policy().ambiguous(verdict), verdict));
            for (policy, verdict) in [(policy(), by_default)].into_iter().chain(set) {
                let mut expected = released.to_vec();
                match verdict {
                    KeyVerdict::Release => expected.extend(&ambiguous),
                    KeyVerdict::Unknown => assert_eq!(with(&policy, verdict), ambiguous),
                    KeyVerdict::Store => assert_eq!(with(&policy, verdict), left),
                }
                expected.sort_unstable();
                assert_eq!(with(&policy, KeyVerdict::Release), expected);
            }
        }
    }

    #[test]
    fn a_body_is_a_payment_challenge_by_one_member() {
        let others = r#"|x402Version|[1]|{"error":"card_declined"}|{"data":{"x402Version":1}}|{"x402Version":1"#;
        for body in others.split('|') {
            assert!(!is_payment_challenge(body.as_bytes()), "{body}");
        }
        for body in [
            r#"{"x402Version":1}"#,
            r#" {"accepts":[],"x402Version":null}"#,
        ] {
            assert!(is_payment_challenge(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn a_policy_is_printed_with_all_that_it_decides_by() {
        let careful = "release 400-401, 403-407, 411-417, 421-423, 425-426, 428-429, 431, 501, 503, 505-506, 510-511; \
                       unknown 408, 500, 502, 504, 507-509, 512-599; store the rest";
        let stripe = "release 400-401, 403, 405-407, 409, 411, 413-417, 421-422, 425-426, 428-429, 431, 511; store the \
                      rest; retry hints for SDKs";
        for (policy, text) in [
            (StatusPolicy::careful(), careful.to_owned()),
            (StatusPolicy::x402(), format!("{careful}; a paid 402 by its settlement")),
            (StatusPolicy::stripe(), stripe.to_owned()),
            (
                StatusPolicy::successes().on(StatusCode::CONFLICT, KeyVerdict::Store),
                "release 400-408, 410-599; store the rest; a released key keeps its request; retry hints for SDKs"
                    .to_owned(),
            ),
        ] {
            assert_eq!(policy.to_string(), text);
        }
    }

    #[test]
    fn the_last_word_on_a_status_counts() {
        let policy = StatusPolicy::draft()
            .on(StatusCode::BAD_GATEWAY, KeyVerdict::Store)
            .on(StatusCode::BAD_GATEWAY, KeyVerdict::Release);
        let mut released = with(&policy, KeyVerdict::Release);
        released.retain(|code| !CHALLENGES.contains(code));
        assert_eq!(released, [502]);
    }
}
