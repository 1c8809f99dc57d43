//! The cost of the layer per request: `cargo bench -p idem-tests --bench http`.
//!
//! A router of axum whose handler answers with bytes that it has, called in this process without a socket, on one
//! thread. Measured are that router alone, the same behind the layer when it replays, and when it takes a first
//! request; and, for comparison, a replay of a call of the engine that stores as many bytes. They take turns, so
//! that what else the machine does meets them alike. The store is in memory, and then a Redis on loopback, where
//! one more line is a bare `GET` of as many bytes.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use http::StatusCode;
use idem_harness::RedisServer;
use idem_runtime::http::IdempotencyLayer;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, Error};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tower::{Service, ServiceExt as _};

/// Many and short: whatever else the machine does then meets some of them, and not their median.
const ROUNDS: usize = 101;

/// Bytes of the request's body, and of the response's.
const SIZES: [(&str, usize, usize); 3] = [
    ("200 B, answered with 200 B", 200, 200),
    ("200 B, answered with 10 KB", 200, 10_000),
    ("10 KB, answered with 10 KB", 10_000, 10_000),
];

/// A request with a body and a key of its own.
fn request(key: usize, body: &Bytes) -> Request {
    Request::post("/orders")
        .header("content-type", "application/json")
        .header(
            "idempotency-key",
            format!("\"8e03978e-40d5-43dd-bc93-{key:012}\""),
        )
        .body(Body::from(body.clone()))
        .unwrap()
}

/// A router that answers with these bytes.
fn router(answer: &Bytes) -> Router {
    let answer = answer.clone();
    // It takes the body, as handlers do.
    let handler = post(move |_: Bytes| async move {
        let headers = [
            ("content-type", "application/json"),
            ("location", "/orders/7"),
        ];
        (StatusCode::CREATED, headers, answer)
    });
    Router::new().route("/orders", handler)
}

/// Sends requests that have been made, one after the other: the time of one.
async fn time<S>(
    service: &mut S,
    requests: Vec<Request>,
    is_replayed: bool,
    length: usize,
) -> Duration
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let count = u32::try_from(requests.len()).unwrap();
    let began = Instant::now();
    for request in requests {
        let Ok(response) = service
            .ready()
            .await
            .unwrap_or_else(|never| match never {})
            .call(request)
            .await;
        assert_eq!(response.status(), StatusCode::CREATED);
        let mark = response.headers().contains_key("idempotent-replayed");
        assert_eq!(mark, is_replayed);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body.len(), length);
    }
    began.elapsed() / count
}

/// Replays a call of the engine itself: the time of one.
async fn time_engine(engine: &Engine, answer: &str, count: u32) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        let call = engine.operation("bench.engine").key(&answer.len());
        let body = async |_| Ok::<_, Error>(answer.to_owned());
        assert_eq!(call.run(body).await.unwrap().len(), answer.len());
    }
    began.elapsed() / count
}

/// The same bytes from Redis without idem: the time of one.
async fn time_get(redis: &mut MultiplexedConnection, count: u32) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        let _: Vec<u8> = redis.get("bare").await.unwrap();
    }
    began.elapsed() / count
}

fn micros(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

async fn measure(what: &str, engine: Engine, mut redis: Option<MultiplexedConnection>, count: u32) {
    println!("{what}");
    let mut first_keys = 1..;
    for (size, of_request, of_response) in SIZES {
        let asked = Bytes::from(vec![b'a'; of_request]);
        let text = "b".repeat(of_response);
        let answer = Bytes::from(text.clone());
        let mut bare = router(&answer).into_service();
        let layer = IdempotencyLayer::public(&engine, format!("bench.{of_request}.{of_response}"));
        let mut layered = router(&answer).layer(layer).into_service();
        let one = Engine::clone(&engine);
        let mut times: [Vec<Duration>; 5] = Default::default();
        if let Some(redis) = &mut redis {
            let _: () = redis.set("bare", &answer[..]).await.unwrap();
        }
        let _ = time(&mut layered, vec![request(0, &asked)], false, of_response).await;
        for round in 0..=ROUNDS {
            let same = || (0..count).map(|_| request(0, &asked)).collect();
            let fresh: Vec<_> = first_keys.by_ref().take(count as usize / 4).collect();
            let fresh = fresh.into_iter().map(|key| request(key, &asked)).collect();
            let round_times = [
                time(&mut bare, same(), false, of_response).await,
                time(&mut layered, same(), true, of_response).await,
                time(&mut layered, fresh, false, of_response).await,
                time_engine(&one, &text, count).await,
                match &mut redis {
                    Some(redis) => time_get(redis, count).await,
                    None => Duration::ZERO,
                },
            ];
            // The first round is for warmth.
            if round > 0 {
                for (times, time) in times.iter_mut().zip(round_times) {
                    times.push(time);
                }
            }
        }
        let [bare, replay, first, engine, get] = times.map(|mut times| micros(&mut times));
        print!(
            "  {size}: bare {bare:.2} µs, replay {replay:.2} µs (+{:.2}), first {first:.2} µs (+{:.2}), replay of the engine alone {engine:.2} µs",
            replay - bare,
            first - bare
        );
        if redis.is_some() {
            print!(
                ", bare GET {get:.2} µs (replay is {:.2} of it)",
                replay / get
            );
        }
        println!();
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        println!("medians of {ROUNDS} rounds");
        let count = 200;
        measure("memory", Engine::new(MemoryStore::new()), None, count).await;
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let store = RedisStore::connect(&server.url()).await.unwrap();
        measure("Redis", Engine::new(store), Some(connection), count / 4).await;
    });
}
