//! The Agentic Commerce Protocol, release 2026-04-17: RFC Agentic Checkout.

use std::time::Duration;

use http::Method;

use super::super::key::KeyCase;
use super::super::refusal::Part::{Is, Seconds, Text};
use super::super::refusal::{RefusalShape, refused};

const MISSING: RefusalShape = refused(&[400]).with(&[
    ("/type", Is("invalid_request")),
    ("/code", Is("idempotency_key_required")),
    ("/message", Text),
]);
const INVALID: RefusalShape = refused(&[400]).with(&[
    ("/type", Is("invalid_request")),
    ("/code", Text),
    ("/message", Text),
]);
const CONFLICT: RefusalShape = refused(&[422]).with(&[
    ("/type", Is("invalid_request")),
    ("/code", Is("idempotency_conflict")),
    ("/message", Text),
]);
const RUNNING: RefusalShape = refused(&[409]).with(&[
    ("/type", Is("invalid_request")),
    ("/code", Is("idempotency_in_flight")),
    ("/message", Text),
]);
const RUNNING_LATER: RefusalShape = refused(&[409]).with(&[
    ("/type", Is("invalid_request")),
    ("/code", Is("idempotency_in_flight")),
    ("/message", Text),
    ("retry-after", Seconds),
]);

table! {
    "acp": "Agentic Commerce Protocol, release 2026-04-17",
    "https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/blob/main/rfcs/rfc.agentic_checkout.md",
    KeyPlace::Bare;

    "3.1" States "echo": "Every response to a POST has the request's key." => Echoes;
    "6.1" Must "every_post": "Every POST is protected by its key." => Protects(Method::POST);
    "6.1" States "opaque": "A key is a text of the client's choice." => Accepts(KeyCase::Commas);
    "6.1" States "length": "A key has up to 255 characters." => Accepts(KeyCase::Long(255));
    "6.1" States "too_long": "A key of more than 255 characters is not accepted."
        => Refuses(KeyCase::Long(256), INVALID);
    "6.1" States "empty": "A key has at least one character (OpenAPI)." => Refuses(KeyCase::Empty, INVALID);
    "6.1" Must "identity": "Keys belong to the authenticated identity." => Independent(Caller);
    "6.1" Must "path": "Keys belong to the path of the endpoint." => Independent(Path);
    "6.1" Must "required": "A POST without a key is a 400 `idempotency_key_required`."
        => Refuses(KeyCase::Missing, MISSING);
    "6.2" States "blank": "Requests are equal by the JSON of their bodies: white space does not count."
        => Equal(Blank);
    "6.2" Must "member_order": "The order of members does not count." => Equal(MemberOrder);
    "6.2" Must "null": "A member that is null is not an absent one." => Conflicts(NullMember, CONFLICT);
    "6.2" Must "decimal": "Trailing zeros of a number do not count." => Equal(Decimal);
    "6.2" Must "array_order": "The order of an array counts." => Conflicts(ArrayOrder, CONFLICT);
    "6.2" States "headers": "Headers do not count." => Equal(Header);
    "6.3" Must "replay": "A repeat gets the first response with its status." => Repeats(Usual);
    "6.3" Must "replay_of_4xx": "A repeat of a request that the endpoint answered with 4xx gets that response."
        => Repeats(Rejected);
    "6.3" States "update": "Updates of a session replay as its creation does." => Repeats(Elsewhere);
    "6.3" Should "replayed": "A replayed response has `Idempotent-Replayed: true`." => Marks(Usual);
    "6.3" Should "replayed_4xx": "A replayed 4xx has `Idempotent-Replayed: true`." => Marks(Rejected);
    "6.3" Must "one_effect": "Side effects are not repeated." => OneEffect;
    "6.4" States "conflict": "The key with another body is a 422 `idempotency_conflict`."
        => Conflicts(Number, CONFLICT);
    "6.4" States "in_flight": "The key of a running request is a 409 `idempotency_in_flight`." => Running(RUNNING);
    "6.4" Should "retry_after": "The 409 has `Retry-After` in seconds." => Running(RUNNING_LATER);
    "6.4" States "retryable": "A request that got 409 can be sent again." => AfterRunning;
    "6.5" Must "not_cached": "A 5xx is not kept: a repeat is a fresh request." => Released(Failing);
    "6.6" Must "kept": "Keys are kept for at least 24 hours." => Keeps(Duration::from_secs(86_400));
    "6.6" States "expired": "A request under an expired key is a new one." => Expires;
    "6.7" Must "extensions": "Members of extensions count." => Conflicts(ExtraMember, CONFLICT);
    "6.8" Should "transaction": "The key is committed with the operation."
        => Unseen("no client sees a transaction; `tx` of the attribute does it");
    "6.8" Should "recovery": "An operation with effects elsewhere has points of recovery."
        => Unseen("no client sees them; steps of the attribute do it");
}
