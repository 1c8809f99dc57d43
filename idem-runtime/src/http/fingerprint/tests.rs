use ::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::identity::canonical::vectors::hex;

fn request(of_type: &str) -> Parts {
    let request = Request::post("/orders?a=1").header("content-type", of_type);
    request.body(()).unwrap().into_parts().0
}

fn digest(fingerprinter: &Fingerprinter, request: &Parts, body: &[u8]) -> [u8; 32] {
    let uri = &request.uri;
    let digest = fingerprinter.digest(request, uri, body);
    // As computed while a body is received.
    if let Some(mut hash) = fingerprinter.begin(request, uri) {
        hash.update(body);
        assert_eq!(digest, <[u8; 32]>::from(hash.finalize()));
    }
    digest
}

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data; boundary=b";

/// Records outlive a release, and so do these digests.
///
/// They were computed by another program, from the fields that each rule hashes.
#[test]
fn the_fingerprint_of_each_rule_is_frozen() {
    let json = r#" { "b" : [1, 2.50], "a":"\u0041\/\n\ud83d\ude00ä" } "#;
    let form = "--b\r\nA: 1\r\n\r\none\r\n--b\r\n\r\ntwo\r\n\r\n--b--\r\n";
    let raw = "b273ecf197fc0a4a23303c71ff337b96bdf1e2db2718911d02691c845a24a8a5";
    let plain = Fingerprinter::new();
    let own = plain.clone().of(|_, body| Some(body.to_ascii_uppercase()));
    for (rules, of_type, body, frozen) in [
        (&plain, "text/plain", "tea", raw),
        (&plain, JSON, "tea", raw),
        (
            &plain.clone().json(),
            JSON,
            json,
            "2dd50ea1e79610290a9d844aa2041eabfdf2399748e6ed2832d8722a92c1b71b",
        ),
        (
            &plain.clone().json_values(),
            JSON,
            json,
            "edd5e89b81c12174d25b721099f799337008012c96b71aa1e764a37a8784b706",
        ),
        (
            &plain.clone().multipart(),
            FORM,
            form,
            "9b1f6bb87542a1fac918ae2358042f0a6be6a81909fc7969b38637a741c7b573",
        ),
        (
            &own,
            JSON,
            "tea",
            "35d83c585eb79f2825eaeb40be4e8803497e579b6d3ee867608b6cb1902018c1",
        ),
        (
            &plain.clone().header("Content-Type"),
            "text/plain",
            "tea",
            "b1338e13edd5d192fd27b8a53e4c4b556923c582e4c00dfe31be1242145407bf",
        ),
    ] {
        let digest = digest(rules, &request(of_type), body.as_bytes());
        assert_eq!(hex(&digest), frozen, "{of_type} {body}");
    }
}

/// A payment of x402, version 2, of this document.
fn paid(document: &str) -> Parts {
    let mut request = request("text/plain");
    let line = HeaderValue::try_from(STANDARD.encode(document)).unwrap();
    request.headers.insert(&PAYMENT[0], line);
    request
}

const PAYMENT_OF_TEN: &str = r#"{"x402Version":2,"resource":{"url":"https://a/b","description":"B"},"accepted":{"scheme":"exact","amount":"10","extra":{"a":1}},"payload":{"s":1},"extensions":{}}"#;

/// Computed by another program, as the vectors above.
#[test]
fn the_fingerprint_of_the_terms_of_a_payment_is_frozen() {
    let rules = Fingerprinter::new().payment_terms();
    let digest = digest(&rules, &paid(PAYMENT_OF_TEN), b"tea");
    assert_eq!(
        hex(&digest),
        "0e4b204735e4656f0877f52eca72ff26cfb6eee89b048da2cc4c4486b7baa940"
    );
}

