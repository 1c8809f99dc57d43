//! The first call and its repeats.

use axum::body::{Body, Bytes};
use axum::extract::Extension;
use axum::routing::post;
use http::{Request, Response};
use idem_runtime::http::{Buffered, IdempotencyKey};
use idem_runtime::{AnswerSource, ErrorKind, claim::Acquired, codec::StoredAnswer};
use tower::{Layer as _, ServiceExt as _};

use crate::client::{Fixture, KEY, call, data, frames, order, routed, send};

#[tokio::test]
async fn the_handler_gets_the_key_and_the_client_how_it_came_about() {
    let fixture = Fixture::new();
    let name = |Extension(key): Extension<IdempotencyKey>| async move { key.0 };
    let shop = routed(post(name), fixture.layer());
    let first = call(&shop, order("")).await;
    assert_eq!(first.extensions().get(), Some(&AnswerSource::Executed));
    let again = call(&shop, order("")).await;
    assert_eq!(again.extensions().get(), Some(&AnswerSource::Replayed));
    assert_eq!(send(&shop, order("")).await.body, KEY.trim_matches('"'));
}

/// Large and small frames, and empty ones; the same bytes in one piece are the same request.
#[tokio::test]
async fn a_body_reaches_the_handler_as_it_was_sent() {
    let (large, small) = ([997, 0], [0, 1, 2]);
    let edges = [1_024, 1, 1_023, 0, 5_000];
    for lengths in [
        large.into_iter().cycle().take(200).collect::<Vec<_>>(),
        small.into_iter().cycle().take(4_000).chain(edges).collect(),
    ] {
        let fixture = Fixture::new();
        let echo = |body: Bytes| async { body };
        let shop = routed(post(echo), fixture.layer());
        let (source, body) = frames();
        let mut whole = Vec::new();
        for length in lengths {
            let frame = vec![u8::try_from(whole.len() % 251).unwrap(); length];
            whole.extend(&frame);
            source.send(data(frame)).unwrap();
        }
        drop(source);
        assert_eq!(send(&shop, order(body)).await.body, whole);
        let again = send(&shop, order(whole.clone())).await;
        assert!(again.is_replayed());
        assert_eq!(again.body, whole);
    }
}

/// A service of tower that is not `Unpin`, nor are its bodies.
#[tokio::test]
async fn it_goes_around_a_plain_service() {
    let fixture = Fixture::new();
    let counter = fixture.clone();
    let service = tower::service_fn(move |request: Request<Buffered<Body>>| {
        let run = counter.run();
        let length = http_body::Body::size_hint(request.body()).exact();
        async move { Ok::<_, String>(Response::new(Body::from(format!("{run}: {length:?}")))) }
    });
    let service = fixture.layer().layer(service);
    for expected in [None, Some("10")] {
        let response = service.clone().oneshot(order("tea")).await.unwrap();
        let length = response.headers().get("content-length").cloned();
        let length = length.as_ref().map(|length| length.to_str().unwrap());
        assert_eq!(length, expected);
        let body = axum::body::to_bytes(Body::new(response.into_body()), 100).await;
        assert_eq!(body.unwrap(), "1: Some(3)");
    }
}

/// A record of the layer is no JSON, and says so.
#[tokio::test]
async fn a_stored_answer_is_read_as_no_other_type() {
    let fixture = Fixture::new();
    let shop = fixture.orders(fixture.layer(), |_| "1");
    send(&shop, order("")).await;
    let key = KEY.trim_matches('"');
    let begun = fixture.engine.operation("shop.api").key(key).begin().await;
    let Ok(Acquired::Replay(stored)) = begun else {
        panic!("not done: {begun:?}");
    };
    let stored: StoredAnswer = stored;
    let error = stored.decode::<u32>().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Undecodable);
}
