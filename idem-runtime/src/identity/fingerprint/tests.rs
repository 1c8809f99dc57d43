use std::collections::HashMap;
use std::error::Error as _;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use super::{Fingerprint, FingerprintBuilder};
use crate::identity::canonical::vectors::hex;

struct Refusing;

impl Serialize for Refusing {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("secret"))
    }
}

#[test]
fn a_fingerprint_is_the_beginning_of_a_digest() {
    let digest = FingerprintBuilder::value("op", &1).finish().unwrap();
    let fingerprint = digest.fingerprint();
    let bytes = fingerprint.as_bytes();
    assert_eq!(digest.as_bytes()[..16], *bytes);
    assert_eq!(Fingerprint::from_bytes(*bytes), fingerprint);
    let shown = hex(&bytes[..4]);
    assert_eq!(format!("{digest:?}"), format!("Digest({shown}…)"));
    assert_eq!(format!("{fingerprint:?}"), format!("Fingerprint({shown}…)"));
}

#[test]
fn arguments_are_a_map_by_name() {
    let long = vec![1_u64; 5_000];
    let mut arguments = FingerprintBuilder::new("op", 2);
    arguments.arg("c", &long);
    arguments.arg("aa", &long);
    let map = HashMap::from([("aa", &long), ("c", &long)]);
    let whole = FingerprintBuilder::value("op", &map);
    assert_eq!(arguments.finish().unwrap(), whole.finish().unwrap());
}

#[test]
fn none_matches_everything() {
    let asked = |value: &u8| FingerprintBuilder::value("op", value).finish().unwrap();
    let [one, other] = [1, 2].map(|value| asked(&value).fingerprint());
    assert!(one.matches(one));
    assert!(!one.matches(other));
    assert!(one.matches(Fingerprint::NONE));
    assert!(Fingerprint::NONE.matches(other));
    assert!(Fingerprint::NONE.is_none());
    assert!(!one.is_none());
    assert_eq!(format!("{:?}", Fingerprint::NONE), "Fingerprint(none)");
}

#[test]
fn an_error_names_the_first_bad_argument_and_not_its_value() {
    let mut arguments = FingerprintBuilder::new("op", 3);
    arguments.arg("a", &1);
    arguments.arg("b", &Refusing);
    arguments.arg("c", &Refusing);
    let error = arguments.finish().unwrap_err();
    assert_eq!(error.argument(), Some("b"));
    assert_eq!(
        error.to_string(),
        "argument `b` of type `idem_runtime::identity::fingerprint::tests::Refusing` cannot be fingerprinted"
    );
    assert_eq!(
        error.source().unwrap().to_string(),
        "its `Serialize` implementation returned an error"
    );
    let error = FingerprintBuilder::value("op", &[Refusing])
        .finish()
        .unwrap_err();
    assert_eq!(error.argument(), None);
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "argument `a` comes before `b` in canonical order")]
fn arguments_out_of_order_are_found() {
    let mut arguments = FingerprintBuilder::new("op", 2);
    arguments.arg("b", &1);
    arguments.arg("a", &1);
}
