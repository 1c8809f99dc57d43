//! Shapes of handlers: every extractor of axum, other attributes above and below, generic routers.

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Form, FromRef, FromRequest, Json, Path, Query, Request, State};
use axum::routing::{post, put};
use http::Method;
use http_body_util::Full;
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Answer, Engine, Error, HasEngine, idempotent};
use serde::{Deserialize, Serialize};

use crate::client::{self, request, send};
use crate::shop::{ApiError, NewOrder, Server, Shop, User};

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    page: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Tenant(u32);

#[idempotent(op = "path", scope = tenant.0, key = idempotency_key, engine = shop, on_error = release)]
async fn of_every_part(
    #[idem(skip)] State(shop): State<Shop>,
    Extension(tenant): Extension<Tenant>,
    Path((kind, number)): Path<(String, u32)>,
    Query(Page { page }): Query<Page>,
    idempotency_key: IdempotencyKey,
    Form(order): Form<NewOrder>,
) -> Result<Reply<String>, Error> {
    let (run, item) = (shop.run(), order.item);
    Ok(Reply::ok(format!(
        "{run} {} {kind} {number} {page} {item}",
        tenant.0
    )))
}

/// Without a header: the path identifies the request.
#[idempotent(op = "put", key = number, engine = shop, on_error = release)]
async fn by_its_path(
    #[idem(skip)] State(shop): State<Shop>,
    Path(number): Path<u32>,
    page: String,
) -> Result<Answer<String>, Error> {
    let run = shop.run();
    Ok(format!("{number}: {run} {}", page.len()).into())
}

/// What no pattern takes apart, in an extractor of its own.
#[derive(Serialize)]
struct Wish(Option<NewOrder>);

impl<S: Send + Sync> FromRequest<S> for Wish {
    type Rejection = JsonRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, JsonRejection> {
        let order = Option::<Json<NewOrder>>::from_request(request, state).await?;
        Ok(Self(order.map(|Json(order)| order)))
    }
}

// It authenticates no client: all share one namespace.
#[idempotent(op = "wish", scope = public, key = idempotency_key, engine = shop, on_error = release)]
async fn of_an_own_extractor(
    #[idem(skip)] State(shop): State<Shop>,
    idempotency_key: IdempotencyKey,
    wish: Wish,
) -> Result<Reply<String>, Error> {
    shop.run();
    Ok(Reply::ok(
        wish.0
            .map_or_else(|| "nothing".to_owned(), |order| order.item),
    ))
}

// It authenticates no client: all share one namespace.
#[axum::debug_handler]
#[idempotent(op = "above", scope = public, key = key, engine = shop, on_error = release, on_cancel = finish)]
async fn debug_above(
    #[idem(skip)] State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<u32>, Error> {
    let _ = order;
    Ok(Reply::ok(shop.run()))
}

// It authenticates no client: all share one namespace.
#[idempotent(op = "below", scope = public, key = key, engine = shop, on_error = release, on_cancel = finish)]
#[axum::debug_handler]
async fn debug_below(
    #[idem(skip)] State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<u32>, Error> {
    let _ = order;
    Ok(Reply::ok(shop.run()))
}

#[tracing::instrument(skip_all, fields(user = user.id))]
#[idempotent(op = "traced", scope = user.id, key = key, engine = shop, on_error = release)]
async fn traced_above(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    IdempotencyKey(key): IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<u32>, Error> {
    let _ = order;
    Ok(Reply::ok(shop.run()))
}

#[idempotent(op = "traced", scope = user.id, key = key, engine = shop, on_error = release)]
#[tracing::instrument(skip_all, fields(user = user.id))]
async fn traced_below(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] user: User,
    IdempotencyKey(key): IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<u32>, Error> {
    let _ = order;
    Ok(Reply::ok(shop.run()))
}

/// Of a part of the state, and of any state that has it.
// It authenticates no client: all share one namespace.
#[idempotent(op = "generic", scope = public, key = key, engine = engine, on_error = release, on_cancel = finish)]
async fn generic<C: Counts>(
    #[idem(skip)] State(engine): State<Engine>,
    #[idem(skip)] State(counts): State<C>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Reply<u32>, Error> {
    Ok(Reply::created(counts.count()))
}

trait Counts: Clone + Send + Sync + 'static {
    fn count(&self) -> u32;
}

