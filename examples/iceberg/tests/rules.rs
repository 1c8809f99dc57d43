//! The rules of keys: one test for each.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use idem_iceberg::uuid;
use serde_json::{Value, json};
use sqlx::{PgTransaction, raw_sql};
use tower::ServiceExt as _;

use crate::service::Service;

/// A response, and whether it is a replay.
type Seen = (u16, Value, bool);

impl Service {
    async fn send(&self, client: &str, key: Option<&str>, request: (&str, &str, Value)) -> Seen {
        let (method, path, body) = request;
        let request = Request::builder().method(method).uri(format!("/v1{path}"));
        let request = request.header("content-type", "application/json");
        let mut request = request.header("authorization", format!("Bearer {client}"));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        seen(self.router.clone().oneshot(request).await.unwrap()).await
    }

    async fn post(&self, key: &str, path: &str, body: Value) -> Seen {
        self.send("ann", Some(key), ("POST", path, body)).await
    }

    async fn execute(&self, sql: &'static str) {
        raw_sql(sql).execute(&self.pool).await.unwrap();
    }
}

async fn seen(response: Response<Body>) -> Seen {
    let status = response.status().as_u16();
    let is_replay = response.headers().contains_key("idempotent-replayed");
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let document = serde_json::from_slice(&body).unwrap_or_default();
    (status, document, is_replay)
}

fn namespace(name: &str) -> Value {
    json!({ "namespace": [name] })
}

fn table(name: &str) -> Value {
    let schema = json!({ "type": "struct", "schema-id": 0, "fields": [] });
    json!({ "name": name, "schema": schema })
}

fn commit(schema: i64, owner: &str) -> Value {
    json!({
        "requirements": [{ "type": "assert-current-schema-id", "current-schema-id": schema }],
        "updates": [{ "action": "set-properties", "updates": { "owner": owner } }],
    })
}

/// Fails unless it is an error of Iceberg, of this status and type.
#[track_caller]
fn assert_refused((status, document, is_replay): &Seen, code: u16, name: &str) {
    let error = &document["error"];
    assert_eq!(
        (*status, &error["code"]),
        (code, &json!(code)),
        "{document}"
    );
    assert_eq!(error["type"], name, "{document}");
    assert!(error["message"].is_string(), "{document}");
    assert!(!is_replay);
}

#[tokio::test]
async fn a_record_lives_as_long_as_advertised() {
    let service = Service::start().await;
    let (_, config, _) = service
        .send("ann", None, ("GET", "/config", Value::Null))
        .await;
    assert_eq!(config["idempotency-key-lifetime"], "PT30M");
    service
        .post(&uuid::v7(), "/namespaces", namespace("shop"))
        .await;
    let query = "SELECT expires_us > (date_part('epoch', clock_timestamp()) + 1800) * 1000000 \
                 FROM idem_records WHERE op = 'catalog.mutate'";
    let outlives: Vec<bool> = sqlx::query_scalar(query)
        .fetch_all(&service.pool)
        .await
        .unwrap();
    assert_eq!(outlives, [true]);
}

#[tokio::test]
async fn a_repeat_gets_the_answer_and_changes_nothing() {
    let service = Service::start().await;
    service
        .post(&uuid::v7(), "/namespaces", namespace("shop"))
        .await;
    service
        .post(&uuid::v7(), "/namespaces/shop/tables", table("orders"))
        .await;
    let (key, path) = (uuid::v7(), "/namespaces/shop/tables/orders");
    let (status, first, is_replay) = service.post(&key, path, commit(0, "ann")).await;
    assert_eq!((status, is_replay), (200, false));
    let later = service.post(&uuid::v7(), path, commit(0, "bob")).await;
    assert_eq!(later.0, 200);
    // The key is the same in capitals.
    for key in [&key, &key.to_ascii_uppercase()] {
        let again = service.post(key, path, commit(0, "ann")).await;
        assert_eq!(again, (200, first.clone(), true));
    }
    let (_, loaded, _) = service.send("ann", None, ("GET", path, Value::Null)).await;
    assert_eq!(loaded["metadata"]["properties"]["owner"], "bob");
    assert!(
        loaded["metadata-location"]
            .as_str()
            .unwrap()
            .ends_with("/00002.metadata.json")
    );
}

