//! The JSON API.

use super::http::{Request, Response};
use super::server::Server;

pub(crate) fn order(caller: &str, key: &str, body: &str) -> Request {
    Request::new("POST", "/api/orders")
        .header("Authorization", &format!("Bearer {caller}"))
        .header("Idempotency-Key", key)
        .json(body)
}

const TWO: &str = r#"{"quantity": 2}"#;

fn shop() -> Server {
    Server::new(&["--slow", "20"])
}

#[test]
fn a_repeat_gets_the_answer_of_the_first() {
    let shop = shop();
    let request = order("ada", "\"k1\"", TWO);
    let first = request.send(&shop.address);
    assert_eq!(first.status, 201);
    assert!(!first.is_replay());
    let document = first.document();
    assert_eq!(
        (&document["amount"], &document["state"]),
        (&2500.into(), &"paid".into())
    );
    let again = request.send(&shop.address);
    assert!(again.is_replay());
    assert_same(&again, &first);
    // With and without its quotation marks it is the same key.
    let bare = order("ada", "k1", TWO).send(&shop.address);
    assert!(bare.is_replay());
    assert_same(&bare, &first);

    let get = Request::new("GET", first.header("location").unwrap());
    let found = get.clone().header("Authorization", "Bearer ada");
    assert_eq!(found.send(&shop.address).document(), document);
    let other = get.clone().header("Authorization", "Bearer bob");
    assert_eq!(other.send(&shop.address).code(), "order-unknown");
    assert_eq!(get.send(&shop.address).code(), "caller-unknown");
    assert_eq!(shop.sold(), (1, 1));
}

#[test]
fn the_state_of_the_record_decides_what_a_request_gets() {
    let shop = shop();
    let declined = r#"{"quantity": 1, "card": "tok_chargeDeclined"}"#;
    let down = r#"{"quantity": 1, "card": "tok_down"}"#;
    let three = r#"{"quantity": 3}"#;
    // Caller, key and body; status, code, whether it is a replay; paid orders since.
    for ((caller, key, body), (status, code, is_replay), sold) in [
        (("ada", "k", TWO), (201, "", false), 1),
        (("bob", "k", TWO), (201, "", false), 2),
        (("bob", "k", TWO), (201, "", true), 2),
        (("ada", "k", three), (422, "key-reused", false), 2),
        (("ada", "d", declined), (402, "card-declined", false), 2),
        (("ada", "d", declined), (402, "card-declined", true), 2),
        (("ada", "p", down), (503, "provider-down", false), 2),
        (("ada", "p", down), (201, "", false), 3),
    ] {
        let row = format!("{caller}, {key}, {body}: {status}");
        let answer = order(caller, key, body).send(&shop.address);
        assert_eq!(answer.status, status, "{row}");
        assert_eq!(answer.is_replay(), is_replay, "{row}");
        if !code.is_empty() {
            assert_eq!(answer.code(), code, "{row}");
        }
        match code {
            "provider-down" => assert_eq!(answer.header("retry-after"), Some("1")),
            "key-reused" => {
                let link = answer.header("link").unwrap();
                let docs = "</docs/idempotency>; rel=\"describedby\"";
                assert!(link.starts_with(docs), "{link}");
            }
            _ => {}
        }
        assert_eq!(shop.sold(), (sold, sold), "{row}");
    }
}

#[test]
fn every_code_that_the_server_answers_is_in_the_published_policy() {
    let shop = shop();
    let policy = Request::new("GET", "/docs/idempotency").send(&shop.address);
    assert_eq!(policy.status, 200);
    let long = format!("{{\"quantity\": 1, \"card\": \"{}\"}}", "x".repeat(70_000));
    let no_key = Request::new("POST", "/api/orders").header("Authorization", "Bearer ada");
    let no_caller = Request::new("POST", "/api/orders").header("Idempotency-Key", "k");
    for (request, status, code) in [
        (no_key.json(TWO), 400, "key-missing"),
        (order("ada", "a, b", TWO), 400, "key-invalid"),
        (order("ada", "k1", "{}"), 400, "order-invalid"),
        (
            order("ada", "k2", r#"{"quantity": 0}"#),
            400,
            "order-invalid",
        ),
        (no_caller.json(TWO), 403, "caller-unknown"),
        (order("ada", "k", &long), 413, "body-too-large"),
    ] {
        let refused = request.send(&shop.address);
        assert_eq!((refused.status, &*refused.code()), (status, code));
        let row = format!("id=\"{code}\"><td>{status}</td>");
        assert!(policy.body.contains(&row), "{code} is not documented");
    }
    assert_eq!(shop.sold(), (0, 0));
    // A refusal of the layer or of an invalid request leaves its key unused.
    for key in ["k", "k1"] {
        assert_eq!(order("ada", key, TWO).send(&shop.address).status, 201);
    }
    let other = order("ada", "k1", r#"{"quantity": 3}"#).send(&shop.address);
    assert_eq!(other.code(), "key-reused");
}

/// Compares status, body and headers, except those of connection and time.
pub(crate) fn assert_same(again: &Response, first: &Response) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    for name in ["content-type", "location", "content-length"] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
}
