//! The rules of keys: sentences of the specification, and rules beside its table.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use idem_conformance::http::{Operation, RowResult, Specification, Target, check};
use serde_json::{Value, json};
use sqlx::{PgTransaction, raw_sql};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::service::Service;

/// A response, and whether it is a replay.
type Seen = (u16, Value, bool);

impl Service {
    async fn send(&self, client: &str, key: &str, request: (&str, &str, Value)) -> Seen {
        let (method, path, body) = request;
        let request = Request::builder().method(method).uri(format!("/v1{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {client}"));
        let request = request.header("idempotency-key", key);
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let is_replay = response.headers().contains_key("idempotent-replayed");
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let document = serde_json::from_slice(&body).unwrap_or_default();
        (status, document, is_replay)
    }

    async fn post(&self, key: &str, path: &str, body: Value) -> Seen {
        self.send("ann", key, ("POST", path, body)).await
    }

    async fn create_shop(&self, key: &str) -> Seen {
        let shop = json!({ "namespace": ["shop"] });
        self.post(key, "/namespaces", shop).await
    }

    async fn create_table(&self, client: &str, key: &str, name: &str) -> Seen {
        let schema = json!({ "type": "struct", "schema-id": 0, "fields": [] });
        let table = json!({ "name": name, "schema": schema });
        let request = ("POST", "/namespaces/shop/tables", table);
        self.send(client, key, request).await
    }

    /// A catalog with tables.
    async fn with_tables(names: &[&str]) -> Self {
        let service = Self::start().await;
        assert_eq!(service.create_shop(&new_key()).await.0, 200);
        for name in names {
            let created = service.create_table("ann", &new_key(), name).await;
            assert_eq!(created.0, 200);
        }
        service
    }

    async fn execute(&self, sql: &'static str) {
        raw_sql(sql).execute(&self.pool).await.unwrap();
    }
}

fn new_key() -> String {
    Uuid::now_v7().to_string()
}

/// Fails unless it is Iceberg's error of this status and type.
#[track_caller]
fn assert_refused((status, document, is_replay): &Seen, code: u16, name: &str) {
    let error = &document["error"];
    let seen = (*status, &error["code"], &error["type"]);
    assert_eq!(seen, (code, &json!(code), &json!(name)), "{document}");
    assert!(error["message"].is_string(), "{document}");
    assert!(!is_replay);
}

