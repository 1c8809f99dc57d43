//! What a reader of the code tried: layers in layers, panics wherever somebody else's code runs, clients that leave
//! at each moment, and records that somebody has damaged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body::Frame;
use idem_harness::{RedisServer, Reply};
use idem_runtime::http::{Buffered, IdempotencyLayer, KeyRules, StatusPolicy};
use idem_runtime::store::HEADER;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, OnRunning};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use crate::client::{Desk, KEY, data, frames, keyed, order, send, soon};

fn caller(request: &http::request::Parts) -> Option<String> {
    Some(request.headers.get("x-caller")?.to_str().ok()?.to_owned())
}

/// Two layers, the outer one of which keeps whatever it is answered.
fn nested(desk: &Desk, inner: IdempotencyLayer) -> Router {
    let outer = IdempotencyLayer::public(&desk.engine, "gateway");
    let outer = outer.status_policy(StatusPolicy::draft());
    desk.orders(inner, |run| run.to_string()).layer(outer)
}

#[tokio::test]
async fn an_outer_layer_does_not_keep_that_a_caller_was_unknown() {
    let desk = Desk::new();
    let inner = IdempotencyLayer::scoped(&desk.engine, "shop.api", caller);
    let shop = nested(&desk, inner);
    let refused = send(&shop, order("")).await;
    assert_eq!(refused.problem(), (403, "caller-unknown".to_owned()));
    let known = keyed("/orders").header("x-caller", "ann");
    let answer = send(&shop, known.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.body, "1");
}

#[tokio::test]
async fn an_outer_layer_does_not_keep_what_an_inner_one_refuses_in_its_own_words() {
    let desk = Desk::new();
    let inner = desk.layer().max_body_bytes(3).on_problem(|problem| {
        let mut response = http::Response::new(problem.code());
        *response.status_mut() = problem.status();
        response
    });
    let shop = nested(&desk, inner);
    for _ in 0..2 {
        let refused = send(&shop, order("four")).await;
        assert_eq!(refused.status, 413);
        assert_eq!(refused.body, "body-too-large");
        assert!(!refused.is_replayed());
    }
}

#[tokio::test]
async fn two_layers_of_one_name_run_nothing() {
    let desk = Desk::new();
    let shop = desk.orders(desk.layer(), |run| run.to_string());
    let shop = shop.layer(desk.layer());
    for _ in 0..2 {
        let refused = send(&shop, order("")).await;
        assert_eq!(refused.problem(), (500, "misconfigured".to_owned()));
    }
    assert_eq!(desk.runs(), 0);
}

/// `HEAD`, of a service that is not axum's: its response has a length and no body.
#[tokio::test]
async fn the_length_of_a_response_to_head_is_not_that_of_its_body() {
    let desk = Desk::new();
    let service = tower::service_fn(|_: http::Request<Buffered<Body>>| async {
        let response = Response::builder().header("content-length", "7");
        Ok::<_, std::convert::Infallible>(response.body(Body::empty()).unwrap())
    });
    let service = desk.layer().methods([Method::HEAD]).layer(service);
    for replayed in [false, true] {
        let request = keyed("/orders").method(Method::HEAD);
        let request = request.body(Body::empty()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let headers = response.headers();
        assert_eq!(headers.contains_key("idempotent-replayed"), replayed);
        assert!(
            headers
                .get("content-length")
                .is_none_or(|length| length == "7"),
            "{headers:?}"
        );
    }
}

/// Over HTTP/1.1 trailers come after a body in chunks, and only those that are announced.
#[tokio::test]
async fn trailers_reach_the_client_the_first_time_and_again() {
    let desk = Desk::new();
    let handler = post(|| async {
        let (source, body) = frames();
        let mut trailers = HeaderMap::new();
        trailers.insert("repr-digest", HeaderValue::from_static("7"));
        trailers.insert("server-timing", HeaderValue::from_static("db"));
        source.send(data("tea")).unwrap();
        source.send(Ok(Frame::trailers(trailers))).unwrap();
        ([("trailer", "repr-digest, server-timing")], body)
    });
    let shop = Router::new().route("/orders", handler).layer(desk.layer());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, shop).into_future());
    for timings in [1, 0] {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: shop\r\nTE: trailers\r\nConnection: close, TE\r\n\
             Idempotency-Key: {KEY}\r\nContent-Length: 0\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        let read = connection.read_to_string(&mut response);
        soon("the end of a response", read).await.unwrap();
        assert!(
            response.contains("\r\n3\r\ntea\r\n0\r\nrepr-digest: 7\r\n"),
            "{response}"
        );
        assert_eq!(
            response.matches("server-timing: db").count(),
            timings,
            "{response}"
        );
    }
    server.abort();
    assert_eq!(desk.events.count("replayed"), 1, "{:?}", desk.events.all());
}

