use std::collections::HashMap;
use std::error::Error as _;

use serde::Serialize;

use super::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, KeyPart, ToKey};
use crate::identity::fingerprint::FingerprintBuilder;

fn builder() -> KeyBuilder {
    KeyBuilder::new("op", DEFAULT_MAX_KEY_BYTES)
}

fn key<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    builder().key(key).unwrap()
}

fn empty(part: KeyPart) -> Result<KeyDigest, KeyError> {
    Err(KeyError::Empty { part })
}

fn assert_empty<K: ToKey + ?Sized>(key: &K) {
    assert_eq!(builder().key(key), empty(KeyPart::Key));
    assert_eq!(builder().scope(key).key("a"), empty(KeyPart::Scope));
}

#[derive(Serialize)]
enum Kind {
    Unit,
    Text(&'static str),
    Fields {},
}

#[test]
fn a_key_that_identifies_nothing_is_refused() {
    #[derive(Serialize)]
    struct Global;
    #[derive(Serialize)]
    struct TenantFields {
        tenant: Option<u8>,
        id: &'static str,
    }
    assert_empty("");
    assert_empty(&());
    assert_empty(&Global);
    assert_empty(&None::<u8>);
    assert_empty(&Some(None::<u8>));
    assert_empty(&("", ""));
    assert_empty(&Vec::<u8>::new());
    assert_empty(&TenantFields {
        tenant: None,
        id: "",
    });
    assert_empty(&HashMap::from([("", "")]));
    assert_empty(&Kind::Text(""));
    assert_eq!(builder().scope("a").key(""), empty(KeyPart::Key));
    let asked = FingerprintBuilder::value("op", &1).finish().unwrap();
    assert_eq!(builder().scope("").digest(&asked), empty(KeyPart::Scope));
    // Numbers, flags and variants identify.
    key(&(0, 0.0));
    key(&false);
    key(&Kind::Unit);
    key(&Kind::Fields {});
    key(&("", "a"));
}

#[test]
fn the_limit_is_exact_and_holds_for_each_part() {
    // Two bytes of head.
    let (longest, too_long) = ("x".repeat(98), "x".repeat(99));
    let builder = || KeyBuilder::new("an operation", 100);
    assert!(builder().scope(&longest).key(&longest).is_ok());
    let error = |part| {
        let (bytes, max_bytes) = (101, 100);
        Err(KeyError::TooLong {
            part,
            bytes,
            max_bytes,
        })
    };
    assert_eq!(builder().key(&too_long), error(KeyPart::Key));
    assert_eq!(
        builder().scope(&longest).key(&too_long),
        error(KeyPart::Key)
    );
    assert_eq!(builder().scope(&too_long).key(""), error(KeyPart::Scope));
    // One byte of head.
    let numbers = |count: usize| builder().key(&vec![u16::MAX; count]);
    assert!(builder().key(&[1; 23]).is_ok() && numbers(32).is_ok());
    assert!(matches!(numbers(33), Err(KeyError::TooLong { .. })));
    // Encoding stops soon after the limit.
    let Err(KeyError::TooLong { bytes, .. }) = numbers(10_000_000) else {
        panic!("it is too long");
    };
    assert!(bytes < 150, "{bytes}");
}

#[test]
fn absent_fields_do_not_count_towards_the_limit() {
    #[derive(Serialize)]
    struct LongNamed {
        a: u8,
        a_long_name_that_would_not_fit: Option<&'static str>,
    }
    let fits = |a_long_name_that_would_not_fit| {
        let key = LongNamed {
            a: 1,
            a_long_name_that_would_not_fit,
        };
        KeyBuilder::new("op", 4).key(&key).is_ok()
    };
    assert!(fits(None) && !fits(Some("")));
}

#[test]
fn the_text_is_base64url_without_padding() {
    let mut bytes = [0; 32];
    bytes[..3].copy_from_slice(&[0xfb, 0xff, 0xbf]);
    bytes[31] = 0xff;
    let digest = KeyDigest::from_bytes(bytes);
    let mut text = String::with_capacity(2 + KeyDigest::TEXT_BYTES);
    text.push_str("k:");
    let (before, capacity) = (text.as_ptr(), text.capacity());
    digest.text(&mut text);
    assert_eq!(text, format!("k:-_-_{}AP8", "A".repeat(36)));
    assert_eq!((text.as_ptr(), text.capacity()), (before, capacity));
    assert_eq!(format!("{digest:?}"), "KeyDigest(-_-_AAAA…)");
}

#[test]
fn errors_say_what_is_wrong_and_not_what_the_key_is() {
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("a", 1), ("a", 2)])
        }
    }
    let long = KeyBuilder::new("op", 5);
    let unencodable = builder().key(&Twice).unwrap_err();
    assert!((unencodable.source().unwrap().to_string()).contains("the same key"));
    for (error, text) in [
        (
            builder().key(""),
            "the key is empty: all calls without one would get the answer of the first",
        ),
        (
            builder().scope("").key(""),
            "the scope is empty: all callers without one would see each other's answers",
        ),
        (
            long.key("secret"),
            "the key takes at least 6 bytes, and 5 are allowed: use what identifies the call, not what it carries",
        ),
        (Err(unencodable), "the key cannot be encoded"),
        (
            builder().scope(&Twice).key("a"),
            "the scope cannot be encoded",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), text);
    }
}

#[cfg(feature = "http")]
#[test]
fn a_client_key_needs_a_scope_or_the_word() {
    #[derive(Serialize)]
    struct OrderKey(&'static str, Option<crate::http::IdempotencyKey>);
    let client_key = || crate::http::IdempotencyKey("a".to_owned());
    let nested = OrderKey("order", Some(client_key()));
    assert_eq!(builder().key(&client_key()), Err(KeyError::Unscoped));
    assert_eq!(
        builder().key(&("order", client_key())),
        Err(KeyError::Unscoped)
    );
    assert_eq!(builder().key(&nested), Err(KeyError::Unscoped));
    assert_eq!(builder().public().key(&client_key()), Ok(key("a")));
    let scoped = builder().scope("tenant").key("a");
    assert_eq!(builder().scope("tenant").key(&client_key()), scoped);
    assert!(builder().scope("tenant").key(&nested).is_ok());
    // A key of the server's own, on the encoder that has just refused.
    assert!(builder().key("a").is_ok());
    // The word is no part of the key.
    assert_eq!(builder().public().scope("tenant").key("a"), scoped);
    assert_eq!(builder().scope("tenant").public().key("a"), scoped);
}
