//! Stripe, API v1: its pages on idempotent requests and on errors.

use std::time::Duration;

use http::Method;

use super::super::key::KeyCase;
use super::super::refusal::Part::{Is, Text};
use super::super::refusal::{RefusalShape, refused};

const PAGE: &str = "idempotent_requests";
const LOW_LEVEL: &str = "error-low-level";
const ERRORS: &str = "errors";

const REUSED: RefusalShape = refused(&[400]).with(&[
    ("/error/type", Is("idempotency_error")),
    ("/error/message", Text),
]);
const RUNNING: RefusalShape = refused(&[409]).with(&[
    ("/error/code", Is("idempotency_key_in_use")),
    ("/error/message", Text),
]);
const INVALID: RefusalShape = refused(&[400]).with(&[
    ("/error/type", Is("invalid_request_error")),
    ("/error/message", Text),
]);

table! {
    "stripe_v1": "Stripe, API v1",
    "https://docs.stripe.com/api/idempotent_requests",
    "https://docs.stripe.com/error-low-level",
    "https://docs.stripe.com/api/errors",
    KeyPlace::Bare;

    PAGE States "optional": "A key is an addition to a request." => Optional;
    PAGE States "post": "Every POST takes a key." => Protects(Method::POST);
    PAGE States "saved": "The status and the body of the first request are saved." => Repeats(Usual);
    PAGE States "saved_4xx": "The result of a request that failed is saved." => Repeats(Rejected);
    PAGE States "saved_500": "The result of a request that failed with 500 is saved." => Repeats(Failing);
    PAGE States "one_effect": "A repeat creates no second object." => OneEffect;
    PAGE States "compared": "Parameters are compared with those of the first request, and other ones are an error."
        => Conflicts(Number, REUSED);
    PAGE States "length": "A key has up to 255 characters." => Accepts(KeyCase::Long(255));
    PAGE States "too_long": "A key of more than 255 characters is not accepted."
        => Refuses(KeyCase::Long(256), INVALID);
    PAGE States "any_text": "A client makes keys as it likes." => Accepts(KeyCase::Commas);
    PAGE States "kept": "Keys are kept for at least 24 hours." => Keeps(Duration::from_secs(86_400));
    PAGE States "pruned": "A request under a key that was pruned is a new one." => Expires;
    PAGE States "validation": "A result is saved once the endpoint has begun: invalid parameters are not."
        => Corrected;
    PAGE States "conflict_not_saved": "A conflict with a running request is not saved." => AfterRunning;
    PAGE States "get": "A key has no effect on GET." => Ignores(Method::GET);
    PAGE States "delete": "A key has no effect on DELETE." => Ignores(Method::DELETE);
    LOW_LEVEL States "running": "A request whose key is in use is a 409." => Running(RUNNING);
    LOW_LEVEL States "streaming": "A request whose key is in use for a streamed response is a 409."
        => Streaming(RUNNING);
    LOW_LEVEL States "replayed": "A replayed response has `Idempotent-Replayed: true`." => Marks(Usual);
    LOW_LEVEL States "replayed_500": "A replayed error has `Idempotent-Replayed: true`." => Marks(Failing);
    LOW_LEVEL States "limits": "Rate limits stand before the keys: a 429 is not saved."
        => Unseen("a limit that the target would have to reach");
    LOW_LEVEL States "credentials": "Credentials are checked before the keys: a 401 is not saved."
        => Unseen("the same request with other credentials is another caller's");
    ERRORS States "endpoint": "A key that comes to another endpoint is an `idempotency_error`."
        => Conflicts(Path, REUSED);
    ERRORS States "account": "Accounts do not share keys." => Independent(Caller);
}
