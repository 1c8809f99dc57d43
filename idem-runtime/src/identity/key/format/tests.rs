use std::collections::HashMap;
use std::fmt;

use super::FormatKey;
use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, KeyError, KeyPart};

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
fn a_lone_placeholder_is_its_text() {
    let order_no = 7;
    let digest = key("{}", &[format_args!("{order_no}")]);
    assert_eq!(digest, builder().key("7"));
    let prefixed = key("order-{}", &[format_args!("{order_no}")]);
    assert_ne!(prefixed, digest);
    assert_ne!(prefixed, builder().key("order-7"));
    assert_ne!(pair("{}/{}", "a", "b"), builder().key("a/b"));
    assert_ne!(pair("{}/{}", "a", "b"), builder().key(&("a", "b")));
}

#[test]
fn text_around_an_empty_scope_is_no_scope() {
    let nothing = "";
    for template in ["{}", "order-{}"] {
        let values = [format_args!("{nothing}")];
        let scope = builder().scope(&FormatKey::new(template, &values));
        let part = KeyPart::Scope;
        assert_eq!(scope.key("a"), Err(KeyError::Empty { part }), "{template}");
    }
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

/// Templates of literals whose joined texts would collide.
const TEMPLATES: [&str; 12] = [
    "{}", "{}{}", "{}/{}", "{}:{}", "/{}{}", "{}{}/", "a{}/{}", "{{}}{}", "{}{{}}{}", "{}{}{}",
    "{}/{}/{}", "order-{}",
];

fn of(template: &'static str, texts: &[&str]) -> Result<KeyDigest, KeyError> {
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

/// Two lists of texts, or two texts between them, are two keys: all lists of texts that would collide if they were joined.
#[test]
fn distinct_inputs_have_distinct_digests() {
    const TEXTS: [&str; 7] = ["", "a", "/", "a/", ":", "{}", "\0"];
    let mut keys = HashMap::new();
    for template in TEMPLATES {
        let braces = template.replace("{{", "").replace("}}", "");
        let mut lists = vec![Vec::new()];
        for _ in braces.matches("{}") {
            let longer = |list: &Vec<_>| TEXTS.map(|text| [&list[..], &[text]].concat());
            lists = lists.iter().flat_map(longer).collect();
        }
        for texts in lists {
            match of(template, &texts) {
                Ok(digest) => {
                    let is_empty = !texts.is_empty() && texts.iter().all(|text| text.is_empty());
                    assert!(!is_empty, "{template}");
                    assert_eq!(keys.insert(digest, (template, texts)), None);
                }
                Err(_) => assert!(
                    texts.iter().all(|text| text.is_empty()),
                    "{template} {texts:?}"
                ),
            }
        }
    }
    assert!(keys.len() > 1_000, "{}", keys.len());
}
