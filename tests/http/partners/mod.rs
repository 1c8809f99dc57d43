//! Official clients of partners, unchanged, against the profiles, over a network that loses, delays, doubles and cuts.

mod stripe;
mod x402;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::join;
use http::{StatusCode, Uri};

/// The text that names an order in its requests. A number has three digits, so that no name contains another.
fn name(number: usize) -> String {
    format!("order-{number:03}")
}

/// The number of the order that a request is for, by the name in its path or its body.
fn number(uri: &Uri, body: &[u8]) -> usize {
    let text = format!("{uri} {}", String::from_utf8_lossy(body));
    let name = text.split("order-").nth(1);
    let name = name.unwrap_or_else(|| panic!("no order: {text}"));
    name[..3].parse().unwrap()
}

/// What a gateway outside of the layer does, and has seen.
#[derive(Default)]
struct Gateway {
    /// The orders whose next request is to be doubled.
    doubles: BTreeSet<usize>,
    /// Requests for each order that came through.
    arrivals: BTreeMap<usize, usize>,
}

/// Passes a request on, or does so twice and answers with the second reply.
async fn pass(
    State(gateway): State<Arc<Mutex<Gateway>>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    // One that the network cut off in the middle is cut off here too.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let has_key = ["idempotency-key", "payment-signature"]
        .iter()
        .any(|name| parts.headers.contains_key(*name));
    let is_doubled = {
        let number = number(&parts.uri, &body);
        let mut gateway = gateway.lock().unwrap();
        *gateway.arrivals.entry(number).or_default() += 1;
        has_key && gateway.doubles.remove(&number)
    };
    let copy = Request::from_parts(parts.clone(), Body::from(body.clone()));
    let request = Request::from_parts(parts, Body::from(body));
    if is_doubled {
        let (_, second) = join(next.clone().run(request), next.run(copy)).await;
        return second;
    }
    next.run(request).await
}
