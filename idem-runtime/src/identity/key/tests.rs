use std::collections::HashMap;
use std::error::Error as _;

use serde::Serialize;

use super::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, KeyPart, ToKey};
use crate::fingerprint::FingerprintBuilder;

fn builder() -> KeyBuilder {
    KeyBuilder::new("op", DEFAULT_MAX_KEY_BYTES)
}

fn key<K: ToKey + ?Sized>(key: &K) -> KeyDigest {
    builder().key(key).unwrap()
}

fn scoped(scope: &str, key: &str) -> KeyDigest {
    builder().scope(scope).key(key).unwrap()
}

#[test]
fn a_tuple_is_not_the_text_of_its_parts() {
    assert_ne!(key(&("a", "bc")), key(&("ab", "c")));
    assert_ne!(key(&("a", "b")), key("ab"));
    assert_ne!(key(&("a",)), key("a"));
    assert_ne!(key(&("7",)), key(&(7,)));
}

#[test]
fn scope_key_and_operation_do_not_run_into_each_other() {
    let digests = [
        scoped("a", "b"),
        scoped("b", "a"),
        key(&("a", "b")),
        key(&("b", "a")),
        key("a"),
        key("b"),
        KeyBuilder::new("a", 1024).key("b").unwrap(),
        KeyBuilder::new("b", 1024).key("a").unwrap(),
        KeyBuilder::new("a", 1024).key("op").unwrap(),
    ];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(digest), "{index}");
    }
}

#[test]
fn the_same_key_in_another_type_is_the_same_key() {
    #[derive(Serialize)]
    struct OrderNo(u32);
    assert_eq!(key(&7_u32), key(&7_u64));
    assert_eq!(key(&7_i8), key(&OrderNo(7)));
    assert_eq!(key("a"), key(&String::from("a")));
    assert_eq!(key("a"), key(&"a"));
    assert_eq!(key("a"), key(&'a'));
    assert_eq!(key("a"), key(&Some("a")));
    let map = |entries: [(&'static str, u8); 3]| key(&HashMap::from(entries));
    assert_eq!(
        map([("a", 1), ("b", 2), ("c", 3)]),
        map([("c", 3), ("a", 1), ("b", 2)])
    );
}

fn assert_empty<K: ToKey + ?Sized>(key: &K) {
    assert_eq!(
        builder().key(key),
        Err(KeyError::Empty { part: KeyPart::Key })
    );
    let scope = KeyError::Empty {
        part: KeyPart::Scope,
    };
    assert_eq!(builder().scope(key).key("a"), Err(scope));
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
    struct Fields {
        tenant: &'static str,
        id: Option<u8>,
    }
    assert_empty("");
    assert_empty(&());
    assert_empty(&Global);
    assert_empty(&None::<u8>);
    assert_empty(&Some(None::<u8>));
    assert_empty(&("", ""));
    assert_empty(&[0_u8; 0]);
    assert_empty(&Vec::<u8>::new());
    assert_empty(&Fields {
        tenant: "",
        id: None,
    });
    assert_empty(&HashMap::from([("", "")]));
    assert_empty(&Kind::Text(""));
}

#[test]
fn numbers_flags_and_variants_identify() {
    let keys = [
        key(&0),
        key(&false),
        key(&0.0),
        key(&Kind::Unit),
        key(&Kind::Fields {}),
        key(&("", "a")),
    ];
    for (index, digest) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(digest), "{index}");
    }
}

#[test]
fn a_full_scope_does_not_fill_the_key() {
    assert_eq!(
        builder().scope("a").key(""),
        Err(KeyError::Empty { part: KeyPart::Key })
    );
}

#[test]
fn the_limit_is_exact_and_holds_for_each_part() {
    // Two bytes of head.
    let longest = "x".repeat(98);
    let too_long = "x".repeat(99);
    let builder = || KeyBuilder::new("an operation", 100);
    assert!(builder().scope(&longest).key(&longest).is_ok());
    let error = |part| KeyError::TooLong {
        part,
        bytes: 101,
        max_bytes: 100,
    };
    assert_eq!(builder().key(&too_long), Err(error(KeyPart::Key)));
    assert_eq!(
        builder().scope(&longest).key(&too_long),
        Err(error(KeyPart::Key))
    );
    assert_eq!(
        builder().scope(&too_long).key(""),
        Err(error(KeyPart::Scope))
    );
    // One byte of head.
    let numbers = |count: usize| builder().key(&vec![u16::MAX; count]);
    assert!(builder().key(&[1; 23]).is_ok());
    assert!(numbers(32).is_ok());
    assert!(matches!(numbers(33), Err(KeyError::TooLong { .. })));
}

