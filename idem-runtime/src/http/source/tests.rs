use ::http::{HeaderValue, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::http::payment::{PAYMENT, base64};

fn head(uri: &str) -> Parts {
    let request = Request::post(uri).body(()).unwrap();
    request.into_parts().0
}

/// The text of the key, or its refusal.
fn read(source: &KeySource, request: &Parts, body: &[u8]) -> Result<Option<String>, KeyRefusal> {
    let key = source.read(&KeyRules::default(), request, body);
    key.map(|key| key.map(|key| key.0))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the result of a read that found this"
)]
fn found(text: &str) -> Result<Option<String>, KeyRefusal> {
    Ok(Some(text.to_owned()))
}

#[test]
fn a_member_is_found_where_its_pointer_leads_and_nowhere_else() {
    use KeyRefusal::{NotAString, Repeated, Unreadable};
    let absent = Ok(None);
    for (pointer, document, expected) in [
        ("/k", r#"{"k":"a"}"#, found("a")),
        ("/k", " {\"b\":[{}],\"k\":\"\\u0061\\n\"} ", found("a\n")),
        ("/m/k", r#"{"k":"b","m":{"k":"a"}}"#, found("a")),
        ("/a~1b/~0", r#"{"a/b":{"~":"a"}}"#, found("a")),
        ("/0", r#"["a","b"]"#, found("a")),
        ("/1/k", r#"[{"k":"b"},{"k":"a"}]"#, found("a")),
        ("/1", r#"{"1":"a"}"#, found("a")),
        ("/k", "", absent.clone()),
        ("/k", "{}", absent.clone()),
        ("/k", r#"{"K":"a","m":{"k":"a"}}"#, absent.clone()),
        ("/m/k", r#"{"m":null}"#, absent.clone()),
        ("/01", r#"["a","b"]"#, absent.clone()),
        ("/-", r#"["a"]"#, absent.clone()),
        ("/2", r#"["a","b"]"#, absent),
        ("/k", r#"{"k":1}"#, Err(NotAString)),
        ("/k", r#"{"k":null}"#, Err(NotAString)),
        ("/k", r#"{"k":["a"]}"#, Err(NotAString)),
        ("/k", r#"{"k":{"k":"a"}}"#, Err(NotAString)),
        ("/k", r#"{"k":"a","k":"a"}"#, Err(Repeated)),
        ("/k", r#"{"k":"a","\u006b":1}"#, Err(Repeated)),
        ("/m/k", r#"{"m":{},"m":{"k":"a"}}"#, Err(Repeated)),
        ("/m/k", r#"{"m":"a"}"#, Err(Unreadable)),
        ("/m/k", r#"{"m":7}"#, Err(Unreadable)),
        // As serde_json has the number where another crate enables `arbitrary_precision`.
        (
            "/m/k",
            r#"{"m":{"$serde_json::private::Number":"7"}}"#,
            Err(Unreadable),
        ),
        ("/k", "a", Err(Unreadable)),
        ("/k", " ", Err(Unreadable)),
        ("/k", r#""a""#, Err(Unreadable)),
        ("/k", r#"{"k":"a""#, Err(Unreadable)),
        ("/k", r#"{"k":"a"} {}"#, Err(Unreadable)),
        ("/k", r#"{"k":"a",}"#, Err(Unreadable)),
        ("/k", "k=a", Err(Unreadable)),
        ("/k", "\u{feff}{}", Err(Unreadable)),
        ("/k", r#"{"k":"\ud800"}"#, Err(Unreadable)),
    ] {
        let source = KeySource::json(pointer);
        let key = read(&source, &head("/"), document.as_bytes());
        assert_eq!(key, expected, "{pointer} of {document}");
    }
    let source = KeySource::json("/k");
    for bytes in [&b"\x1f\x8b\x08"[..], b"{\"k\":\"a\",\"b\":\"\xff\"}"] {
        assert_eq!(read(&source, &head("/"), bytes), Err(Unreadable));
    }
}

#[test]
fn a_parameter_is_decoded_as_a_form_is() {
    use KeyRefusal::{Empty, Repeated, Unreadable};
    let source = KeySource::query("the key");
    for (query, expected) in [
        ("the+key=a", found("a")),
        ("a=1&%74he%20key=%C3%A9+%2b%26&b", found("é +&")),
        ("the+key=a=b", found("a=b")),
        ("%zz=1&the+key=a&%ff=1", found("a")),
        ("", Ok(None)),
        ("thekey=a&THE+KEY=a&=a", Ok(None)),
        ("the+key", Err(Empty)),
        ("the+key=+", Err(Empty)),
        ("the+key=a&the%20key=a", Err(Repeated)),
        ("the+key=%", Err(Unreadable)),
        ("the+key=%4", Err(Unreadable)),
        ("the+key=%+4", Err(Unreadable)),
        ("the+key=%c3", Err(Unreadable)),
    ] {
        let key = read(&source, &head(&format!("/?{query}")), b"");
        assert_eq!(key, expected, "{query}");
    }
    assert_eq!(read(&source, &head("/the+key=a"), b""), Ok(None));
}

#[test]
fn a_payment_has_its_identifier_in_an_extension() {
    use KeyRefusal::{NotAString, Repeated, Unreadable};
    let source = KeySource::payment_identifier();
    let with = |lines: &[&str]| {
        let mut request = head("/");
        for line in lines {
            let line = HeaderValue::from_str(line).unwrap();
            request.headers.append(&PAYMENT[0], line);
        }
        assert_eq!(source.applies(&request.headers), !lines.is_empty());
        read(&source, &request, b"")
    };
    let of = |extensions: Value| {
        let document = json!({ "x402Version": 2, "payload": {}, "extensions": extensions });
        STANDARD.encode(document.to_string())
    };
    let id = "pay_7d5d747be160e280504c099d984bcfe0";
    let paid = of(json!({ "payment-identifier": { "info": { "required": true, "id": id } } }));
    assert_eq!(with(&[&paid]), found(id));
    assert_eq!(with(&[&paid.replace('=', "")]), found(id));
    assert_eq!(
        with(&[&paid.replace('+', "-").replace('/', "_")]),
        found(id)
    );
    for extensions in [
        json!(null),
        json!({}),
        json!({ "payment-identifier": { "info": { "required": false } } }),
    ] {
        assert_eq!(with(&[&of(extensions.clone())]), Ok(None), "{extensions}");
    }
    assert_eq!(with(&[]), Ok(None));
    let number = of(json!({ "payment-identifier": { "info": { "id": 7 } } }));
    assert_eq!(with(&[&number]), Err(NotAString));
    assert_eq!(with(&[&paid, &paid]), Err(Repeated));
    let short = &paid.trim_end_matches('=')[1..];
    for line in ["", "e30=e30=", "{}", "a", "e30===", short, "%%%%"] {
        assert_eq!(with(&[line]), Err(Unreadable), "{line}");
    }
}

#[test]
fn a_refusal_names_the_place_of_the_key() {
    use KeyRefusal::{Missing, NotAString, NotAccepted, Repeated, Unreadable};
    let json = KeySource::json("/a~1b");
    let query = KeySource::query("key");
    let payment = KeySource::payment_identifier();
    let cookie = KeySource::of("cookie `order`", |_| Ok(None));
    for (source, refusal, beginning) in [
        (
            &KeySource::default(),
            Missing,
            "this operation needs an Idempotency-Key header: send",
        ),
        (
            &KeySource::header("X-Key"),
            Missing,
            "this operation needs a key, header `x-key`: send",
        ),
        (
            &KeySource::header("x-key"),
            NotAString,
            "the header `x-key` is not one string of printable",
        ),
        (
            &json,
            Missing,
            "this operation needs a key, member `/a~1b` of the JSON body: send",
        ),
        (
            &json,
            NotAString,
            "the member `/a~1b` of the JSON body is not a string",
        ),
        (
            &json,
            Unreadable,
            "the member `/a~1b` of the JSON body cannot be read: the body must be one",
        ),
        (
            &query,
            Repeated,
            "the query parameter `key` came more than once",
        ),
        (
            &query,
            Unreadable,
            "the query parameter `key` cannot be read: its escapes",
        ),
        (
            &payment,
            NotAccepted,
            "the payment identifier in `PAYMENT-SIGNATURE` does not have the form",
        ),
        (
            &payment,
            Unreadable,
            "the payment identifier in `PAYMENT-SIGNATURE` cannot be read: the header",
        ),
        (
            &cookie,
            Missing,
            "this operation needs a key, cookie `order`: send",
        ),
    ] {
        let text = source.explain(&refusal);
        assert!(text.starts_with(beginning), "{text}");
    }
    // Their type has the texts of the usual header.
    for refusal in [Missing, NotAString, Unreadable] {
        assert_eq!(KeySource::default().explain(&refusal), refusal.to_string());
    }
}

/// Quotation marks would be a part of the key.
#[test]
fn a_header_that_is_read_verbatim_is_refused_without_advice_on_quotation_marks() {
    for source in [KeySource::default(), KeySource::header("x-key")] {
        let mut request = head("/");
        let line = HeaderValue::from_bytes(b"caf\xe9").unwrap();
        request
            .headers
            .insert(source.header_of_key().unwrap(), line);
        let verbatim = KeyRules::default().verbatim();
        let refusal = source.read(&verbatim, &request, b"").unwrap_err();
        let text = source.explain(&refusal);
        assert_eq!(
            text,
            format!("the {source} cannot be read: it must be UTF-8")
        );
    }
}

#[test]
#[should_panic(expected = "is no pointer to a member")]
fn a_pointer_that_leads_nowhere_is_a_mistake() {
    let _ = KeySource::json("idempotency_key");
}

#[test]
fn a_key_of_any_characters_has_its_length_in_characters() {
    let source = KeySource::query("k");
    let of = |rules: KeyRules, key: &str| {
        let key = source.read(&rules, &head(&format!("/?k={key}")), b"");
        key.map(|key| key.unwrap().0.len())
    };
    let too_long = |max_chars| Err(KeyRefusal::TooLong { max_chars });
    let four = "%F0%9F%98%80";
    let rules = KeyRules::default();
    assert_eq!(of(rules, &four.repeat(255)), Ok(1_020));
    assert_eq!(of(rules, &four.repeat(256)), too_long(255));
    assert_eq!(of(rules.max_chars(3), "%C3%A9".repeat(3).as_str()), Ok(6));
    assert_eq!(of(rules.max_chars(3), "abcd"), too_long(3));
    let longest = rules.max_chars(1_000);
    assert_eq!(of(longest, &"a".repeat(900)), Ok(900));
    assert_eq!(of(longest, &"a".repeat(901)), too_long(900));
    assert_eq!(of(longest, &four.repeat(256)), too_long(255));
}

proptest! {
    /// The JSON and the form of any text lead back to it.
    #[test]
    fn a_text_comes_back_from_each_place(text in "\\PC{1,40}") {
        prop_assume!(!text.trim().is_empty());
        let document = json!({ "a": [{}], "k": text }).to_string();
        let source = KeySource::json("/k");
        prop_assert_eq!(read(&source, &head("/"), document.as_bytes()), found(&text));
        let form: Vec<_> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let form = form.concat();
        prop_assert_eq!(read(&KeySource::query("k"), &head(&format!("/?k={form}")), b""), found(&text));
        let id = json!({ "extensions": { "payment-identifier": { "info": { "id": text } } } });
        let mut request = head("/");
        let line = HeaderValue::from_str(&STANDARD.encode(id.to_string())).unwrap();
        request.headers.insert(&PAYMENT[0], line);
        prop_assert_eq!(read(&KeySource::payment_identifier(), &request, b""), found(&text));
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "[{}\\[\\]k:\",%+=&]{0,20}") {
        for bytes in [&bytes, text.as_bytes()] {
            let _ = read(&KeySource::json("/k"), &head("/"), bytes);
            let _ = base64(bytes);
        }
        let _ = parameter(&text, "k");
    }
}
