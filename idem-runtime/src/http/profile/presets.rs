//! The profiles of specifications and of partners.

use std::time::Duration;

use ::http::{Method, StatusCode};

use super::Profile;
use crate::http::domain::KeyDomain;
use crate::http::fingerprint::Fingerprinter;
use crate::http::key::KeyRules;
use crate::http::refusals::{Refusal, Refusals};
use crate::http::source::KeySource;
use crate::http::status::{KeyVerdict, StatusPolicy};
use crate::policy::{OnOutage, OnRunning, Policy};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const WAIT: OnRunning = OnRunning::Wait(Duration::from_secs(5));

/// No execution without a record, whatever the engine does in an outage.
fn protected() -> Policy {
    Policy::new().on_outage(OnOutage::Fail)
}

impl Profile {
    /// [draft-ietf-httpapi-idempotency-key-header-07](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07).
    ///
    /// The key is in quotation marks, as a String of RFC 8941 is: most clients send it without, which
    /// [`keys(KeyRules::default())`](Self::keys) accepts too. A repeat of a running request is refused at once (section
    /// 2.6). The draft has the resource publish the life of a key (section 2.3):
    /// [`life`](crate::http::IdempotencyLayer::life).
    pub fn draft() -> Self {
        Self::new("draft")
            .keys(KeyRules::default().bare(false))
            .status_policy(StatusPolicy::draft())
            .policy(protected().on_running(OnRunning::Reject))
    }

    /// Stripe's API version 1: [Idempotent requests](https://docs.stripe.com/api/idempotent_requests).
    ///
    /// The first response of an endpoint is stored whatever it is, a 500 too. Responses from before the endpoint are
    /// not: see [`StatusPolicy::stripe`], which also gives Stripe's SDKs their retry hints. A repeat of a running request
    /// is refused at once, and SDKs repeat it.
    pub fn stripe_v1() -> Self {
        Self::new("stripe_v1")
            .methods([Method::POST])
            .optional()
            .keys(KeyRules::default().verbatim())
            .status_policy(StatusPolicy::stripe())
            .refusals(Refusals::stripe())
            .echo_key(true)
            .policy(protected().ttl(DAY).on_running(OnRunning::Reject))
    }

    /// Stripe's API version 2: [API v2 overview](https://docs.stripe.com/api-v2-overview).
    ///
    /// A success is stored. A failure releases its key, bound to its request, and a repeat is executed to finish the
    /// work: [`StatusPolicy::successes`]. **Its effects happen again, unless the handler's effects are
    /// idempotent themselves**: [steps](crate::claim), a transaction, or a key of the provider
    /// ([`Context::derive_key`](crate::Context::derive_key)).
    ///
    /// A key is one of its account or sandbox: the scope of the layer returns both, such as `acct_7/sandbox_2`.
    ///
    /// A reused key is an `idempotency_error` by type and by code, which version 1 leaves out
    /// ([specification](https://github.com/stripe/openapi/blob/master/latest/openapi.spec3.json)).
    pub fn stripe_v2() -> Self {
        const REUSED: &str = "idempotency_error";
        let reused = Refusal::new(StatusCode::BAD_REQUEST)
            .code(REUSED)
            .of_type(REUSED);
        Self::new("stripe_v2")
            .methods([Method::POST, Method::DELETE])
            .optional()
            .keys(KeyRules::default().verbatim())
            .status_policy(StatusPolicy::successes())
            .refusals(Refusals::stripe().on("key-reused", reused))
            .echo_key(true)
            .policy(protected().ttl(30 * DAY).on_running(OnRunning::Reject))
    }

    /// The Agentic Commerce Protocol, release 2026-04-17: [agentic checkout, section
    /// 6](https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md).
    ///
    /// The scope of the layer is the authenticated identity; the key is one of it and the path (6.1). No 5xx is stored,
    /// and a repeat after one is executed (6.5): **its effects happen again, unless the handler's
    /// effects are idempotent themselves**, as in one transaction (6.8). idem's own 500s (`attempts-exhausted` after crashes,
    /// `answer-lost`) execute nothing. A challenge and a 429 are not stored either,
    /// because their request was not processed. Beyond 6.2, which compares bodies alone, the query and the media
    /// type count. The words of refusals are those of agentic checkout; delegate payment has a closed list of codes.
    pub fn acp() -> Self {
        Self::new("acp")
            .methods([Method::POST])
            .keys(KeyRules::default().verbatim())
            .key_domain(KeyDomain::Path)
            .fingerprint(Fingerprinter::new().json_values().ignore_payment())
            .status_policy(StatusPolicy::terminal())
            .refusals(Refusals::acp())
            .echo_key(true)
            .policy(protected().ttl(DAY).on_running(OnRunning::Reject))
    }

