//! One client sends another's key: its answer, by the handler's scopes.

use axum::Router;
use axum::extract::{Json, Request, State};
use axum::routing::post;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Error, idempotent};

use super::shop::{NewOrder, Shop, User, by, order};
use crate::client::{Refused, ran, replayed};

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

/// An answer that only this user may read.
fn secret(shop: &Shop, user: &User, order: &NewOrder) -> Reply<String> {
    Reply::ok(format!("{} of {}: {}", shop.run(), user.id, order.item))
}

fn routes(shop: &Shop) -> Router {
    let routes = Router::new()
        .route("/renamed", post(renamed))
        .route("/nested", post(nested))
        .route("/compared", post(compared))
        .route("/scoped", post(scoped))
        .route("/scoped_by_text", post(scoped_by_text));
    routes.with_state(shop.clone())
}

fn of(path: &str, user: &str, item: &str) -> Request {
    by(user, order(path, "k", item))
}

/// The attack: acme's key, sent by a competitor. With acme's order the competitor would read acme's answer, and with another
/// one 422 would reveal that acme has used the key. Closed: no body runs, and no client can mend it.
#[tokio::test]
async fn a_client_key_without_a_scope_reveals_nothing_to_other_clients() {
    let misconfigured = Refused(500, "misconfigured");
    for path in ["/renamed", "/nested", "/compared"] {
        let shop = Shop::new();
        let rows = [
            ("acme", "tea"),
            ("competitor", "tea"),
            ("competitor", "rum"),
        ];
        let rows = rows.map(|(user, item)| (path, of(path, user, item), misconfigured));
        shop.walk(&routes(&shop), rows).await;
        assert_eq!(shop.runs(), 0, "{path}");
    }
}

#[tokio::test]
async fn a_scope_separates_clients_that_send_one_key() {
    for path in ["/scoped", "/scoped_by_text"] {
        let shop = Shop::new();
        let acme = "\"1 of acme: tea\"";
        let rows = [
            ("acme", of(path, "acme", "tea"), ran(acme)),
            // With another order at first: it is no oracle either.
            (
                "other",
                of(path, "other", "rum"),
                ran("\"2 of other: rum\""),
            ),
            (
                "third",
                of(path, "third", "tea"),
                ran("\"3 of third: tea\""),
            ),
            ("acme again", of(path, "acme", "tea"), replayed(acme)),
        ];
        shop.walk(&routes(&shop), rows).await;
    }
}
