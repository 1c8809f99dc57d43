//! Shapes of handlers: every extractor of axum, other attributes above and below, generic routers.

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Form, FromRef, Json, Path, Query, Request, State};
use axum::routing::{post, put};
use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::{Answer, Engine, Error, HasEngine, idempotent};
use serde::{Deserialize, Serialize};

use super::shop::{ApiError, NewOrder, Shop};
use crate::client::{Ran, Replayed, send};

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

// It authenticates no client: all share one namespace.
#[axum::debug_handler]
#[idempotent(op = "debugged", scope = public, key = key, engine = shop, on_error = release, on_cancel = finish)]
async fn debugged(
    #[idem(skip)] State(shop): State<Shop>,
    IdempotencyKey(key): IdempotencyKey,
    Json(order): Json<NewOrder>,
) -> Result<Reply<usize>, Error> {
    let _ = order;
    Ok(Reply::ok(shop.run()))
}

/// Extractors of a part of the state, and of any larger state.
// It authenticates no client: all share one namespace.
#[idempotent(op = "generic", scope = public, key = key, engine = engine, on_error = release, on_cancel = finish)]
async fn generic<C: Counts>(
    #[idem(skip)] State(engine): State<Engine>,
    #[idem(skip)] State(counts): State<C>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Reply<usize>, Error> {
    Ok(Reply::created(counts.count()))
}

trait Counts: Clone + Send + Sync + 'static {
    fn count(&self) -> usize;
}

impl Counts for Shop {
    fn count(&self) -> usize {
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
) -> Result<Reply<usize>, ApiError> {
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
        .route("/debugged", post(debugged))
        .route("/form", post(from_a_page))
        .layer(Extension(Tenant(7)))
        .merge(generic_routes::<Shop, Shop>())
        .with_state(shop.clone())
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const TEA: &str = r#"{"item":"tea"}"#;

/// Each request is sent twice: one run, and the same answer marked as replayed.
#[tokio::test]
async fn a_handler_of_each_shape_runs_once() {
    let parts = "\"1 7 tea 3 2 green\"";
    for (method, path, of_type, body, status, text) in [
        (
            "POST",
            "/parts/tea/3?page=2",
            FORM,
            "item=green",
            200,
            parts,
        ),
        ("PUT", "/put/5", JSON, "{}", 200, "5: 1 2"),
        ("POST", "/debugged", JSON, TEA, 200, "1"),
        ("POST", "/generic", JSON, "", 201, "1"),
        ("POST", "/scoped", JSON, "", 200, "1"),
        ("POST", "/form", FORM, "item=tea", 303, ""),
    ] {
        let shop = Shop::new();
        let request = || {
            let request = Request::builder().method(method).uri(path);
            let request = request.header("idempotency-key", "\"k\"");
            let request = request.header("content-type", of_type);
            request.body(Body::from(body)).unwrap()
        };
        let rows = [
            (path, request(), Ran(status, text)),
            (path, request(), Replayed(status, text)),
        ];
        let routes = routes(&shop);
        shop.walk(&routes, rows).await;
        let answer = send(&routes, request()).await;
        let (of_type, location) = match path {
            "/put/5" => (Some("text/plain; charset=utf-8"), None),
            "/form" => (None, Some("/orders/1")),
            _ => (Some("application/json"), None),
        };
        assert_eq!(answer.header("content-type"), of_type, "{path}");
        assert_eq!(answer.header("location"), location, "{path}");
    }
}
