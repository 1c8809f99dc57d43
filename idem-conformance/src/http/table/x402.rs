//! x402, version 2: the extension `payment-identifier`, and the transport over HTTP.

use super::super::key::KeyCase;
use super::super::refusal::{RefusalShape, refused};

const EXTENSION: &str = "payment_identifier";
const GUIDE: &str = "payment-identifier (guide)";
const HTTP: &str = "transports-v2/http";

const INVALID: RefusalShape = refused(&[400]);
const CONFLICT: RefusalShape = refused(&[409]);

table! {
    "x402": "x402, version 2, extension payment-identifier",
    "https://github.com/x402-foundation/x402/blob/main/specs/extensions/payment_identifier.md",
    "https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/http.md",
    KeyPlace::Payment;

    HTTP States "challenge": "A request without a payment gets 402 and its terms." => Challenges;
    HTTP States "paid": "The request is repeated with a payment, and is executed." => PaysAfterChallenge;
    HTTP States "settlement": "A response to a payment has its settlement." => RepeatsSettlement;
    EXTENSION States "advertised": "The terms say whether an identifier is required." => Advertises;
    EXTENSION States "new": "A payment with a new identifier is processed." => Accepts(KeyCase::Valid);
    EXTENSION States "cached": "The same identifier and payload get the first response." => Repeats(Usual);
    EXTENSION States "one_effect": "The payment is not processed again." => OneEffect;
    EXTENSION States "other_terms": "The same identifier with another payload is a 409." => Conflicts(Terms, CONFLICT);
    EXTENSION States "other_request": "The same identifier for another request is a 409."
        => Conflicts(Number, CONFLICT);
    EXTENSION States "required": "A missing identifier is a 400 where one is required." => Requires(INVALID);
    EXTENSION States "shortest": "An identifier has at least 16 characters." => Accepts(KeyCase::Long(16));
    EXTENSION States "too_short": "An identifier of 15 characters is not accepted."
        => Refuses(KeyCase::Long(15), INVALID);
    EXTENSION States "longest": "An identifier has at most 128 characters." => Accepts(KeyCase::Long(128));
    EXTENSION States "too_long": "An identifier of 129 characters is not accepted."
        => Refuses(KeyCase::Long(129), INVALID);
    EXTENSION States "characters": "An identifier has letters, digits, hyphens and underscores."
        => Refuses(KeyCase::FullStop, INVALID);
    GUIDE States "signed_anew": "A client signs each retry anew, with the same identifier, and gets the first response."
        => Equal(Signature);
    GUIDE States "lifetime": "The server chooses how long identifiers are kept." => Unseen("any time is allowed");
    EXTENSION States "running": "Two requests at once are processed once." => RunningOrWait(CONFLICT);
    EXTENSION States "after_running": "Repeats of two requests at once get the response of the one that was processed."
        => AfterRunning;
}
