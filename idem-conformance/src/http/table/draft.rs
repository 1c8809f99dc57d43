//! draft-ietf-httpapi-idempotency-key-header-07, and the public suite of idempot.dev.

use http::Method;

use super::super::key::KeyCase;
use super::super::refusal::Part::{Begins, Holds, Is, Status, Text};
use super::super::refusal::{RefusalShape, refused};

const INVALID: RefusalShape = refused(&[400]);
const CONFLICT: RefusalShape = refused(&[422]);
const RUNNING: RefusalShape = refused(&[409]);

/// The parts of each refusal that the suite checks.
macro_rules! suite {
    ($status:literal, $retryable:literal) => {
        refused(&[$status]).with(&[
            ("/type", Text),
            ("/title", Text),
            ("/detail", Text),
            ("/status", Status),
            ("/instance", Begins("urn:uuid:")),
            ("/retryable", Holds($retryable)),
            ("content-type", Is("application/problem+json")),
        ])
    };
}

table! {
    "draft": "draft-ietf-httpapi-idempotency-key-header-07",
    "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
    "https://github.com/idempot-dev/website/blob/main/docs/specs/idempotency.feature",
    KeyPlace::Quoted;

    "2" States "post": "The key makes POST tolerant of faults." => Protects(Method::POST);
    "2" States "patch": "The key makes PATCH tolerant of faults." => Protects(Method::PATCH);
    "2.1" Must "string": "The key is a String of RFC 8941." => Accepts(KeyCase::Valid);
    "2.1" Must "parameters": "The header is an Item: its parameters, of which none is defined, do not count."
        => Accepts(KeyCase::Parameter);
    "2.1" Must "escapes": "A String may have escaped characters." => Accepts(KeyCase::Escaped);
    "2.1" Must "bare": "A text without quotation marks is no String." => Refuses(KeyCase::Bare, INVALID);
    "2.1" Must "list": "A list is no Item." => Refuses(KeyCase::List, INVALID);
    "2.1" Must "twice": "Two lines of the header are a list." => Refuses(KeyCase::Twice, INVALID);
    "2.1" Must "ascii": "A String is of ASCII." => Refuses(KeyCase::NotAscii, INVALID);
    "2.2" Must "unique": "A key is used for one request payload." => Conflicts(Number, CONFLICT);
    "2.2" Must "owner": "The owner of the resource defines what a unique key is." => Refuses(KeyCase::Empty, INVALID);
    "2.2" Must "other_key": "A new key is that of a new request." => OtherKey;
    "2.3" May "expiry": "Keys may expire." => Expires;
    "2.3" Should "published": "The resource publishes how long keys live." => Unseen("a matter of documentation");
    "2.5.2" Must "documented": "The resource publishes its rules for keys." => Unseen("a matter of documentation");
    "2.6" Should "first": "A first request is processed as without a key." => Accepts(KeyCase::Valid);
    "2.6" Should "retry": "A retry gets the result of the completed request: a success." => Repeats(Usual);
    "2.6" Should "retry_of_4xx": "A retry gets the result of the completed request: an error of the client."
        => Repeats(Rejected);
    "2.6" Should "retry_of_5xx": "A retry gets the result of the completed request: an error of the server."
        => Repeats(Failing);
    "2.6" Should "one_effect": "A retry is not processed." => OneEffect;
    "2.6" Must "concurrent": "A retry before the first request completed is a conflict." => Running(RUNNING);
    "2.6" Must "streaming": "A retry while the first response is streamed is a conflict."
        => Streaming(RUNNING);
    "2.7" Should "missing": "A missing key is a 400 with a link to documentation."
        => Refuses(KeyCase::Missing, INVALID.documented());
    "2.7" Should "reused": "A key with another payload is a 422 with a link to documentation."
        => Conflicts(Number, CONFLICT.documented());
    "2.7" Should "running": "A retry of a running request is a 409 with a link to documentation."
        => Running(RUNNING.documented());
    "2.7" Must "conflict_needs_no_correction": "A client need not correct a request that was refused with 409."
        => AfterRunning;
    "5" Should "validated": "A key is validated before anything is looked up." => Refuses(KeyCase::Commas, INVALID);
    "5" Should "composite": "The key of a client is combined with an attribute of the client." => Independent(Caller);
    "suite: 2.1" Suite "suite_missing": "A missing key is a problem document."
        => Refuses(KeyCase::Missing, suite!(400, false));
    "suite: 2.1" Suite "suite_empty": "An empty key is a problem document."
        => Refuses(KeyCase::Empty, suite!(400, false));
    "suite: 2.1" Suite "suite_long": "A key of more than 255 characters is a problem document."
        => Refuses(KeyCase::Long(256), suite!(400, false));
    "suite: 2.1" Suite "suite_commas": "A key with commas, without quotation marks, is a problem document."
        => Refuses(KeyCase::Commas, suite!(400, false));
    "suite: 2.1" Suite "suite_valid": "A UUID without quotation marks is a key."
        => CannotBeMet("section 2.1 has a String; a layer with `keys(KeyRules::default())` accepts both");
    "suite: 2.1" Suite "suite_section": "Problem documents name the draft's section."
        => CannotBeMet("`type` and `Link` have the address of the service's own documentation, as section 2.7 has it");
    "suite: 2.1" Suite "suite_key_member": "Problem documents have the key as `idempotency_key`."
        => CannotBeMet("no sentence of the draft; `on_problem_with` adds the member");
    "suite: 2.2" Suite "suite_other_body": "The key with another body is a problem document."
        => Conflicts(Number, suite!(422, false));
    "suite: 2.2" Suite "suite_other_key": "Another key with the same body is a 409."
        => CannotBeMet("a new key is a new request: the same thing can be ordered twice");
    "suite: 2.6" Suite "suite_record": "A first request has a record, which has its response."
        => Unseen("no client sees a record; its retries get the response");
    "suite: 2.6" Suite "suite_retries": "Three retries get the first answer, and have no effect." => OneEffect;
    "suite: 2.6" Suite "suite_replayed": "A retry has `x-idempotent-replayed: true`."
        => CannotBeMet("no sentence of the draft; the header is `Idempotent-Replayed`, as at Stripe");
    "suite: 2.6" Suite "suite_running": "A retry of a running request is a problem document."
        => Running(suite!(409, true));
    "suite: store" Suite "suite_store": "A request while the store is unreachable is a 503, a problem document."
        => Outage(suite!(503, true));
    "suite: edge" Suite "suite_get": "GET passes the layer." => Ignores(Method::GET);
    "suite: edge" Suite "suite_put": "PUT passes the layer." => Ignores(Method::PUT);
    "suite: edge" Suite "suite_delete": "DELETE passes the layer." => Ignores(Method::DELETE);
    "suite: edge" Suite "suite_empty_body": "A request without a body is protected." => AcceptsEmptyBody;
}
