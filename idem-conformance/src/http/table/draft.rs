//! draft-ietf-httpapi-idempotency-key-header-07, and the public suite of idempot.dev.

use http::Method;

use super::super::change::Change::{Caller, Number};
use super::super::check::Check::{
    Accepts, AcceptsEmptyBody, AfterRunning, CannotBeMet, Conflicts, Expires, Ignores, Independent,
    OneEffect, OtherKey, Outage, Protects, Refuses, Repeats, Running, Unseen,
};
use super::super::check::Kind::{Failing, Rejected, Usual};
use super::super::key::KeyCase;
use super::super::refusal::Header::Is as Header;
use super::super::refusal::Member::{Begins, Holds, Status, Text};
use super::super::refusal::{Refusal, refused};
use super::super::row::Level::{May, Must, Should, States, Suite};
use super::super::row::Row;

const INVALID: Refusal = refused(&[400]);
const CONFLICT: Refusal = refused(&[422]);
const RUNNING: Refusal = refused(&[409]);

/// The members that the suite finds in each refusal.
macro_rules! suite {
    ($status:literal, $retryable:literal) => {
        refused(&[$status])
            .members(&[
                ("/type", Text),
                ("/title", Text),
                ("/detail", Text),
                ("/status", Status),
                ("/instance", Begins("urn:uuid:")),
                ("/retryable", Holds($retryable)),
            ])
            .headers(&[("content-type", Header("application/problem+json"))])
    };
}