impl Counts for Shop {
    fn count(&self) -> u32 {
        self.run()
    }
}

impl FromRef<Shop> for Engine {
    fn from_ref(shop: &Shop) -> Self {
        shop.engine()
    }
}

fn generic_routes<S, C>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    C: Counts + FromRef<S>,
    Engine: FromRef<S>,
{
    Router::new().route("/generic", post(generic::<C>))
}

/// A page that is looked at after a form was sent.
#[idempotent(op = "form", key = order.item, engine = shop, on_error = release)]
async fn from_a_page(
    #[idem(skip)] State(shop): State<Shop>,
    Form(order): Form<NewOrder>,
) -> Result<Reply<()>, Error> {
    Ok(Reply::see_other(format!("/orders/{}", shop.run())))
}

/// The engine comes with the task, as a middleware put it there.
// It authenticates no client: all share one namespace.
#[idempotent(op = "scoped", scope = public, key = key)]
async fn in_scope(
    #[idem(skip)] State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Reply<u32>, ApiError> {
    Ok(Reply::ok(shop.run()))
}

fn routes(shop: &Shop) -> Router {
    let engine = shop.engine();
    let scoped = axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        let engine = engine.clone();
        async move { engine.scope(next.run(request)).await }
    });
    Router::new()
        .route("/scoped", post(in_scope).layer(scoped))
        .route("/parts/{kind}/{number}", post(of_every_part))
        .route("/put/{number}", put(by_its_path))
        .route("/wish", post(of_an_own_extractor))
        .route("/debug-above", post(debug_above))
        .route("/debug-below", post(debug_below))
        .route("/traced-above", post(traced_above))
        .route("/traced-below", post(traced_below))
        .route("/form", post(from_a_page))
        .layer(Extension(Tenant(7)))
        .merge(generic_routes::<Shop, Shop>())
        .with_state(shop.clone())
}

/// Sends one request twice: one run, and the same answer marked as replayed.
async fn twice(
    method: Method,
    path: &str,
    content_type: &str,
    body: &'static str,
) -> client::Reply {
    let shop = Shop::new();
    let server = Server::start(routes(&shop)).await;
    let ask = || {
        let request = request(method.clone(), path)
            .header("idempotency-key", "\"k\"")
            .header("content-type", content_type);
        send(server.at, request.body(Full::from(body)).unwrap())
    };
    let (first, again) = (ask().await, ask().await);
    assert_eq!(shop.runs(), 1, "{path}: {first:?}, then {again:?}");
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert_eq!(
        (first.is_replayed(), again.is_replayed()),
        (false, true),
        "{path}"
    );
    first
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

#[tokio::test]
async fn extractors_of_axum_are_taken_apart() {
    let reply = twice(Method::POST, "/parts/tea/3?page=2", FORM, "item=green").await;
    assert_eq!(reply.json(), "1 7 tea 3 2 green");
}

#[tokio::test]
async fn an_answer_is_the_response_of_its_value() {
    let reply = twice(Method::PUT, "/put/5", JSON, "{}").await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (200, &b"5: 1 2"[..])
    );
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
}

#[tokio::test]
async fn a_plain_parameter_is_compared_as_it_is() {
    let reply = twice(Method::POST, "/wish", JSON, r#"{"item":"tea"}"#).await;
    assert_eq!(reply.json(), "tea");
}

#[tokio::test]
async fn other_attributes_stand_above_or_below() {
    for path in [
        "/debug-above",
        "/debug-below",
        "/traced-above",
        "/traced-below",
    ] {
        let reply = twice(Method::POST, path, JSON, r#"{"item":"tea"}"#).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()),
            (200, 1.into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn routers_may_be_generic() {
    assert_eq!(twice(Method::POST, "/generic", JSON, "").await.status, 201);
}

#[tokio::test]
async fn an_engine_may_come_from_a_middleware() {
    assert_eq!(twice(Method::POST, "/scoped", JSON, "").await.json(), 1);
}

#[tokio::test]
async fn a_form_is_sent_on_to_a_page() {
    let reply = twice(Method::POST, "/form", FORM, "item=tea").await;
    assert_eq!(reply.status, 303);
    assert_eq!(reply.header("location"), Some("/orders/1"));
    assert_eq!((reply.header("content-type"), reply.body.len()), (None, 0));
}