/// The specification's table; each request commits a snapshot.
#[tokio::test]
async fn each_sentence_of_the_specification_holds() {
    let service = Service::with_tables(&["orders", "bills", "doomed"]).await;
    let tables = "/v1/namespaces/shop/tables";
    let commit_to = |table, requirements| {
        let snapshot = r#"{ "snapshot-id": {number}, "sequence-number": 1 }"#;
        let update = format!(r#"{{ "action": "add-snapshot", "snapshot": {snapshot} }}"#);
        let commit = format!(r#"{{ "requirements": [{requirements}], "updates": [{update}] }}"#);
        Operation::post(format!("{tables}/{table}")).json(commit)
    };
    let pool = service.pool.clone();
    let advance = move |by: Duration| {
        let advance = "UPDATE idem_records SET expires_us = expires_us - $1";
        let advance = sqlx::query(advance).bind(i64::try_from(by.as_micros()).unwrap());
        let pool = pool.clone();
        async move {
            advance.execute(&pool).await.unwrap();
        }
    };
    let ann = HeaderValue::from_static("Bearer ann");
    let base = format!("http://{}", service.addr).parse().unwrap();
    let target = Target::new(base, commit_to("orders", ""))
        .caller(HeaderMap::from_iter([(AUTHORIZATION, ann)]))
        .also(Operation::new(Method::DELETE, format!("{tables}/doomed")))
        .elsewhere(commit_to("bills", ""))
        .rejected(commit_to("orders", r#"{ "type": "assert-create" }"#))
        .effects(
            format!("GET {tables}/orders").parse().unwrap(),
            "/metadata/snapshots",
        )
        .config("GET /v1/config".parse().unwrap())
        // The advertised time, and that of a request on its way.
        .clock(Duration::from_mins(35), advance);
    let report = check(Specification::IcebergRest, &target).await.unwrap();
    let others = report.rows().filter(|(_, it)| **it != RowResult::Passed);
    let others: Vec<_> = others.map(|(row, _)| row.name).collect();
    // They have tests of their own.
    assert_eq!(others, ["not_5xx", "running", "after_running"], "{report}");
}

#[tokio::test]
async fn a_key_is_of_one_operation_of_its_client() {
    let service = Service::with_tables(&[]).await;
    let key = new_key();
    let (status, ..) = service.create_table("ann", &key, "orders").await;
    assert_eq!(status, 200);
    let drop = ("DELETE", "/namespaces/shop/tables/orders", Value::Null);
    let refused = service.send("ann", &key, drop).await;
    assert_refused(&refused, 422, "UnprocessableEntityException");
    let of_another = service.create_table("bob", &key, "orders").await;
    assert_refused(&of_another, 409, "AlreadyExistsException");
}

#[tokio::test]
async fn a_final_refusal_is_kept() {
    let service = Service::start().await;
    let key = new_key();
    let refused = service.create_table("ann", &key, "orders").await;
    assert_refused(&refused, 404, "NoSuchNamespaceException");
    service.create_shop(&new_key()).await;
    assert_eq!(service.create_table("ann", &key, "orders").await, refused);

    service.create_table("ann", &new_key(), "orders").await;
    let (key, path) = (new_key(), "/namespaces/shop/tables/orders");
    let commit = || json!({ "requirements": [{ "type": "assert-create" }], "updates": [] });
    let refused = service.post(&key, path, commit()).await;
    assert_refused(&refused, 409, "CommitFailedException");
    service.execute("DELETE FROM tables").await;
    assert_eq!(service.post(&key, path, commit()).await, refused);
    assert_eq!(service.post(&new_key(), path, commit()).await.0, 200);
}

#[tokio::test]
async fn a_failure_is_not_kept() {
    let service = Service::start().await;
    let key = new_key();
    service
        .execute("ALTER TABLE namespaces RENAME TO elsewhere")
        .await;
    let failed = service.create_shop(&key).await;
    assert_refused(&failed, 503, "ServiceUnavailableException");
    service
        .execute("ALTER TABLE elsewhere RENAME TO namespaces")
        .await;
    let (status, _, is_replay) = service.create_shop(&key).await;
    assert_eq!((status, is_replay), (200, false));
}

#[tokio::test]
async fn a_repeat_beside_the_first_is_to_come_again() {
    let service = Arc::new(Service::start().await);
    let key = new_key();
    let (lock, first) = service.begin_shop(&key).await;
    let beside = service.create_shop(&key).await;
    // Not 409, which a client takes for an answer.
    assert_refused(&beside, 503, "ServiceUnavailableException");
    lock.rollback().await.unwrap();
    let (status, created, is_replay) = first.await.unwrap();
    assert_eq!((status, is_replay), (200, false));
    assert_eq!(service.create_shop(&key).await, (200, created, true));
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let service = Arc::new(Service::start().await);
    let key = new_key();
    let (lock, first) = service.begin_shop(&key).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    lock.rollback().await.unwrap();
    let (status, _, is_replay) = service.create_shop(&key).await;
    assert_eq!((status, is_replay), (200, false));
}

impl Service {
    /// Begins a mutation that waits in its transaction until this one ends.
    async fn begin_shop(self: &Arc<Self>, key: &str) -> (PgTransaction<'static>, JoinHandle<Seen>) {
        let mut tx = self.pool.begin().await.unwrap();
        let lock = raw_sql("LOCK TABLE namespaces IN EXCLUSIVE MODE");
        lock.execute(&mut *tx).await.unwrap();
        let (service, key) = (Arc::clone(self), key.to_owned());
        let first = tokio::spawn(async move { service.create_shop(&key).await });
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')";
        let waits = async || -> sqlx::Result<bool> {
            sqlx::query_scalar(waits).fetch_one(&self.pool).await
        };
        while !waits().await.unwrap() {}
        (tx, first)
    }
}
