//! What makes two requests the same one.

use axum::body::Body;
use axum::extract::Request;
use idem_runtime::http::Fingerprinter;

use crate::client::{Fixture, data, frames, keyed, send};

fn of(of_type: &str, body: impl Into<Body>) -> Request {
    let request = keyed("/orders").header("content-type", of_type);
    request.body(body.into()).unwrap()
}

/// A form as a client writes it, which makes up a boundary each time.
fn form(boundary: &str, file_name: &str) -> Request {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"item\"\r\n\r\ntea\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"scan\"; filename=\"{file_name}\"\r\nContent-Type: text/plain\r\n\r\n\
         --\r\n\r\n--{boundary}--\r\n"
    );
    of(&format!("multipart/form-data; boundary={boundary}"), body)
}

const JSON: &str = "application/json";

/// The first is done, repeats of it are replayed, and others are refused.
async fn tells_apart(
    fingerprinter: Fingerprinter,
    first: Request,
    repeats: Vec<Request>,
    others: Vec<Request>,
) {
    let fixture = Fixture::new();
    let layer = fixture.layer().fingerprint(fingerprinter);
    let shop = fixture.orders(layer, |run| run.to_string());
    assert_eq!(send(&shop, first).await.body, "1");
    for (at, repeat) in repeats.into_iter().enumerate() {
        let answer = send(&shop, repeat).await;
        assert!(answer.is_replayed(), "repeat {at}: {answer:?}");
    }
    for (at, other) in others.into_iter().enumerate() {
        let answer = send(&shop, other).await;
        assert_eq!(answer.problem(), (422, "key-reused"), "other {at}");
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn a_json_document_may_be_written_anew() {
    tells_apart(
        Fingerprinter::new().json(),
        of(JSON, r#"{"item":"tea","price":1.50}"#),
        vec![
            of(JSON, r#"{"price":1.50,"item":"tea"}"#),
            of(
                "application/json; charset=utf-8",
                "{ \"item\" : \"t\\u0065a\",\n\"price\":1.50}",
            ),
        ],
        vec![
            of(JSON, r#"{"item":"tea","price":1.5}"#),
            of(JSON, r#"{"item":"tea","price":"1.50"}"#),
            of(JSON, r#"{"item":"tea","price":1.50,"item":"tea"}"#),
            of("text/plain", r#"{"item":"tea","price":1.50}"#),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_member_that_is_new_each_time_need_not_count() {
    tells_apart(
        Fingerprinter::new().json_without(["/sent_at"]),
        of(JSON, r#"{"item":"tea","sent_at":"12:00:00"}"#),
        vec![
            of(JSON, r#"{"sent_at":"12:00:01","item":"tea"}"#),
            of(JSON, r#"{"item":"tea"}"#),
        ],
        vec![of(JSON, r#"{"item":"rum","sent_at":"12:00:00"}"#)],
    )
    .await;
}

#[tokio::test]
async fn a_form_may_be_written_anew() {
    tells_apart(
        Fingerprinter::new().multipart(),
        form("----geckoformboundary1f2e", "scan.txt"),
        vec![form("X-INSOMNIA-BOUNDARY", "scan.txt")],
        vec![form("----geckoformboundary1f2e", "scan.pdf")],
    )
    .await;
}

/// In pieces, as they come.
#[tokio::test]
async fn a_document_in_pieces_is_the_same() {
    let (source, body) = frames();
    for piece in ["{\"price\"", ":1.50,\"it", "em\":\"tea\"}"] {
        source.send(data(piece)).unwrap();
    }
    drop(source);
    let first = of(JSON, r#"{"item":"tea","price":1.50}"#);
    tells_apart(
        Fingerprinter::new().json(),
        first,
        vec![of(JSON, body)],
        vec![],
    )
    .await;
}

#[tokio::test]
async fn a_header_may_count() {
    let in_language = |language: &str| {
        let request = keyed("/orders").header("accept-language", language);
        request.body(Body::from("tea")).unwrap()
    };
    tells_apart(
        Fingerprinter::new().header("accept-language"),
        in_language("de"),
        vec![in_language("de")],
        vec![
            in_language("en"),
            keyed("/orders").body(Body::from("tea")).unwrap(),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_service_may_have_a_rule_of_its_own() {
    let of_lines = Fingerprinter::new().of(|request, body| {
        let is_list = request.headers.get("content-type")? == "text/csv";
        is_list.then(|| body.iter().copied().filter(|byte| *byte != b'\r').collect())
    });
    tells_apart(
        of_lines,
        of("text/csv", "tea\nrum\n"),
        vec![of("text/csv", "tea\r\nrum\r\n")],
        vec![
            of("text/csv", "rum\ntea\n"),
            of("text/plain", "tea\r\nrum\r\n"),
        ],
    )
    .await;
}

/// As documented: nothing runs twice.
#[tokio::test]
async fn another_rule_refuses_repeats_of_earlier_requests() {
    let fixture = Fixture::new();
    let shop = |rule| fixture.orders(fixture.layer().fingerprint(rule), |run| run.to_string());
    let document = || of(JSON, "{\"item\": \"tea\"}");
    send(&shop(Fingerprinter::new()), document()).await;
    let refused = send(&shop(Fingerprinter::new().json()), document()).await;
    assert_eq!(refused.problem(), (422, "key-reused"));
    assert_eq!(fixture.runs(), 1);
}