#[test]
fn absent_fields_do_not_count_towards_the_limit() {
    #[derive(Serialize)]
    struct Fields {
        a: u8,
        a_long_name_that_would_not_fit: Option<&'static str>,
    }
    let fields = |text| Fields {
        a: 1,
        a_long_name_that_would_not_fit: text,
    };
    assert!(KeyBuilder::new("op", 4).key(&fields(None)).is_ok());
    assert!(KeyBuilder::new("op", 4).key(&fields(Some(""))).is_err());
}

#[test]
fn encoding_stops_soon_after_the_limit() {
    let error = builder()
        .key(&(0..10_000_000_u64).collect::<Vec<_>>())
        .unwrap_err();
    let KeyError::TooLong { bytes, .. } = error else {
        panic!("{error}")
    };
    assert!(bytes < 1100, "{bytes}");
}

#[test]
fn fingerprint_mode_has_a_key_space_of_its_own() {
    let asked = |value: u8| FingerprintBuilder::value("op", &value).finish().unwrap();
    let digest = builder().digest(&asked(1)).unwrap();
    assert_eq!(digest, builder().digest(&asked(1)).unwrap());
    assert_ne!(digest, builder().digest(&asked(2)).unwrap());
    assert_ne!(digest, builder().scope("a").digest(&asked(1)).unwrap());
    assert_ne!(digest, key(asked(1).as_bytes()));
    let scope = builder().scope("").digest(&asked(1));
    assert_eq!(
        scope,
        Err(KeyError::Empty {
            part: KeyPart::Scope
        })
    );
}

#[test]
fn the_text_is_base64url_without_padding() {
    let mut bytes = [0; 32];
    bytes[..3].copy_from_slice(&[0xfb, 0xff, 0xbf]);
    bytes[31] = 0xff;
    let digest = KeyDigest::from_bytes(bytes);
    let mut text = String::from("k:");
    digest.text(&mut text);
    assert_eq!(text, format!("k:-_-_{}AP8", "A".repeat(36)));
    assert_eq!(format!("{digest:?}"), "KeyDigest(-_-_AAAA…)");
}

#[test]
fn text_does_not_allocate_where_there_is_room() {
    let mut text = String::with_capacity(KeyDigest::TEXT_BYTES);
    let (before, capacity) = (text.as_ptr(), text.capacity());
    key("a").text(&mut text);
    assert_eq!((text.as_ptr(), text.capacity()), (before, capacity));
}

#[test]
fn errors_say_what_is_wrong_and_not_what_the_key_is() {
    let messages = [
        builder().key("").unwrap_err().to_string(),
        builder().scope("").key("").unwrap_err().to_string(),
        KeyBuilder::new("op", 5)
            .key("secret")
            .unwrap_err()
            .to_string(),
    ];
    assert_eq!(
        messages,
        [
            "the key is empty: all calls without one would get the answer of the first",
            "the scope is empty: all callers without one would see each other's answers",
            "the key takes at least 6 bytes, and 5 are allowed: use what identifies the call, not \
             what it carries",
        ]
    );
}

#[test]
fn what_cannot_be_encoded_is_said_by_the_source() {
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("a", 1), ("a", 2)])
        }
    }
    let error = builder().key(&Twice).unwrap_err();
    assert_eq!(error.to_string(), "the key cannot be encoded");
    assert!(error.source().unwrap().to_string().contains("the same key"));
    let error = builder().scope(&Twice).key("a").unwrap_err();
    assert_eq!(error.to_string(), "the scope cannot be encoded");
}

/// A type that serializes as the extractor does.
#[cfg(feature = "http")]
fn client_key(text: &str) -> crate::http::IdempotencyKey {
    crate::http::IdempotencyKey(text.to_owned())
}

#[cfg(feature = "http")]
#[test]
fn a_client_key_needs_a_scope_or_the_word() {
    #[derive(Serialize)]
    struct Nested {
        kind: &'static str,
        key: Option<crate::http::IdempotencyKey>,
    }
    let nested = || Nested {
        kind: "order",
        key: Some(client_key("a")),
    };
    assert_eq!(builder().key(&client_key("a")), Err(KeyError::Unscoped));
    assert_eq!(
        builder().key(&("order", client_key("a"))),
        Err(KeyError::Unscoped)
    );
    assert_eq!(builder().key(&nested()), Err(KeyError::Unscoped));
    assert_eq!(builder().public().key(&client_key("a")), Ok(key("a")));
    let of_tenant = builder().scope("tenant").key(&client_key("a"));
    assert_eq!(of_tenant, Ok(scoped("tenant", "a")));
    assert!(builder().scope("tenant").key(&nested()).is_ok());
    // A key of the server's own, on the encoder that has just refused.
    assert!(builder().key("a").is_ok());
}

#[test]
fn public_is_no_part_of_the_key() {
    assert_eq!(builder().public().key("a"), Ok(key("a")));
    assert_eq!(builder().public().scope("t").key("a"), Ok(scoped("t", "a")));
    assert_eq!(builder().scope("t").public().key("a"), Ok(scoped("t", "a")));
}
