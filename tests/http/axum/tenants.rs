//! One client sends the key of another: whose answer it gets, by what the handler says of scopes.

use axum::Router;
use axum::extract::{Json, State};
use axum::routing::post;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};
use serde_json::json;

use crate::client::{self, post as request, send};
use crate::shop::{NewOrder, Server, Shop, User};

/// A name under which the attribute does not know the type.
type ClientKey = IdempotencyKey;

/// A key of the application's own, with a client's in it.
#[derive(serde::Serialize)]
struct OrderKey {
    kind: &'static str,
    key: ClientKey,
}

fn order_key(key: &ClientKey) -> OrderKey {
    let key = key.clone();
    OrderKey { kind: "order", key }
}

#[idempotent(op = "tenants.renamed", key = key, engine = shop, on_error = release)]
async fn renamed(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    key: ClientKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(secret(&shop, &user, &order))
}

#[idempotent(op = "tenants.nested", key = (order_key(&key), 1), engine = shop, on_error = release)]
async fn nested(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    key: ClientKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(secret(&shop, &user, &order))
}

/// Without `key`: the fingerprint is the key.
#[idempotent(op = "tenants.compared", engine = shop, on_error = release)]
async fn compared(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    key: ClientKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(secret(&shop, &user, &order))
}

#[idempotent(op = "tenants.scoped", scope = user.id, key = idempotency_key, engine = shop, on_error = release)]
async fn scoped(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(secret(&shop, &user, &order))
}

#[idempotent(op = "tenants.text", scope = "user-{id}", key = "{kind}/{key}", engine = shop, on_error = release)]
async fn scoped_by_text(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] User { id }: User,
    IdempotencyKey(key): IdempotencyKey,
    Json(NewOrder { item: kind }): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(Reply::ok(format!("{} of {id}: {kind}", shop.run())))
}

// What the word says: one namespace for all clients.
#[idempotent(op = "tenants.public", scope = public, key = idempotency_key, engine = shop, on_error = release)]
async fn public(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    idempotency_key: IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<String>, Error> {
    Ok(secret(&shop, &user, &order))
}

/// An answer that only this user may read.
fn secret(shop: &Shop, user: &User, order: &NewOrder) -> Reply<String> {
    Reply::ok(format!("{} of {}: {}", shop.run(), user.id, order.item))
}

async fn open(shop: &Shop) -> Server {
    let routes = Router::new()
        .route("/renamed", post(renamed))
        .route("/nested", post(nested))
        .route("/compared", post(compared))
        .route("/scoped", post(scoped))
        .route("/scoped_by_text", post(scoped_by_text))
        .route("/public", post(public));
    Server::start(routes.with_state(shop.clone())).await
}

async fn order(server: &Server, path: &str, user: &str, item: &str) -> client::Reply {
    let mut request = request(path, "k", &json!({ "item": item }));
    let headers = request.headers_mut();
    headers.insert("x-user", user.parse().unwrap());
    send(server.at, request).await
}

/// The attack: acme's key, sent by a competitor. With acme's order the competitor reads acme's answer; with another one
/// 422 reveals that acme has used the key.
#[tokio::test]
async fn a_client_key_without_a_scope_reveals_nothing_to_other_clients() {
    for path in ["/renamed", "/nested", "/compared"] {
        let shop = Shop::new();
        let server = open(&shop).await;
        let acme = order(&server, path, "acme", "tea").await;
        let competitor = order(&server, path, "competitor", "tea").await;
        assert_ne!(
            (competitor.status.as_u16(), competitor.body),
            (200, acme.body),
            "{path}: the competitor has the answer of acme"
        );
        let guess = order(&server, path, "competitor", "rum").await;
        assert_ne!(
            guess.status, 422,
            "{path}: the competitor knows that acme has used the key"
        );
    }
}

/// Closed: no body runs, and the client cannot mend it.
#[tokio::test]
async fn a_mistake_unseen_by_the_attribute_is_refused_at_the_call() {
    for path in ["/renamed", "/nested", "/compared"] {
        let shop = Shop::new();
        let server = open(&shop).await;
        let refused = order(&server, path, "acme", "tea").await;
        refused.assert_problem(500, "misconfigured");
        assert_eq!(shop.runs(), 0, "{path}");
    }
}

#[tokio::test]
async fn a_scope_separates_clients_that_send_one_key() {
    for path in ["/scoped", "/scoped_by_text"] {
        let shop = Shop::new();
        let server = open(&shop).await;
        let acme = order(&server, path, "acme", "tea").await;
        assert_eq!(acme.json(), "1 of acme: tea", "{path}");
        // With another order at first: it is no oracle either.
        let other = order(&server, path, "competitor", "rum").await;
        assert_eq!(other.json(), "2 of competitor: rum", "{path}");
        let third = order(&server, path, "third", "tea").await;
        assert_eq!(third.json(), "3 of third: tea", "{path}");
        let again = order(&server, path, "acme", "tea").await;
        assert_eq!(
            (again.is_replayed(), again.json()),
            (true, "1 of acme: tea".into())
        );
    }
}

/// What the word means, and why it has to be written.
#[tokio::test]
async fn public_keys_are_shared_by_all_clients() {
    let shop = Shop::new();
    let server = open(&shop).await;
    order(&server, "/public", "acme", "tea").await;
    let other = order(&server, "/public", "other", "tea").await;
    assert_eq!(
        (other.is_replayed(), other.json()),
        (true, "1 of acme: tea".into())
    );
    let other = order(&server, "/public", "other", "rum").await;
    other.assert_problem(422, "key-reused");
    assert_eq!(shop.runs(), 1);
}
