//! Apache Iceberg, REST catalog: the parameter `idempotency-key` and the configuration of its OpenAPI.

use http::Method;

use super::super::change::Change::{Number, Path};
use super::super::check::Check::{
    Accepts, AfterRunning, Conflicts, Expires, Ignores, KeepsLifetime, Lifetime, OneEffect,
    Optional, Protects, Refuses, Released, Repeats, RunningOrWait,
};
use super::super::check::Kind::{Failing, Rejected, Usual};
use super::super::key::KeyCase;
use super::super::refusal::Member::{Status, Text};
use super::super::refusal::{Refusal, refused};
use super::super::row::Level::{Must, Should, States};
use super::super::row::Row;

const PARAMETER: &str = "idempotency-key";
const CONFIG: &str = "CatalogConfig";
const ERROR: &str = "ErrorModel";

const INVALID: Refusal = refused(&[400]);
const CONFLICT: Refusal = refused(&[409, 422]);
const RUNNING: Refusal = refused(&[409, 503]);

/// The error model of a catalog.
const fn of_model(refusal: Refusal) -> Refusal {
    refusal.members(&[
        ("/error/message", Text),
        ("/error/type", Text),
        ("/error/code", Status),
    ])
}

pub(in super::super) const ROWS: &[Row] = &[
    Row::new(
        CONFIG,
        States,
        "lifetime",
        "A catalog that supports keys advertises how long they can be used.",
        Lifetime,
    ),
    Row::new(
        CONFIG,
        Should,
        "kept",
        "Repeats are accepted for as long as advertised.",
        KeepsLifetime,
    ),
    Row::new(
        PARAMETER,
        States,
        "optional",
        "The key is optional.",
        Optional,
    ),
    Row::new(
        PARAMETER,
        States,
        "post",
        "Mutations take a key: POST.",
        Protects(Method::POST),
    ),
    Row::new(
        PARAMETER,
        States,
        "delete",
        "Mutations take a key: DELETE.",
        Protects(Method::DELETE),
    ),
    Row::new(
        PARAMETER,
        States,
        "get",
        "Reads take none.",
        Ignores(Method::GET),
    ),
    Row::new(
        PARAMETER,
        States,
        "one_effect",
        "Requests with one key have no further effect.",
        OneEffect,
    ),
    Row::new(
        PARAMETER,
        States,
        "replayed",
        "After 200, 201, 204 a repeat gets an equivalent response.",
        Repeats(Usual),
    ),
    Row::new(
        PARAMETER,
        States,
        "replayed_4xx",
        "After a terminal 4xx, 409 among them, so it does.",
        Repeats(Rejected),
    ),
    Row::new(
        PARAMETER,
        States,
        "not_5xx",
        "A 5xx is not final.",
        Released(Failing),
    ),
    Row::new(
        PARAMETER,
        States,
        "version_7",
        "A key is a UUID of version 7.",
        Accepts(KeyCase::Valid),
    ),
    Row::new(
        PARAMETER,
        States,
        "capitals",
        "Its letters may be capitals.",
        Accepts(KeyCase::Capitals),
    ),
    Row::new(
        PARAMETER,
        States,
        "version_4",
        "A UUID of version 4 is none.",
        Refuses(KeyCase::Version4, INVALID),
    ),
    Row::new(
        PARAMETER,
        States,
        "no_uuid",
        "Another text is none.",
        Refuses(KeyCase::NoUuid, INVALID),
    ),
    Row::new(
        PARAMETER,
        Must,
        "other_request",
        "A key belongs to one operation: another request of the operation is refused.",
        Conflicts(Number, CONFLICT),
    ),
    Row::new(
        PARAMETER,
        Must,
        "other_operation",
        "A key belongs to one operation: another one is refused.",
        Conflicts(Path, CONFLICT),
    ),
    Row::new(
        PARAMETER,
        States,
        "running",
        "Two requests at once have one effect.",
        RunningOrWait(RUNNING),
    ),
    Row::new(
        PARAMETER,
        States,
        "after_running",
        "Both get the response of the one that was executed.",
        AfterRunning,
    ),
    Row::new(
        PARAMETER,
        Should,
        "expired",
        "A key does not expire before the end of the advertised time, and may after it.",
        Expires,
    ),
    Row::new(
        ERROR,
        States,
        "error_of_key",
        "The refusal of a key has the error model of catalogs.",
        Refuses(KeyCase::NoUuid, of_model(INVALID)),
    ),
    Row::new(
        ERROR,
        States,
        "error_of_conflict",
        "So has that of a key of another request.",
        Conflicts(Number, of_model(CONFLICT)),
    ),
];