    /// The Universal Commerce Protocol, as of 2026-08-22 (after release 2026-04-08): [replay
    /// protection](https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/signatures.md).
    ///
    /// Two requests are the same if the bytes of their bodies are. A key has at least 22 characters, which hold the 128
    /// bits that the protocol demands. It is one of its client and the operation, for which the method and the path
    /// stand; a path with an id in it is narrower. Of errors, and of a running request, the protocol says nothing: errors
    /// are stored, as by [`StatusPolicy::draft`], but for 429 and 503, which it calls temporary. A repeat of a running
    /// request waits, and is then refused with 503: a 409 asks for another key.
    pub fn ucp() -> Self {
        let keys = KeyRules::default();
        let temporary = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        let statuses = temporary
            .into_iter()
            .fold(StatusPolicy::draft(), |policy, status| {
                policy.on(status, KeyVerdict::Release)
            });
        Self::new("ucp")
            .methods([Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .optional()
            .keys(keys.form("at least 22 characters", |key| key.chars().count() >= 22))
            .key_domain(KeyDomain::MethodAndPath)
            .status_policy(statuses)
            .refusals(Refusals::ucp())
            .policy(protected().ttl(2 * DAY).on_running(WAIT))
    }

    /// x402, version 2, with its extension [payment
    /// identifier](https://github.com/x402-foundation/x402/blob/main/specs/extensions/payment_identifier.md).
    ///
    /// The key is the id that a client writes into its payment. Two requests are the same if method, path, query and body
    /// are, and the [terms of the payment](Fingerprinter::payment_terms): a client signs anew when it repeats a request,
    /// with the same id. A request without a payment passes, and gets its challenge; so does a payment without an id,
    /// unless the challenge [requires](Self::required) it. A 402 is treated as [`StatusPolicy::x402`] says: the payment layer
    /// settles after the handler. `HEAD` is protected, because routers call the handler of `GET` for it, and the payment
    /// layer settles.
    ///
    /// **The layer is outside of the payment layer**, so that a repeat is not settled again. A repeat is answered
    /// before its payment is verified: the id is a secret of its client, and a scope, where callers are known, keeps it
    /// to its owner.
    pub fn x402() -> Self {
        let rules = KeyRules::default();
        let reused = Refusal::new(StatusCode::CONFLICT);
        Self::new("x402")
            .methods([
                Method::GET,
                Method::HEAD,
                Method::POST,
                Method::PUT,
                Method::PATCH,
                Method::DELETE,
            ])
            .optional()
            .key_source(KeySource::payment_identifier())
            .keys(rules.form("16 to 128 of A-Z a-z 0-9 - _", is_payment_id))
            .fingerprint(Fingerprinter::new().payment_terms())
            .status_policy(StatusPolicy::x402())
            .refusals(Refusals::problems().on("key-reused", reused))
            .store_header("payment-response")
            .policy(protected().on_running(WAIT))
    }

    /// The REST catalog of Apache Iceberg: parameter `Idempotency-Key` of its
    /// [specification](https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml).
    ///
    /// A final response is stored: a success, and a 4xx that is none of a challenge, a limit or a lapsed login (419).
    /// A 5xx releases the key, and a repeat is executed: **after a commit whose response was a 5xx, or a crash, the repeat
    /// is a conflict, and the client commits anew, unless the mutation and its key are in one transaction**
    /// (`#[idempotent(tx = …)]`). The layer belongs around the catalog's mutations alone: `/v1/oauth/tokens` has no key. A repeat of a running request waits, and then gets a 503: to a 409 clients answer with
    /// another commit under another key. A key that is used for another operation or table is refused with 422. Upper
    /// and lower case of a key do not count.
    ///
    /// The catalog advertises `idempotency-key-lifetime` in its configuration, for less than the records are kept, so
    /// that the last repeat may be late: `PT30M` for these 35 minutes. See
    /// [`iso8601_duration`](crate::http::iso8601_duration).
    pub fn iceberg_rest() -> Self {
        let rules = KeyRules::default().max_chars(36).ignore_case();
        Self::new("iceberg_rest")
            .methods([Method::POST, Method::DELETE])
            .optional()
            .keys(rules.form("a UUID of version 7", is_uuid_7))
            .fingerprint(Fingerprinter::new().json_values())
            .status_policy(StatusPolicy::terminal())
            .refusals(Refusals::iceberg())
            .policy(protected().ttl(HOUR * 7 / 12).on_running(WAIT))
    }
}

/// Whether a key is an id of x402's payment identifier.
fn is_payment_id(key: &str) -> bool {
    let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (16..=128).contains(&key.len()) && key.bytes().all(is_of_id)
}

/// Whether a key is a version 7 UUID (RFC 9562, section 5.7).
fn is_uuid_7(key: &str) -> bool {
    let bytes = key.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'7',
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_of_version_7_has_its_digits_and_hyphens_in_their_places() {
        let uuid = "019de3f4-15aa-7c89-8d3a-6f5e4b3c2a1d";
        for (key, is) in [
            (uuid, true),
            (&*uuid.to_uppercase(), true),
            (&*uuid.replace("-7", "-4"), false),
            (&*uuid.replace("-8", "-c"), false),
            (&*uuid.replace('-', ""), false),
            (&*format!("{uuid}0"), false),
            (&*uuid.replace("19d", "19g"), false),
            ("", false),
        ] {
            assert_eq!(is_uuid_7(key), is, "{key}");
        }
    }
}
