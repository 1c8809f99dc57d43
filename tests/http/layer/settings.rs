//! The effects of a layer's settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use http::StatusCode;
use idem_runtime::http::Fingerprinter;

use crate::client::{
    Fixture, REUSED, Ran, data, frames, keyed, numbered, order, ran, replayed, send,
};

/// The rules of a fingerprinter have unit tests; the layer applies them to the request as it comes, in pieces too.
#[tokio::test]
async fn a_fingerprinter_decides_what_is_the_same_request() {
    let rules = Fingerprinter::new().json_without(["/sent_at"]);
    let rules = rules.header("accept-language");
    let (fixture, shop) = numbered(|layer| layer.fingerprint(rules));
    let of = |language: &str, body: Body| {
        let request = keyed("/orders").header("content-type", "application/json");
        let request = request.header("accept-language", language);
        request.body(body).unwrap()
    };
    let (source, pieces) = frames();
    for piece in ["{\"price\"", ":1.50,\"it", "em\":\"tea\"}"] {
        source.send(data(piece)).unwrap();
    }
    drop(source);
    let first = r#"{"item":"tea","price":1.50,"sent_at":"12:00:00"}"#;
    let anew = r#"{ "sent_at":"12:00:01", "price":1.50, "item":"t\u0065a" }"#;
    let rows = [
        ("first", of("de", first.into()), ran("1")),
        ("written anew", of("de", anew.into()), replayed("1")),
        ("in pieces", of("de", pieces), replayed("1")),
        ("in another language", of("en", first.into()), REUSED),
        ("no JSON", of("de", "tea".into()), REUSED),
    ];
    fixture.walk(&shop, rows).await;
}

/// How long the response is to be stored, as its handler says.
#[derive(Clone)]
struct For(Duration);

/// The choice is made once, from the response's head. The status's policy bounds it.
#[tokio::test]
async fn a_response_chooses_its_life() {
    let (minutes, hours) = (Duration::from_mins, Duration::from_hours);
    for (status, chosen, life) in [
        (StatusCode::CREATED, Some(minutes(30)), minutes(30)),
        (StatusCode::CREATED, Some(hours(48)), hours(24)),
        (StatusCode::CREATED, None, hours(24)),
        (StatusCode::CONFLICT, Some(minutes(5)), minutes(5)),
        (StatusCode::CONFLICT, Some(minutes(30)), minutes(10)),
        (
            StatusCode::CREATED,
            Some(Duration::ZERO),
            Duration::from_secs(1),
        ),
    ] {
        for of_type in ["text/plain", "text/event-stream"] {
            let (fixture, calls) = (Fixture::new(), Arc::new(AtomicUsize::new(0)));
            let counted = Arc::clone(&calls);
            let layer = fixture.layer().ttl(hours(24)).error_ttl(minutes(10));
            let layer = layer.ttl_of(move |response| {
                counted.fetch_add(1, Ordering::SeqCst);
                assert_eq!(response.status, status);
                Some(response.extensions.get::<For>()?.0)
            });
            let shop = fixture.orders(layer, move |run| {
                let extension = chosen.map(|life| Extension(For(life)));
                let body = Body::from(run.to_string());
                (status, [("content-type", of_type)], extension, body)
            });
            let row = format!("{status} {chosen:?} {of_type}");
            let answer = async || send(&shop, order("tea")).await.body;
            assert_eq!(answer().await, "1", "{row}");
            fixture.saw("completed", 1).await;
            let millisecond = Duration::from_millis(1);
            fixture.clock.advance(life.saturating_sub(millisecond));
            assert_eq!(answer().await, "1", "{row}");
            assert_eq!(calls.load(Ordering::SeqCst), 1, "{row}");
            fixture.clock.advance(millisecond);
            assert_eq!(answer().await, "2", "{row}");
        }
    }
}

/// Neither its panic nor a released response changes a client's answer.
#[tokio::test]
async fn a_choice_that_panics_keeps_the_response_for_the_whole_ttl() {
    let fixture = Fixture::new();
    let layer = fixture.layer().ttl(Duration::from_hours(1));
    let layer = layer.ttl_of(|response| {
        assert_ne!(
            response.status,
            StatusCode::SERVICE_UNAVAILABLE,
            "it is not stored"
        );
        std::panic::panic_any("no life")
    });
    let shop = fixture.orders(layer, |run| {
        let status = match run {
            1 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        };
        (status, run.to_string())
    });
    let rows = [
        ("it is released", order("tea"), Ran(503, "1")),
        ("it is stored", order("tea"), ran("2")),
        ("and replayed", order("tea"), replayed("2")),
    ];
    fixture.walk(&shop, rows).await;
    let life = Duration::from_hours(1).saturating_sub(Duration::from_millis(1));
    fixture.clock.advance(life);
    let rows = [("to its end", order("tea"), replayed("2"))];
    fixture.walk(&shop, rows).await;
    let warning = "warning: the closure that chooses the life of an answer panicked";
    assert_eq!(fixture.events.count(warning), 1);
}
