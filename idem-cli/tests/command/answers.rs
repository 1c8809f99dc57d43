//! Answers by hand, and the keys at the other party.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::LOCATION;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use idem_runtime::http::{IdempotencyLayer, Reply};
use idem_runtime::observe::{Event, EventKind};
use idem_runtime::{Engine, Error, Observer, step};
use serde_json::json;
use tower::ServiceExt as _;

use crate::filled::{PREFIX, PayError, Receipt, Site, receipt};

/// Finds a status, header or body that does not reach the client.
pub(crate) async fn responses(site: &Site) {
    const CREATE: &str = "orders.create";
    let create = async |key: &str, end: Result<Reply<Receipt>, PayError>| {
        let call = site.engine.operation(CREATE).key(key);
        call.run(|_| async { end }).await
    };
    let created = create("o-1", Ok(Reply::created(receipt("r-1")))).await;
    assert_eq!(created.unwrap().status(), StatusCode::CREATED);
    create("o-7", Err(PayError::NoReply)).await.unwrap_err();
    let plain =
        format!(r#"resolve {CREATE} --yes --key "o-7" --value {{"number":"r-7","cents":7}}"#);
    site.idem(&plain).refused(1, "such as 201: give --status");
    site.done(format!(
        "{plain} --status 201 --header 'location: /orders/7'"
    ));
    let replayed = create("o-7", Err(PayError::Down)).await.unwrap();
    assert_eq!(replayed.status(), StatusCode::CREATED);
    assert_eq!(replayed.headers()[LOCATION], "/orders/7");
    assert_eq!(replayed.value().number, "r-7");

    let layer = IdempotencyLayer::public(site.engine.clone(), "shop.api");
    let handler = |body: String| async move {
        match &*body {
            "" => (StatusCode::GATEWAY_TIMEOUT, String::new()),
            body => (StatusCode::CREATED, body.to_owned()),
        }
    };
    let shop = Router::new().route("/pay", post(handler));
    let shop = shop.layer(layer.clone());
    let pay = async |key: &str, body: &'static str| {
        let request = Request::post("/pay").header("idempotency-key", format!("{key:?}"));
        let request = request.body(Body::from(body)).unwrap();
        let response = shop.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1_000).await.unwrap();
        (parts.status.as_u16(), parts.headers, body)
    };
    assert_eq!(pay("o-1", r#"{"id":1}"#).await.0, 201);
    assert_eq!(pay("o-7", "").await.0, 504);
    let entry = layer.entry(None, "o-7").await.unwrap().unwrap();
    let of = format!("shop.api --digest {}", entry.key());
    let resolve = |further: &str| site.idem(format!("resolve --yes {of} {further}"));
    resolve(r#"--value {"id":7}"#).refused(2, "give --status");
    let created = "--status 201 --header 'location: /payments/7' --value";
    resolve(&format!(r#"{created} {{"oops":7}}"#)).refused(1, "`id` is missing");
    resolve(&format!("{created} 7 --header location")).refused(2, "a colon");
    resolve(&format!(r#"{created} {{"id":7}}"#)).done();
    let (status, headers, body) = pay("o-7", "").await;
    assert_eq!((status, &body[..]), (201, &br#"{"id":7}"#[..]));
    assert_eq!(headers[LOCATION], "/payments/7");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["idempotent-replayed"], "true");
    let answer = site.json(format!("show --value {of}"))["answer"].take();
    assert_eq!(answer["status"], 201);
    assert_eq!(answer["body"], json!({ "id": 7 }));
    // A record that was reset does not say that its answers are responses.
    site.done(format!("reset --yes {of}"));
    let text = resolve(r#"--status 200 --header 'x-made-up: 1' --value {"id":8}"#).done();
    assert!(text.contains("without the headers x-made-up"), "{text}");
    let ran = resolve(r#"--status 200 --header 'x-made-up: 1' --value {"id":8} --json"#);
    ran.refused(0, "without the headers x-made-up");
    let (status, _, body) = pay("o-7", "").await;
    assert_eq!((status, &body[..]), (200, &br#"{"id":8}"#[..]));
}

/// The keys of the events `key derived`.
#[derive(Clone, Debug, Default)]
struct Sent(Arc<Mutex<Vec<[String; 3]>>>);

impl Observer for Sent {
    fn observe(&self, event: &Event<'_>) {
        if let EventKind::KeyDerived { derived } = &event.kind {
            let key = event.key.unwrap().to_string();
            let label = derived.label().to_owned();
            let seen = [label, derived.digest().to_string(), key];
            self.0.lock().unwrap().push(seen);
        }
    }
}

/// Finds a key other than the sent one, or its event.
pub(crate) async fn derived_keys(site: &Site) {
    const PAY: &str = "payments.derived";
    let sent = Sent::default();
    let engine = Engine::builder(Arc::clone(&site.store)).prefix(PREFIX);
    let engine = engine.observer(sent.clone()).build().unwrap();
    let keys = engine.operation(PAY).key("o-1").run(|cx| async move {
        let key = cx.derive_key("charge");
        let of_step = step("charge", async |it| Ok::<_, Error>(it.key())).await?;
        Ok::<_, Error>([key, of_step])
    });
    let keys = keys.await.unwrap();
    let show = format!(r#"show {PAY} --key "o-1" --derive charge"#);
    let text = site.done(&show);
    let derived = site.json(show)["derived"].take();
    let seen = sent.0.lock().unwrap().clone();
    for (key, (of, seen)) in keys.iter().zip(["derive_key", "step"].iter().zip(&seen)) {
        assert!(text.contains(key), "{text}");
        assert_eq!(derived[0][of]["key"], **key);
        assert_eq!(derived[0][of]["digest"], seen[1]);
        assert_eq!(seen[0], "charge");
        assert_ne!(seen[1], *key);
    }
    assert_eq!(seen.len(), 2);
    // Without a digest key, the digest of a log is enough.
    let by_digest = site.done(format!(
        "show {PAY} --digest {} --derive charge",
        seen[0][2]
    ));
    assert!(by_digest.contains(&keys[0]));
}
