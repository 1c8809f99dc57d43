//! Replays of a layer whose store has another writer.

use axum::routing::post;
use axum::{Json, Router};
use http::HeaderValue;
use idem_harness::{RedisServer, Reply};
use idem_runtime::Error;
use idem_runtime::http::{IdempotencyLayer, Reply as HttpReply};
use idem_runtime::store::author::HEADER;
use idem_tests::shop::{engine, started};

use crate::client::{Fixture, LOST, UNKNOWN, bare, order, send};

/// An answer as the layer lays it out: tag, version, status, headers, trailers, body.
fn laid_out(headers: &[(&str, &str)], trailers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut bytes = vec![8, 1, 0, 200];
    for fields in [headers, trailers] {
        bytes.push(u8::try_from(fields.len()).unwrap());
        for text in fields.iter().flat_map(|(name, value)| [name, value]) {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend(text.bytes());
        }
    }
    bytes.extend(body.bytes());
    bytes
}

/// The name of the only record, and its bytes.
fn record(server: &RedisServer) -> (Vec<u8>, Vec<u8>) {
    let Reply::Bulk(name) = server.reply(&["RANDOMKEY"]) else {
        panic!("there is a record")
    };
    let Reply::Bulk(whole) = server.reply(&[&b"GET"[..], &name]) else {
        panic!("a record is a string")
    };
    (name, whole)
}

fn put(server: &RedisServer, name: &[u8], record: &[u8]) {
    let set = server.cli(&[&b"SET"[..], name, record, b"EX", b"1000"]);
    assert_eq!(set, "OK");
}

/// Puts another answer behind the header of the only record.
fn plant(server: &RedisServer, answer: &[u8]) {
    let (name, whole) = record(server);
    put(server, &name, &[&whole[..HEADER], answer].concat());
}

/// What none of them may reach a client from a record.
const PLANTED: [(&str, &str); 14] = [
    ("set-cookie", "session=mallory; Path=/"),
    ("authorization", "Bearer mallory"),
    ("x-api-key", "mallory"),
    ("access-control-allow-origin", "https://mallory.test"),
    ("access-control-allow-credentials", "true"),
    ("clear-site-data", "\"*\""),
    ("refresh", "0; url=https://mallory.test"),
    ("service-worker-allowed", "/"),
    ("strict-transport-security", "max-age=31536000"),
    ("transfer-encoding", "chunked"),
    ("content-length", "999"),
    ("refresh-token", "mallory"),
    ("x-session-token", "mallory"),
    ("x-amz-security-token", "mallory"),
];

#[tokio::test]
async fn a_planted_record_gives_no_header_that_would_not_have_been_stored() {
    let (server, store) = started().await;
    let engine = engine(store);
    let fixture = Fixture::new();
    let layer = IdempotencyLayer::public(&engine, "shop.api").store_header("x-order-id");
    let shop = fixture.orders(layer.never_store(["etag"]), |run| run.to_string());
    assert_eq!(send(&shop, order("")).await.body, "1");
    let listed = [
        ("content-type", "text/html"),
        ("x-order-id", "7"),
        ("etag", "7"),
    ];
    let headers = [&listed[..], &PLANTED].concat();
    plant(
        &server,
        &laid_out(&headers, &[("set-cookie", "trailer=1")], "planted"),
    );
    let replay = send(&shop, order("")).await;
    assert!(replay.is_replayed());
    // No list of headers prevents this.
    assert_eq!(replay.body, "planted");
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let told = replay.headers.iter();
    let told = told.map(|(name, value)| format!("{name}: {}", text(value)));
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "content-length: 7",
            "content-type: text/html",
            "idempotent-replayed: true",
            "x-order-id: 7"
        ]
    );
    assert_eq!(fixture.runs(), 1);
}

/// The same of a handler that answers a `Reply`.
#[tokio::test]
async fn a_planted_reply_gives_no_header_that_is_never_stored() {
    let (server, store) = started().await;
    let engine = engine(store);
    let handler = post(move || async move {
        let call = engine.operation("orders.create").key("7");
        let reply = call.run(|_| async { Ok::<_, Error>(HttpReply::ok(1).header("etag", "7")) });
        reply.await.map_err(|error| Json(error.to_string()))
    });
    let shop = Router::new().route("/orders", handler);
    assert_eq!(send(&shop, bare("")).await.headers["etag"], "7");
    let headers: Vec<_> = [("etag", "8")].into_iter().chain(PLANTED).collect();
    let planted =
        serde_json::json!({ "$reply": { "status": 200, "headers": headers }, "value": 2 });
    plant(&server, planted.to_string().as_bytes());
    let replay = send(&shop, bare("")).await;
    assert_eq!((&*replay.body, replay.is_replayed()), (&b"2"[..], true));
    assert_eq!(replay.headers["etag"], "8");
    for (name, _) in &PLANTED[..5] {
        assert_eq!(replay.header(name), None, "{name}");
    }
    assert_eq!(replay.header("transfer-encoding"), None);
    let length = replay.headers.get("content-length");
    assert!(length.is_none_or(|length| length == "1"), "{length:?}");
}

#[tokio::test]
async fn a_damaged_answer_does_not_run_the_handler_again() {
    let (server, store) = started().await;
    let engine = engine(store);
    let fixture = Fixture::new();
    let layer = IdempotencyLayer::public(&engine, "shop.api").store_header("x-order");
    let shop = fixture.orders(layer, |run| {
        ([("x-order", "7"), ("location", "/7")], run.to_string())
    });
    assert_eq!(send(&shop, order("")).await.body, "1");
    let (name, whole) = record(&server);
    // Its layout has unit tests.
    let mut version = whole.clone();
    version[HEADER + 1] ^= 0x7f;
    for damaged in [&whole[..HEADER], &whole[..HEADER + 9], &version] {
        put(&server, &name, damaged);
        fixture.walk(&shop, [("damaged", order(""), LOST)]).await;
        assert_eq!(record(&server).1, damaged, "it is left as it is");
    }
    // Values that are no record at all.
    for record in [&b""[..], b"0", b"2D", &[0xff; 200], &whole[..HEADER - 1]] {
        put(&server, &name, record);
        fixture
            .walk(&shop, [("no record", order(""), UNKNOWN)])
            .await;
    }
    assert_eq!(fixture.runs(), 1);
}
