//! The Universal Commerce Protocol: its pages on signatures and on the REST binding of checkouts.

use std::time::Duration;

use http::Method;

use super::super::key::KeyCase;
use super::super::refusal::{RefusalShape, refused};

const REST: &str = "checkout/rest";
const SIGNATURES: &str = "signatures";
const OVERVIEW: &str = "overview";

const CONFLICT: RefusalShape = refused(&[409]);

table! {
    "ucp": "Universal Commerce Protocol, of 2026-08-22",
    "https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/signatures.md",
    "https://github.com/Universal-Commerce-Protocol/ucp/blob/main/docs/specification/shopping/checkout/rest.md",
    KeyPlace::Bare;

    REST Should "post": "Operations that change state take a key: POST." => Protects(Method::POST);
    REST Should "put": "Operations that change state take a key: PUT." => Protects(Method::PUT);
    REST States "get": "A read takes no key." => Ignores(Method::GET);
    REST Must "kept": "The key is kept with the result for at least 24 hours." => Keeps(Duration::from_secs(86_400));
    REST Must "cached": "A repeat with the same body gets the result." => Repeats(Usual);
    REST Must "conflict": "The key with another body is a 409." => Conflicts(Number, CONFLICT);
    OVERVIEW States "conflict_code": "The status of a key with another payload is 409." => Conflicts(Number, CONFLICT);
    SIGNATURES States "entropy": "A key has at least 128 bits: a UUID." => Accepts(KeyCase::Version4);
    SIGNATURES States "weak": "A key of 16 characters has fewer than 128 bits."
        => Refuses(KeyCase::Long(16), refused(&[400]));
    SIGNATURES States "client": "A key is unique for a client." => Independent(Caller);
    SIGNATURES States "operation": "A key is unique for a type of operation." => Independent(Path);
    SIGNATURES States "recommended": "It is recommended to keep keys for 48 hours."
        => Keeps(Duration::from_secs(2 * 86_400));
    SIGNATURES States "expired": "A request under an expired key is a new one." => Expires;
    SIGNATURES States "one_effect": "A repeat is not executed." => OneEffect;
    SIGNATURES Must "raw_blank": "Bodies are equal by the SHA-256 of their bytes: white space counts."
        => Conflicts(Blank, CONFLICT);
    SIGNATURES Must "raw_order": "The order of members counts." => Conflicts(MemberOrder, CONFLICT);
    SIGNATURES Must "fail_closed": "A request is refused with 503 while the store is unreachable."
        => Outage(refused(&[503]));
    SIGNATURES States "running": "Two requests at once are executed once." => RunningOrWait(CONFLICT);
    SIGNATURES States "after_running": "Repeats of two requests at once get the result of the one that was executed."
        => AfterRunning;
    SIGNATURES States "signed": "The key is a part of what is signed."
        => CannotBeMet("signatures are checked by a layer outside; this one has no keys of partners");
    "checkout/mcp" States "mcp": "Over MCP the key is a member of `meta`."
        => CannotBeMet("a JSON-RPC request has one path and one method for all operations");
}
