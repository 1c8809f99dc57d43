use std::collections::HashMap;
use std::error::Error as _;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use super::{Fingerprint, FingerprintBuilder};

struct Refusing;

impl Serialize for Refusing {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("secret"))
    }
}

#[test]
fn the_example_of_the_protocol() {
    #[derive(Serialize)]
    struct Place {
        id: u8,
        note: Option<String>,
        items: [(&'static str, u8); 1],
        meta: HashMap<&'static str, i8>,
    }
    let place = Place {
        id: 7,
        note: None,
        items: [("a", 1)],
        meta: HashMap::from([("x", 1), ("y", -2)]),
    };
    let digest = FingerprintBuilder::value("shop::place", &place)
        .finish()
        .unwrap();
    let fingerprint = Fingerprint::of("shop::place", &place).unwrap();
    assert_eq!(digest.fingerprint(), fingerprint);
    assert_eq!(format!("{digest:?}"), "Digest(ebe42be9…)");
    assert_eq!(format!("{fingerprint:?}"), "Fingerprint(ebe42be9…)");
    assert_eq!(fingerprint.as_bytes()[12..], [0xf4, 0x42, 0xbc, 0x82]);
    assert_eq!(
        Fingerprint::from_bytes(*fingerprint.as_bytes()),
        fingerprint
    );
}

#[test]
fn arguments_are_a_map_by_name() {
    #[derive(Serialize)]
    struct Arguments {
        aa: u64,
        b: &'static str,
        c: Vec<u16>,
    }
    let mut arguments = FingerprintBuilder::new("op", 3);
    arguments.arg("b", "x");
    arguments.arg("c", &vec![1; 5_000]);
    arguments.arg("aa", &2);
    let map = Arguments {
        aa: 2,
        b: "x",
        c: vec![1; 5_000],
    };
    let whole = FingerprintBuilder::value("op", &map);
    assert_eq!(arguments.finish().unwrap(), whole.finish().unwrap());
}

#[test]
fn an_argument_that_is_none_is_not_one_that_is_missing() {
    let mut one = FingerprintBuilder::new("op", 1);
    one.arg("a", &None::<u8>);
    let none = FingerprintBuilder::new("op", 0);
    assert_ne!(one.finish().unwrap(), none.finish().unwrap());
}

#[test]
fn the_operation_takes_part() {
    let [one, other] = ["op", "op2"].map(|op| Fingerprint::of(op, &1).unwrap());
    assert_ne!(one, other);
}

#[test]
fn two_hundred_hash_maps_have_one_fingerprint() {
    let of = || {
        let map: HashMap<String, u32> = (0..40).map(|i| (format!("key {i}"), i)).collect();
        Fingerprint::of("op", &map).unwrap()
    };
    let first = of();
    assert!((0..200).all(|_| of() == first));
}

#[test]
fn none_matches_everything() {
    let [one, other] = [1, 2].map(|value| Fingerprint::of("op", &value).unwrap());
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
    let error = Fingerprint::of("op", &[Refusing]).unwrap_err();
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