#[test]
fn of_a_payment_its_terms_count_and_nothing_that_a_client_signs_anew() {
    let terms = Fingerprinter::new().payment_terms();
    let of = |rules: &Fingerprinter, document: &str| digest(rules, &paid(document), b"tea");
    let first = of(&terms, PAYMENT_OF_TEN);
    for (from, to, is_same) in [
        (r#"{"s":1}"#, r#"{"s":2}"#, true),
        (r#""payload":{"s":1},"#, "", true),
        (r#""extensions":{}"#, r#""extensions":{"b":1}"#, true),
        (r#""extra":{"a":1}"#, r#""extra":{"a":2}"#, true),
        (r#""description":"B""#, r#""description":"C""#, true),
        (
            r#""amount":"10","#,
            r#" "amount" : "10" , "maxTimeoutSeconds":7,"#,
            true,
        ),
        (r#""10""#, r#""11""#, false),
        (r#""10""#, "10", false),
        (r#""exact""#, r#""upto""#, false),
        ("https://a/b", "https://a/c", false),
        (r#""scheme""#, r#""payTo":"0x7","scheme""#, false),
        (r#""x402Version":2"#, r#""x402Version":3"#, false),
    ] {
        assert!(PAYMENT_OF_TEN.contains(from), "{from}");
        let other = of(&terms, &PAYMENT_OF_TEN.replacen(from, to, 1));
        assert_eq!(other == first, is_same, "{from} {to}");
    }
    // Every byte counts of a named header, and of a value without a document.
    let again = PAYMENT_OF_TEN.replace(r#"{"s":1}"#, r#"{"s":2}"#);
    let whole = terms.clone().header("payment-signature");
    for (rules, one, other) in [
        (&Fingerprinter::new(), PAYMENT_OF_TEN, &*again),
        (&whole, PAYMENT_OF_TEN, &*again),
        (&terms, "{", "{{"),
    ] {
        assert_ne!(of(rules, one), of(rules, other), "{other}");
    }
    let mut version_1 = request("text/plain");
    let plain = digest(&terms, &version_1, b"tea");
    version_1
        .headers
        .insert(&PAYMENT[1], HeaderValue::from_static("e30="));
    assert_ne!(digest(&terms, &version_1, b"tea"), plain);
    // Of a request without a payment there is nothing more to count.
    assert_eq!(
        digest(&Fingerprinter::new(), &request("text/plain"), b"tea"),
        plain
    );
}

#[test]
fn a_rule_applies_to_bodies_of_its_type_and_to_no_others() {
    let bytes = Fingerprinter::new();
    let rules = Fingerprinter::new().json().multipart();
    let form = b"--b\r\n\r\ntea\r\n--b--";
    let cases: [(&str, &[u8], bool); 10] = [
        (JSON, b"{\"b\":1, \"a\":2}", true),
        ("Application/Problem+JSON ; charset=utf-8", b"[]", true),
        (JSON, b"{\"b\":1, \"b\":2}", false),
        (JSON, b"", false),
        (JSON, b"\x1f\x8b\x08", false),
        ("text/plain", b"{}", false),
        ("application/jsonx", b"{}", false),
        (FORM, form, true),
        (FORM, b"tea", false),
        ("multipart/form-data; boundary=c", form, false),
    ];
    for (of_type, body, applies) in cases {
        let request = request(of_type);
        let same = digest(&bytes, &request, body) == digest(&rules, &request, body);
        assert_eq!(same, !applies, "{of_type} {}", body.escape_ascii());
    }
    let mut two_types = request(JSON);
    two_types
        .headers
        .append(CONTENT_TYPE, HeaderValue::from_static(JSON));
    assert_eq!(
        digest(&rules, &two_types, b"{}"),
        digest(&bytes, &two_types, b"{}")
    );
}

#[test]
fn the_order_of_the_parts_of_a_form_counts() {
    let rules = Fingerprinter::new().multipart();
    let of = |body: &[u8]| digest(&rules, &request(FORM), body);
    let tea_first = of(b"--b\r\n\r\ntea\r\n--b\r\n\r\nrum\r\n--b--");
    assert_ne!(tea_first, of(b"--b\r\n\r\nrum\r\n--b\r\n\r\ntea\r\n--b--"));
}

/// A raw body that equals another rule's canonical form is another request.
#[test]
fn rules_are_apart() {
    let body = b"{\"a\":1,}";
    let own = Fingerprinter::new().of(|_, body| Some(body.to_vec()));
    let json = Fingerprinter::new().json();
    let values = Fingerprinter::new().json_values();
    let header = Fingerprinter::new().header("x-a");
    let all = [
        digest(&Fingerprinter::new(), &request(JSON), body),
        digest(&own, &request(JSON), body),
        digest(&json, &request(JSON), b"{\"a\":1}"),
        digest(&values, &request(JSON), b"{\"a\":1}"),
        digest(&header, &request(JSON), body),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    let merge = digest(&json, &request("application/merge-patch+json"), b"[]");
    let patch = digest(&json, &request("application/json-patch+json"), b"[]");
    assert_ne!(merge, patch);
}

#[test]
fn numbers_by_value_are_an_addition_to_the_other_rules_of_documents() {
    let sent = Fingerprinter::new();
    let one = digest(&sent.clone().json().json_values(), &request(JSON), b"[1.0]");
    for rules in [
        sent.clone().json_values(),
        sent.clone().json_values().json(),
    ] {
        assert_eq!(digest(&rules, &request(JSON), b"[ 10e-1 ]"), one);
        assert_ne!(digest(&rules, &request(JSON), b"[1.1]"), one);
    }
    let bare = digest(&sent.clone().json_values(), &request(JSON), b"{\"a\":1}");
    for rules in [
        sent.clone().json_without(["/at"]).json_values(),
        sent.json_values().json_without(["/at"]),
    ] {
        let document = b"{\"at\":7,\"a\":1.0}";
        assert_eq!(digest(&rules, &request(JSON), document), bare);
    }
}

#[test]
fn a_rule_of_the_service_comes_first_and_may_leave_it_to_the_others() {
    let rules = Fingerprinter::new().json().of(|request, body| {
        let is_text = request.headers[CONTENT_TYPE] == "text/plain";
        is_text.then(|| body.to_ascii_lowercase())
    });
    let text = request("text/plain");
    assert_eq!(digest(&rules, &text, b"Tea"), digest(&rules, &text, b"tEA"));
    assert_ne!(digest(&rules, &text, b"tea"), digest(&rules, &text, b"rum"));
    let json = request(JSON);
    assert_eq!(digest(&rules, &json, b"[ ]"), digest(&rules, &json, b"[]"));
    assert_ne!(
        digest(&rules, &json, b"[\"a\"]"),
        digest(&rules, &json, b"[\"A\"]")
    );
}

#[test]
fn a_header_counts_with_all_its_values() {
    let rules = Fingerprinter::new()
        .header("X-A")
        .header("x-b")
        .header("x-a");
    let same = Fingerprinter::new().header("x-b").header("x-a");
    let with = |headers: &[(&'static str, &'static str)]| {
        let mut request = request("text/plain");
        for (name, value) in headers {
            request
                .headers
                .append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(
            digest(&rules, &request, b"tea"),
            digest(&same, &request, b"tea")
        );
        digest(&rules, &request, b"tea")
    };
    assert_eq!(
        with(&[("x-a", "1"), ("x-c", "1")]),
        with(&[("x-c", "2"), ("x-a", "1")])
    );
    let all = [
        with(&[]),
        with(&[("x-a", "")]),
        with(&[("x-b", "")]),
        with(&[("x-a", "1")]),
        with(&[("x-a", "1"), ("x-a", "")]),
        with(&[("x-a", ""), ("x-a", "1")]),
        with(&[("x-a", "1"), ("x-b", "1")]),
        with(&[("x-a", "11")]),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
}

#[test]
fn nothing_of_a_request_is_in_debug() {
    let rules = Fingerprinter::new().json_without(["/a"]).of(|_, _| None);
    let text = format!("{rules:?}");
    assert!(
        text.contains("own: true") && text.contains("\"a\""),
        "{text}"
    );
}

fn form(boundary: &str, parts: &[(String, Vec<u8>)]) -> (Parts, Vec<u8>) {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend(
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n")
                .bytes(),
        );
        body.extend(content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    (
        request(&format!("multipart/form-data; boundary={boundary}")),
        body,
    )
}

fn parts() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let content = prop_oneof![
        vec(any::<u8>(), 0..30),
        "[\r\n-]{0,8}".prop_map(String::into_bytes),
    ];
    vec(("[a-z]{1,3}", content), 1..5)
}

proptest! {
    #[test]
    fn a_form_with_another_boundary_is_the_same(
        parts in parts(),
        one in "-{0,6}[A-Za-z0-9]{16,24}",
        other in "-{0,6}[A-Za-z0-9]{16,24}",
    ) {
        let rules = Fingerprinter::new().multipart();
        let ((a, one), (b, other)) = (form(&one, &parts), form(&other, &parts));
        prop_assert_eq!(digest(&rules, &a, &one), digest(&rules, &b, &other));
    }

    /// No change of a byte yields an equal form.
    #[test]
    fn a_form_with_another_byte_is_another(
        parts in parts(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let rules = Fingerprinter::new().multipart();
        let (request, body) = form("b0undary", &parts);
        let mut changed = body.clone();
        let at = at.index(body.len());
        changed[at] = byte;
        let is_same = digest(&rules, &request, &changed) == digest(&rules, &request, &body);
        prop_assert_eq!(is_same, changed == body);
    }
}
