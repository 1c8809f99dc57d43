use std::fmt;

use proptest::prelude::*;

use super::FormatKey;
use crate::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, KeyPart};

fn builder() -> KeyBuilder {
    KeyBuilder::new("op", DEFAULT_MAX_KEY_BYTES)
}

fn key(template: &'static str, values: &[fmt::Arguments<'_>]) -> Result<KeyDigest, KeyError> {
    builder().key(&FormatKey::new(template, values))
}

fn pair(template: &'static str, a: &str, b: &str) -> Result<KeyDigest, KeyError> {
    key(template, &[format_args!("{a}"), format_args!("{b}")])
}

#[test]
fn what_is_between_the_placeholders_does_not_join_them() {
    assert_ne!(pair("{}/{}", "a/b", "c"), pair("{}/{}", "a", "b/c"));
    assert_ne!(pair("{}{}", "ab", "c"), pair("{}{}", "a", "bc"));
    assert_ne!(pair("{}/{}", "a", "b"), pair("{}:{}", "a", "b"));
    assert_ne!(pair("{}/{}", "a", "b"), builder().key("a/b"));
    assert_ne!(pair("{}/{}", "a", "b"), builder().key(&("a", "b")));
}

#[test]
fn a_lone_placeholder_is_its_text() {
    let order_no = 7;
    let digest = key("{}", &[format_args!("{order_no}")]);
    assert_eq!(digest, builder().key("7"));
    let prefixed = key("order-{}", &[format_args!("{order_no}")]);
    assert_ne!(prefixed, digest);
    assert_ne!(prefixed, builder().key("order-7"));
}

#[test]
fn text_around_empty_placeholders_is_no_key() {
    let empty = |part| Err(KeyError::Empty { part });
    let nothing = "";
    for template in ["{}", "order-{}"] {
        let values = [format_args!("{nothing}")];
        let format = FormatKey::new(template, &values);
        assert_eq!(builder().key(&format), empty(KeyPart::Key), "{template}");
        assert_eq!(builder().scope(&format).key("a"), empty(KeyPart::Scope));
    }
    assert_eq!(pair("order {}-{}", "", ""), empty(KeyPart::Key));
    assert!(pair("order {}-{}", "", "b").is_ok());
}

#[test]
fn the_text_around_counts_towards_the_limit() {
    let long = "x".repeat(DEFAULT_MAX_KEY_BYTES);
    assert!(matches!(
        pair("{}/{}", "a", &long),
        Err(KeyError::TooLong { .. })
    ));
    let digest = KeyBuilder::new("op", 20).key(&FormatKey::new(
        "a template of twenty {}",
        &[format_args!("1")],
    ));
    assert!(matches!(digest, Err(KeyError::TooLong { .. })));
}

/// A value whose `Display` fails, at which `format!` panics.
#[test]
fn a_value_that_cannot_be_shown_is_refused() {
    struct Refuses;
    impl fmt::Display for Refuses {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }
    let refuses = Refuses;
    let digest = key("{}-{}", &[format_args!("a"), format_args!("{refuses}")]);
    let Err(KeyError::Unencodable { part, .. }) = digest else {
        panic!("it is not refused");
    };
    assert_eq!(part, KeyPart::Key);
}

#[test]
fn debug_shows_no_value() {
    let shown = format!("{:?}", FormatKey::new("a{}", &[format_args!("secret")]));
    assert_eq!(shown, "FormatKey(\"a{}\")");
}

/// Templates that a literal may have, with placeholders where joined texts would collide.
const TEMPLATES: [&str; 12] = [
    "{}", "{}{}", "{}/{}", "{}:{}", "/{}{}", "{}{}/", "a{}/{}", "{{}}{}", "{}{{}}{}", "{}{}{}",
    "{}/{}/{}", "order-{}",
];

fn of(template: &'static str, texts: &[String]) -> Result<KeyDigest, KeyError> {
    match texts {
        [a] => key(template, &[format_args!("{a}")]),
        [a, b] => pair(template, a, b),
        [a, b, c] => key(
            template,
            &[
                format_args!("{a}"),
                format_args!("{b}"),
                format_args!("{c}"),
            ],
        ),
        _ => panic!("no template has so many placeholders"),
    }
}

/// A template, and the texts of its placeholders.
type Formatted = (&'static str, Vec<String>);

fn placeholders(template: &str) -> usize {
    let braces = template.replace("{{", "").replace("}}", "");
    braces.matches("{}").count()
}

/// Texts of few characters, so that joined texts would collide.
fn formatted() -> impl Strategy<Value = Formatted> {
    proptest::sample::select(&TEMPLATES[..]).prop_flat_map(|template| {
        let texts = proptest::collection::vec("[a/:{}\u{0}]{0,3}", placeholders(template));
        (Just(template), texts)
    })
}

/// The same texts with another text between them.
fn between_other_texts(one: &Formatted) -> impl Strategy<Value = Formatted> + use<> {
    let texts = one.1.clone();
    let mut templates = TEMPLATES.to_vec();
    templates.retain(|template| placeholders(template) == texts.len());
    (proptest::sample::select(templates), Just(texts))
}

/// The same text, split elsewhere.
fn split_elsewhere(one: &Formatted) -> impl Strategy<Value = Formatted> + use<> {
    let (template, parts, joined) = (one.0, one.1.len(), one.1.concat());
    let cuts = proptest::collection::vec(0..=joined.len(), parts - 1);
    cuts.prop_map(move |mut cuts| {
        cuts.sort_unstable();
        cuts.push(joined.len());
        let mut from = 0;
        let texts = cuts.iter().map(|cut| {
            let text = joined[from..*cut].to_owned();
            from = *cut;
            text
        });
        (template, texts.collect())
    })
}

fn two() -> impl Strategy<Value = (Formatted, Formatted)> {
    formatted().prop_flat_map(|one| {
        let other = prop_oneof![
            formatted(),
            between_other_texts(&one),
            split_elsewhere(&one)
        ];
        (Just(one), other)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// Two lists of texts, or two texts between them, are two keys.
    #[test]
    fn distinct_inputs_have_distinct_digests((one, other) in two()) {
        let empty = |texts: &[String]| texts.iter().all(String::is_empty);
        let (first, second) = (of(one.0, &one.1), of(other.0, &other.1));
        prop_assert_eq!(first.is_err(), empty(&one.1));
        prop_assert_eq!(second.is_err(), empty(&other.1));
        if let (Ok(first), Ok(second)) = (first, second) {
            prop_assert_eq!(first == second, one == other, "{:?} and {:?}", one, other);
        }
    }
}