/// Whether it panics.
async fn panics(shop: &Router, request: Request) -> bool {
    let shop = shop.clone();
    let task = tokio::spawn(async move { send(&shop, request).await });
    soon("a response or a panic", task).await.is_err()
}

/// A body that panics when it is read.
struct Bomb;

impl http_body::Body for Bomb {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        panic!("this body cannot be read")
    }
}

#[tokio::test]
async fn a_panic_before_the_handler_leaves_the_key_as_it_was() {
    let desk = Desk::new();
    let shop = |layer| desk.orders(layer, |run| run.to_string());
    let scope = IdempotencyLayer::scoped(&desk.engine, "shop.api", |_| panic!("no scope"));
    assert!(panics(&shop(scope), order("")).await);
    let accept = KeyRules::default().accept(|_| panic!("no rule"));
    assert!(panics(&shop(desk.layer().keys(accept)), order("")).await);
    let plain = shop(desk.layer());
    assert!(panics(&plain, order(Body::new(Bomb))).await);
    assert_eq!(desk.runs(), 0);
    assert_eq!(send(&plain, order("")).await.body, "1");
}

#[tokio::test]
async fn a_panic_in_the_body_of_a_response_is_a_panic_of_the_handler() {
    let desk = Desk::new();
    let shop = desk.orders(desk.layer(), |_| Body::new(Bomb));
    assert!(panics(&shop, order("")).await);
    let again = send(&shop, order("")).await;
    assert_eq!(again.problem(), (500, "outcome-unknown".to_owned()));
    assert_eq!(desk.runs(), 1);
}

#[tokio::test]
async fn a_panic_over_a_refusal_changes_nothing() {
    let desk = Desk::new();
    let panicking = desk
        .layer()
        .on_problem(|_| -> http::Response<Bytes> { panic!("no words") });
    let shop = desk.orders(panicking, |run| run.to_string());
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    assert!(panics(&shop, order("rum")).await);
    assert!(send(&shop, order("tea")).await.is_replayed());
    assert_eq!(desk.runs(), 1);
}

