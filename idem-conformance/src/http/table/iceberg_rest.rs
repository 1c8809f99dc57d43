//! Apache Iceberg, REST catalog: the parameter `idempotency-key` and the configuration of its API.

use http::Method;

use super::super::key::KeyCase;
use super::super::refusal::Part::{Status, Text};
use super::super::refusal::{RefusalShape, refused};

const PARAMETER: &str = "idempotency-key";
const CONFIG: &str = "CatalogConfig";
const ERROR: &str = "ErrorModel";

const INVALID: RefusalShape = refused(&[400]);
const CONFLICT: RefusalShape = refused(&[409, 422]);
const RUNNING: RefusalShape = refused(&[409, 503]);

/// The error model of a catalog.
const fn of_model(refusal: RefusalShape) -> RefusalShape {
    refusal.with(&[
        ("/error/message", Text),
        ("/error/type", Text),
        ("/error/code", Status),
    ])
}

table! {
    "iceberg_rest": "Apache Iceberg, REST catalog, of 2026-08-21",
    "https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml",
    KeyPlace::Version7;

    CONFIG States "lifetime": "A catalog that supports keys advertises how long they can be used." => Lifetime;
    CONFIG Should "kept": "Repeats are accepted for as long as advertised." => KeepsLifetime;
    PARAMETER States "optional": "The key is optional." => Optional;
    PARAMETER States "post": "Mutations take a key: POST." => Protects(Method::POST);
    PARAMETER States "delete": "Mutations take a key: DELETE." => Protects(Method::DELETE);
    PARAMETER States "get": "A read takes no key." => Ignores(Method::GET);
    PARAMETER States "one_effect": "Requests with one key have no further effect." => OneEffect;
    PARAMETER States "replayed": "After 200, 201, 204 a repeat gets an equivalent response." => Repeats(Usual);
    PARAMETER States "replayed_4xx": "After a terminal 4xx, 409 among them, a repeat gets it." => Repeats(Rejected);
    PARAMETER States "not_5xx": "A 5xx is not final." => Released(Failing);
    PARAMETER States "version_7": "A key is a UUID of version 7." => Accepts(KeyCase::Valid);
    PARAMETER States "capitals": "A key may have capitals, as that of the example." => Accepts(KeyCase::Capitals);
    PARAMETER States "one_uuid": "Capitals are no other UUID (RFC 9562)." => Equal(Capitals);
    PARAMETER States "version_4": "A UUID of version 4 is not accepted." => Refuses(KeyCase::Version4, INVALID);
    PARAMETER States "no_uuid": "A text that is no UUID is not accepted." => Refuses(KeyCase::NoUuid, INVALID);
    PARAMETER Must "other_request": "A key belongs to one operation: another request of the operation is refused."
        => Conflicts(Number, CONFLICT);
    PARAMETER Must "other_operation": "A key belongs to one operation: another one is refused."
        => Conflicts(Path, CONFLICT);
    PARAMETER States "running": "Two requests at once have one effect." => RunningOrWait(RUNNING);
    PARAMETER States "after_running": "Repeats of two requests at once get the response of the one that was executed."
        => AfterRunning;
    PARAMETER Should "expired": "A key does not expire before the end of the advertised time, and may after it."
        => Expires;
    ERROR States "error_of_key": "The refusal of a key has the error model of catalogs."
        => Refuses(KeyCase::NoUuid, of_model(INVALID));
    ERROR States "error_of_conflict": "The refusal of a key of another request has the error model of catalogs."
        => Conflicts(Number, of_model(CONFLICT));
}