pub(in super::super) const ROWS: &[Row] = &[
    Row::new(
        "2",
        States,
        "post",
        "The key makes POST tolerant of faults.",
        Protects(Method::POST),
    ),
    Row::new(
        "2",
        States,
        "patch",
        "The key makes PATCH tolerant of faults.",
        Protects(Method::PATCH),
    ),
    Row::new(
        "2.1",
        Must,
        "string",
        "The key is a String of RFC 8941.",
        Accepts(KeyCase::Valid),
    ),
    Row::new(
        "2.1",
        Must,
        "parameters",
        "The header is an Item: its parameters, of which none is defined, do not count.",
        Accepts(KeyCase::Parameter),
    ),
    Row::new(
        "2.1",
        Must,
        "escapes",
        "A String may have escaped characters.",
        Accepts(KeyCase::Escaped),
    ),
    Row::new(
        "2.1",
        Must,
        "bare",
        "A text without quotation marks is no String.",
        Refuses(KeyCase::Bare, INVALID),
    ),
    Row::new(
        "2.1",
        Must,
        "list",
        "A list is no Item.",
        Refuses(KeyCase::List, INVALID),
    ),
    Row::new(
        "2.1",
        Must,
        "twice",
        "Two lines of the header are a list.",
        Refuses(KeyCase::Twice, INVALID),
    ),
    Row::new(
        "2.1",
        Must,
        "ascii",
        "A String is of ASCII.",
        Refuses(KeyCase::NotAscii, INVALID),
    ),
    Row::new(
        "2.2",
        Must,
        "unique",
        "A key is used for one request payload.",
        Conflicts(Number, CONFLICT),
    ),
    Row::new(
        "2.2",
        Must,
        "owner",
        "The owner of the resource defines what a unique key is.",
        Refuses(KeyCase::Empty, INVALID),
    ),
    Row::new("2.3", May, "expiry", "Keys may expire.", Expires),
    Row::new(
        "2.3",
        Should,
        "published",
        "The resource publishes how long keys live.",
        Unseen("a matter of documentation"),
    ),
    Row::new(
        "2.5.2",
        Must,
        "documented",
        "The resource publishes its rules for keys.",
        Unseen("a matter of documentation"),
    ),
    Row::new(
        "2.6",
        Should,
        "first",
        "A first request is processed as without a key.",
        Accepts(KeyCase::Valid),
    ),
    Row::new(
        "2.6",
        Should,
        "retry",
        "A retry gets the result of the completed request: a success.",
        Repeats(Usual),
    ),
    Row::new(
        "2.6",
        Should,
        "retry_of_4xx",
        "A retry gets the result of the completed request: an error of the client.",
        Repeats(Rejected),
    ),
    Row::new(
        "2.6",
        Should,
        "retry_of_5xx",
        "A retry gets the result of the completed request: an error of the server.",
        Repeats(Failing),
    ),
    Row::new(
        "2.6",
        Should,
        "one_effect",
        "A retry is not processed.",
        OneEffect,
    ),
    Row::new(
        "2.6",
        Must,
        "concurrent",
        "A retry before the first request completed is a conflict.",
        Running(RUNNING),
    ),
    Row::new(
        "2.7",
        Should,
        "missing",
        "A missing key is a 400 with a link to documentation.",
        Refuses(KeyCase::Missing, INVALID.documented()),
    ),
    Row::new(
        "2.7",
        Should,
        "reused",
        "A key with another payload is a 422 with a link to documentation.",
        Conflicts(Number, CONFLICT.documented()),
    ),
    Row::new(
        "2.7",
        Should,
        "running",
        "A retry of a running request is a 409 with a link to documentation.",
        Running(RUNNING.documented()),
    ),
    Row::new(
        "2.7",
        Must,
        "conflict_needs_no_correction",
        "A client need not correct a request that was refused with 409.",
        AfterRunning,
    ),
    Row::new(
        "5",
        Should,
        "validated",
        "A key is validated before anything is looked up.",
        Refuses(KeyCase::Commas, INVALID),
    ),
    Row::new(
        "5",
        Should,
        "composite",
        "The key of a client is combined with an attribute of the client.",
        Independent(Caller),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_missing",
        "A missing key is a problem document.",
        Refuses(KeyCase::Missing, suite!(400, false)),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_empty",
        "An empty key is a problem document.",
        Refuses(KeyCase::Empty, suite!(400, false)),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_long",
        "A key of more than 255 characters is a problem document.",
        Refuses(KeyCase::Long(256), suite!(400, false)),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_commas",
        "A key with commas, without quotation marks, is a problem document.",
        Refuses(KeyCase::Commas, suite!(400, false)),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_section",
        "Problem documents name the draft's section.",
        CannotBeMet(
            "`type` and `Link` have the address of the service's own documentation, as section 2.7 has it",
        ),
    ),
    Row::new(
        "suite: 2.1",
        Suite,
        "suite_key_member",
        "Problem documents have the key as `idempotency_key`.",
        CannotBeMet("no sentence of the draft; `on_problem_with` adds the member"),
    ),
    Row::new(
        "suite: 2.2",
        Suite,
        "suite_other_body",
        "The key with another body is a problem document.",
        Conflicts(Number, suite!(422, false)),
    ),
    Row::new(
        "suite: 2.2",
        Suite,
        "suite_other_key",
        "Another key with the same body is a 409.",
        CannotBeMet("a new key is a new request: the same thing can be ordered twice"),
    ),
    Row::new(
        "2.2",
        Must,
        "other_key",
        "A new key is that of a new request.",
        OtherKey,
    ),
    Row::new(
        "suite: 2.6",
        Suite,
        "suite_retries",
        "Three retries get the first answer, and have no effect.",
        OneEffect,
    ),
    Row::new(
        "suite: 2.6",
        Suite,
        "suite_replayed",
        "A retry has `x-idempotent-replayed: true`.",
        CannotBeMet("no sentence of the draft; the header is `Idempotent-Replayed`, as at Stripe"),
    ),
    Row::new(
        "suite: 2.6",
        Suite,
        "suite_running",
        "A retry of a running request is a problem document.",
        Running(suite!(409, true)),
    ),
    Row::new(
        "suite: store",
        Suite,
        "suite_store",
        "A request while the store is unreachable is a 503, a problem document.",
        Outage(suite!(503, true)),
    ),
    Row::new(
        "suite: edge",
        Suite,
        "suite_get",
        "GET passes the layer.",
        Ignores(Method::GET),
    ),
    Row::new(
        "suite: edge",
        Suite,
        "suite_put",
        "PUT passes the layer.",
        Ignores(Method::PUT),
    ),
    Row::new(
        "suite: edge",
        Suite,
        "suite_delete",
        "DELETE passes the layer.",
        Ignores(Method::DELETE),
    ),
    Row::new(
        "suite: edge",
        Suite,
        "suite_empty_body",
        "A request without a body is protected.",
        AcceptsEmptyBody,
    ),
];