#[tokio::test]
async fn whoever_leaves_while_sending_has_claimed_nothing() {
    let desk = Desk::new();
    let shop = desk.orders(desk.layer(), |run| run.to_string());
    let (source, body) = frames();
    source.send(data("half of ")).unwrap();
    let mut first = Box::pin(shop.clone().oneshot(order(body)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "the request is not all there");
    // Another one with the same key is not kept waiting, and has the key.
    assert_eq!(send(&shop, order("tea")).await.body, "1");
    drop(first);
    assert!(source.is_closed());
    assert!(send(&shop, order("tea")).await.is_replayed());
    assert_eq!(desk.runs(), 1);
}

/// Sends a request whose response does not end yet, and leaves.
async fn leave_during_the_response(desk: &Desk) -> (Router, crate::client::Source) {
    let (source, body) = frames();
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
    let (counter, answering) = (desk.clone(), Arc::new(Notify::new()));
    let answers = Arc::clone(&answering);
    let handler = post(move || async move {
        counter.run();
        answers.notify_one();
        body.lock().unwrap().take().expect("it runs once")
    });
    let layer = desk.layer().on_running(OnRunning::Reject);
    let shop = Router::new().route("/orders", handler).layer(layer);
    let client = shop.clone();
    let client = tokio::spawn(async move { send(&client, order("")).await });
    soon("the handler answers", answering.notified()).await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    (shop, source)
}

#[tokio::test]
async fn whoever_leaves_while_the_response_is_read_finds_all_of_it() {
    let desk = Desk::new();
    let (shop, source) = leave_during_the_response(&desk).await;
    source.send(data("one ")).unwrap();
    let early = send(&shop, order("")).await;
    assert_eq!(early.problem(), (409, "request-running".to_owned()));
    source.send(data("order")).unwrap();
    drop(source);
    soon("it is stored", desk.events.wait_for("completed value", 1)).await;
    let answer = send(&shop, order("")).await;
    assert_eq!(
        (answer.is_replayed(), &answer.body[..]),
        (true, &b"one order"[..])
    );
}

#[tokio::test]
async fn a_shutdown_waits_for_the_end_of_a_response() {
    let desk = Desk::new();
    let (_, source) = leave_during_the_response(&desk).await;
    let engine = desk.engine.clone();
    let mut shutdown = Box::pin(engine.shutdown(Duration::from_hours(1)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "a response is being read");
    drop(source);
    soon("the end of the shutdown", shutdown).await.unwrap();
    assert_eq!(desk.events.count("completed value"), 1);
}

/// A body of a byte here and a byte there, and of frames without any.
#[tokio::test]
async fn a_body_in_crumbs_is_what_it_was() {
    let desk = Desk::new();
    let handler = post(|body: Bytes| async move { body });
    let shop = Router::new().route("/orders", handler).layer(desk.layer());
    let (source, body) = frames();
    let mut whole = Vec::new();
    for length in (0..3)
        .cycle()
        .take(4_000)
        .chain([1_024, 1, 1_023, 0, 5_000])
    {
        let crumb = vec![u8::try_from(whole.len() % 251).unwrap(); length];
        whole.extend(&crumb);
        source.send(data(crumb)).unwrap();
    }
    drop(source);
    assert_eq!(send(&shop, order(body)).await.body, whole);
    let again = send(&shop, order(whole.clone())).await;
    assert_eq!((again.is_replayed(), &again.body[..]), (true, &whole[..]));
}

/// Somebody else writes to the store: whatever stands in the answer, nothing is done again.
#[tokio::test]
async fn a_damaged_answer_is_not_a_reason_to_do_it_again() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let engine = Engine::new(store);
    let desk = Desk::new();
    let layer = IdempotencyLayer::public(&engine, "shop.api").store_header("x-order");
    let shop = desk.orders(layer, |run| {
        ([("x-order", "7"), ("location", "/7")], run.to_string())
    });
    assert_eq!(send(&shop, order("")).await.body, "1");
    let Reply::Bulk(name) = server.reply(&["RANDOMKEY"]) else {
        panic!("there is a record")
    };
    let Reply::Bulk(whole) = server.reply(&[&b"GET"[..], &name]) else {
        panic!("a record is a string")
    };
    let mut damaged: Vec<Vec<u8>> = vec![whole[..HEADER].to_vec(), [&whole[..], b"more"].concat()];
    for at in HEADER..whole.len() {
        damaged.push(whole[..at].to_vec());
        for byte in [0, 1, 8, 0x0a, 0x0d, 0x3a, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
            let mut record = whole.clone();
            record[at] = byte;
            damaged.push(record);
        }
    }
    for record in damaged {
        assert_eq!(
            server.cli(&[&b"SET"[..], &name, &record, b"EX", b"1000"]),
            "OK"
        );
        let answer = send(&shop, order("")).await;
        let lost = answer.status == 500 && !answer.is_replayed() && answer.code() == "answer-lost";
        assert!(answer.is_replayed() || lost, "{record:?}: {answer:?}");
        let Reply::Bulk(left) = server.reply(&[&b"GET"[..], &name]) else {
            panic!("the record is gone")
        };
        assert_eq!(left, record, "it is left as it is");
    }
    // What is no record at all.
    for record in [&b""[..], b"0", b"2D", &[0xff; 200], &whole[..HEADER - 1]] {
        assert_eq!(
            server.cli(&[&b"SET"[..], &name, record, b"EX", b"1000"]),
            "OK"
        );
        assert_eq!(
            send(&shop, order("")).await.problem(),
            (500, "outcome-unknown".to_owned())
        );
    }
    assert_eq!(desk.runs(), 1);
}