#[tokio::test]
async fn a_key_is_a_uuid_of_version_7() {
    let service = Service::start().await;
    let version_4 = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    for key in [
        version_4,
        "order-7",
        "",
        &uuid::v7()[..35],
        &format!("{}0", uuid::v7()),
    ] {
        let refused = service.post(key, "/namespaces", namespace("shop")).await;
        assert_refused(&refused, 400, "BadRequestException");
    }
    let (status, ..) = service
        .post(&uuid::v7(), "/namespaces", namespace("shop"))
        .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_key_is_bound_to_operation_resource_and_body() {
    let service = Service::start().await;
    let key = uuid::v7();
    for name in ["shop", "bank"] {
        service
            .post(&uuid::v7(), "/namespaces", namespace(name))
            .await;
    }
    let (status, ..) = service
        .post(&key, "/namespaces/shop/tables", table("orders"))
        .await;
    assert_eq!(status, 200);
    for request in [
        ("POST", "/namespaces/shop/tables", table("bills")),
        ("POST", "/namespaces/bank/tables", table("orders")),
        ("POST", "/namespaces", namespace("third")),
        ("DELETE", "/namespaces/shop/tables/orders", Value::Null),
    ] {
        let refused = service.send("ann", Some(&key), request).await;
        assert_refused(&refused, 422, "UnprocessableEntityException");
    }
    // It is the key of its client.
    let of_another = ("POST", "/namespaces/shop/tables", table("orders"));
    let refused = service.send("bob", Some(&key), of_another).await;
    assert_refused(&refused, 409, "AlreadyExistsException");
}

#[tokio::test]
async fn a_final_refusal_is_kept() {
    let service = Service::start().await;
    let key = uuid::v7();
    let refused = service
        .post(&key, "/namespaces/shop/tables", table("orders"))
        .await;
    assert_refused(&refused, 404, "NoSuchNamespaceException");
    service
        .post(&uuid::v7(), "/namespaces", namespace("shop"))
        .await;
    let again = service
        .post(&key, "/namespaces/shop/tables", table("orders"))
        .await;
    assert_eq!(again, refused);

    service
        .post(&uuid::v7(), "/namespaces/shop/tables", table("orders"))
        .await;
    let (key, path) = (uuid::v7(), "/namespaces/shop/tables/orders");
    let refused = service.post(&key, path, commit(7, "ann")).await;
    assert_refused(&refused, 409, "CommitFailedException");
    service.execute("DELETE FROM tables").await;
    assert_eq!(service.post(&key, path, commit(7, "ann")).await, refused);
    let gone = service.post(&uuid::v7(), path, commit(7, "ann")).await;
    assert_refused(&gone, 404, "NoSuchTableException");
}

#[tokio::test]
async fn a_failure_is_not_kept() {
    let service = Service::start().await;
    let key = uuid::v7();
    service
        .execute("ALTER TABLE namespaces RENAME TO elsewhere")
        .await;
    let failed = service.post(&key, "/namespaces", namespace("shop")).await;
    assert_refused(&failed, 503, "ServiceUnavailableException");
    service
        .execute("ALTER TABLE elsewhere RENAME TO namespaces")
        .await;
    let (status, _, is_replay) = service.post(&key, "/namespaces", namespace("shop")).await;
    assert_eq!((status, is_replay), (200, false));
}

#[tokio::test]
async fn without_a_key_every_request_is_the_first() {
    let service = Service::start().await;
    let request = || ("POST", "/namespaces", namespace("shop"));
    assert_eq!(service.send("ann", None, request()).await.0, 200);
    let second = service.send("ann", None, request()).await;
    assert_refused(&second, 409, "AlreadyExistsException");
}

#[tokio::test]
async fn a_repeat_beside_the_first_is_to_come_again() {
    let service = Arc::new(Service::start().await);
    let key = uuid::v7();
    let lock = service.block_namespaces().await;
    let first = tokio::spawn({
        let (service, key) = (Arc::clone(&service), key.clone());
        async move { service.post(&key, "/namespaces", namespace("shop")).await }
    });
    service.one_waits().await;
    let beside = service.post(&key, "/namespaces", namespace("shop")).await;
    // Not 409, which a client takes for an answer.
    assert_refused(&beside, 503, "ServiceUnavailableException");
    lock.rollback().await.unwrap();
    let (status, created, is_replay) = first.await.unwrap();
    assert_eq!((status, is_replay), (200, false));
    let again = service.post(&key, "/namespaces", namespace("shop")).await;
    assert_eq!(again, (200, created, true));
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let service = Arc::new(Service::start().await);
    let key = uuid::v7();
    let lock = service.block_namespaces().await;
    let first = tokio::spawn({
        let (service, key) = (Arc::clone(&service), key.clone());
        async move { service.post(&key, "/namespaces", namespace("shop")).await }
    });
    service.one_waits().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    lock.rollback().await.unwrap();
    let (status, _, is_replay) = service.post(&key, "/namespaces", namespace("shop")).await;
    assert_eq!((status, is_replay), (200, false));
}

impl Service {
    /// Lets mutations of namespaces wait in their transaction until this one ends.
    async fn block_namespaces(&self) -> PgTransaction<'static> {
        let mut tx = self.pool.begin().await.unwrap();
        let lock = raw_sql("LOCK TABLE namespaces IN EXCLUSIVE MODE");
        lock.execute(&mut *tx).await.unwrap();
        tx
    }

    async fn one_waits(&self) {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while sqlx::query_scalar::<_, i64>(query)
            .fetch_one(&self.pool)
            .await
            .unwrap()
            == 0
        {}
    }
}
