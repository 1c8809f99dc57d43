//! Stripe, API v2: the section on idempotency of its overview.

use std::time::Duration;

use http::Method;

use super::super::refusal::Part::{Is, Text};
use super::super::refusal::{RefusalShape, refused};

const PAGE: &str = "api-v2-overview";

const REUSED: RefusalShape = refused(&[400, 409]).with(&[
    ("/error/type", Is("idempotency_error")),
    ("/error/code", Is("idempotency_error")),
    ("/error/message", Text),
]);

table! {
    "stripe_v2": "Stripe, API v2",
    "https://docs.stripe.com/api-v2-overview",
    "https://github.com/stripe/openapi/blob/master/latest/openapi.spec3.json",
    KeyPlace::Bare;

    PAGE States "optional": "A key is an addition to a request." => Optional;
    PAGE States "post": "A POST takes a key." => Protects(Method::POST);
    PAGE States "delete": "A DELETE takes a key." => Protects(Method::DELETE);
    PAGE States "get": "A key has no effect on GET." => Ignores(Method::GET);
    PAGE States "success": "A repeat of a success gets its answer." => Repeats(Usual);
    PAGE States "one_effect": "A repeat of a success has no side effect." => OneEffect;
    PAGE States "failure": "A repeat of a failed request is executed, and gets the new answer." => Released(Failing);
    PAGE States "compared": "The key with other parameters is an error." => Conflicts(Number, REUSED);
    PAGE States "running": "Two requests at once are executed once." => RunningOrWait(refused(&[409]));
    PAGE States "after_running": "Repeats of two requests at once get the answer of the one that was executed."
        => AfterRunning;
    PAGE States "kept": "Keys are kept for 30 days." => Keeps(Duration::from_secs(30 * 86_400));
    PAGE States "expired": "A request under an expired key is a new one." => Expires;
    PAGE States "account": "Accounts and sandboxes do not share keys." => Independent(Caller);
}
