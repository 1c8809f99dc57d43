//! Responses that are too large, that are streams, and that break off.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body as _, Frame};
use idem_runtime::http::{StatusPolicy, Verdict};

use crate::client::{Desk, Source, call, data, frames, order, send, soon};

/// A router that answers with this once, and fails the test if it is asked again.
fn once(desk: &Desk, policy: StatusPolicy, response: Response) -> Router {
    let desk_of_handler = desk.clone();
    let response = Arc::new(Mutex::new(Some(response)));
    let handler = move || async move {
        desk_of_handler.run();
        response.lock().unwrap().take().expect("it is asked once")
    };
    let layer = desk.layer().status_policy(policy);
    Router::new().route("/orders", post(handler)).layer(layer)
}

/// The next data of a response.
async fn next(response: &mut Response) -> Option<Result<Vec<u8>, axum::Error>> {
    let body = response.body_mut();
    let mut body = std::pin::pin!(body);
    let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
    let frame = soon("a frame", frame).await?;
    Some(frame.map(|frame| frame.into_data().map(Vec::from).unwrap_or_default()))
}

async fn is_lost(desk: &Desk, shop: &Router) {
    for _ in 0..2 {
        let again = send(shop, order("")).await;
        assert_eq!(again.problem(), (500, "answer-lost".to_owned()));
    }
    assert_eq!(desk.runs(), 1);
}

/// A desk whose engine keeps so many bytes.
fn small(max_value_bytes: usize) -> Desk {
    Desk::with(|engine| engine.max_value_bytes(max_value_bytes))
}

#[tokio::test]
async fn a_response_that_is_too_large_reaches_its_client_and_is_not_stored() {
    let desk = small(1_000);
    let whole = vec![7; 5_000];
    let shop = once(
        &desk,
        StatusPolicy::default(),
        Response::new(Body::from(whole.clone())),
    );
    assert_eq!(send(&shop, order("")).await.body, whole);
    is_lost(&desk, &shop).await;
    let unsaved = desk.events.count("unsaved: it is larger than 1000 bytes");
    assert_eq!(unsaved, 1, "{:?}", desk.events.all());
}

#[tokio::test]
async fn a_response_without_a_known_length_is_read_up_to_the_limit_only() {
    let desk = small(1_000);
    let (source, body) = frames();
    let shop = once(&desk, StatusPolicy::default(), Response::new(body));
    for _ in 0..11 {
        source.send(data(vec![7; 100])).unwrap();
    }
    // It is not at its end, and is passed on all the same.
    let mut response = call(&shop, order("")).await;
    is_lost(&desk, &shop).await;
    source.send(data("the end")).unwrap();
    drop(source);
    let mut told = Vec::new();
    while let Some(data) = next(&mut response).await {
        told.extend(data.unwrap());
    }
    assert_eq!(told, [&[7; 1_100][..], b"the end"].concat());
}

#[tokio::test]
async fn the_limit_counts_what_is_stored_besides_the_body() {
    for (length, is_stored) in [(40, true), (99, false)] {
        let desk = small(100);
        let response = Response::new(Body::from(vec![7; length]));
        let shop = once(&desk, StatusPolicy::default(), response);
        assert_eq!(send(&shop, order("")).await.body.len(), length);
        if is_stored {
            assert!(send(&shop, order("")).await.is_replayed());
        } else {
            is_lost(&desk, &shop).await;
        }
    }
}

async fn passes_at_once(of_type: &'static str) {
    let desk = Desk::new();
    let (source, body): (Source, Body) = frames();
    let mut stream = Response::new(body);
    let of_type = HeaderValue::from_static(of_type);
    stream.headers_mut().insert("content-type", of_type);
    let shop = once(&desk, StatusPolicy::default(), stream);
    source.send(data("event 1")).unwrap();
    let mut response = call(&shop, order("")).await;
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 1");
    is_lost(&desk, &shop).await;
    assert_eq!(desk.events.count("unsaved: it is a stream"), 1);
    source.send(data("event 2")).unwrap();
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"event 2");
    drop(source);
    assert!(next(&mut response).await.is_none());
}

#[tokio::test]
async fn a_stream_reaches_its_client_bit_by_bit() {
    passes_at_once("text/event-stream").await;
    passes_at_once("Text/Event-Stream; charset=utf-8").await;
    passes_at_once("multipart/x-mixed-replace; boundary=b").await;
}

#[tokio::test]
async fn an_upgrade_is_not_repeated() {
    let desk = Desk::new();
    let mut upgrade = Response::new(Body::empty());
    *upgrade.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let shop = once(&desk, StatusPolicy::default(), upgrade);
    assert_eq!(send(&shop, order("")).await.status, 101);
    is_lost(&desk, &shop).await;
}

#[tokio::test]
async fn what_is_not_stored_is_not_read_either() {
    let desk = Desk::new();
    let (source, body) = frames();
    let mut refused = Response::new(body);
    *refused.status_mut() = StatusCode::BAD_REQUEST;
    let shop = once(&desk, StatusPolicy::default(), refused);
    let mut response = call(&shop, order("")).await;
    assert_eq!(desk.events.count("released"), 1);
    source.send(data("mend it")).unwrap();
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"mend it");
}

async fn breaks_off(policy: StatusPolicy) -> (Desk, Router) {
    let desk = Desk::new();
    let (source, body) = frames();
    let shop = once(&desk, policy, Response::new(body));
    source.send(data("half of ")).unwrap();
    let broken = io::Error::from(io::ErrorKind::BrokenPipe);
    source.send(Err(broken)).unwrap();
    let mut response = call(&shop, order("")).await;
    assert_eq!(next(&mut response).await.unwrap().unwrap(), b"half of ");
    assert!(next(&mut response).await.unwrap().is_err());
    assert!(next(&mut response).await.is_none());
    (desk, shop)
}

#[tokio::test]
async fn nobody_knows_what_a_response_was_to_say_that_breaks_off() {
    for policy in [StatusPolicy::careful(), StatusPolicy::draft()] {
        let (desk, shop) = breaks_off(policy).await;
        let again = send(&shop, order("")).await;
        assert_eq!(again.problem(), (500, "outcome-unknown".to_owned()));
        assert_eq!(desk.runs(), 1);
    }
    let bold = StatusPolicy::careful().ambiguous(Verdict::Release);
    let (desk, _) = breaks_off(bold).await;
    assert_eq!(desk.events.count("released"), 1);
}

#[tokio::test]
async fn trailers_are_repeated() {
    let desk = Desk::new();
    let (source, body) = frames();
    let shop = once(&desk, StatusPolicy::default(), Response::new(body));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("7"));
    trailers.insert("server-timing", HeaderValue::from_static("db"));
    source.send(data("tea")).unwrap();
    source.send(Ok(Frame::trailers(trailers.clone()))).unwrap();
    drop(source);
    for expected in [
        trailers.clone(),
        HeaderMap::from_iter([("x-checksum".parse().unwrap(), HeaderValue::from_static("7"))]),
    ] {
        let mut response = call(&shop, order("")).await;
        assert_eq!(next(&mut response).await.unwrap().unwrap(), b"tea");
        let mut body = std::pin::pin!(response.body_mut());
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx));
        let frame = soon("the trailers", frame).await.unwrap().unwrap();
        assert_eq!(frame.into_trailers().unwrap(), expected);
    }
}
