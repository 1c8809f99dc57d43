//! The JSON API: `POST /api/orders` and `GET /api/orders/{id}`.
//!
//! This code does not handle repeats: the layer around `create` does, see [`routes`](super::routes).

use axum::extract::rejection::JsonRejection;
use axum::extract::{Json, Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use idem_runtime::context;
use serde::Deserialize;
use serde_json::json;

use super::books::Order;
use super::buy::{NotPaid, Purchase};
use super::caller::Caller;
use super::routes::DOCUMENTED_AT;
use super::shop::Shop;
use super::submit::Quantity;

/// Body of an order request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrder {
    quantity: Quantity,
    #[serde(default = "visa")]
    card: String,
}

fn visa() -> String {
    "tok_visa".to_owned()
}

/// Reason why there is no order.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The request has no credential of a customer.
    CallerUnknown,
    /// The request cannot be read; the text is the reason, for the client's developer.
    OrderInvalid(String),
    /// The caller has no order of this number.
    NotFound,
    /// The order is not paid.
    NotPaid(NotPaid),
}

/// `POST /api/orders`: 201 and the order.
///
/// The layer runs it to completion and stores the response.
pub(crate) async fn create(
    State(shop): State<Shop>,
    caller: Caller,
    order: Result<Json<NewOrder>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(order) = order?;
    let purchase = Purchase {
        buyer: caller.buyer(),
        quantity: order.quantity.into(),
        card: &order.card,
    };
    let bought = shop.buy(&context(), purchase).await;
    let order = bought.map_err(ApiError::NotPaid)?;
    let location = format!("/api/orders/{}", order.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], shown(&order)).into_response())
}

/// `GET /api/orders/{id}`: 200 and the order.
pub(crate) async fn find(
    State(shop): State<Shop>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let order = shop.books.order(&id, caller.buyer()).await;
    let order = order.map_err(|error| {
        eprintln!("checkout: cannot read an order: {error}");
        ApiError::NotPaid(NotPaid::Books)
    })?;
    Ok(shown(&order.ok_or(ApiError::NotFound)?).into_response())
}

fn shown(order: &Order) -> Json<&Order> {
    Json(order)
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::OrderInvalid(rejection.body_text())
    }
}

impl ApiError {
    fn parts(self) -> (StatusCode, &'static str, &'static str, String) {
        let provider = "nobody knows what the payment provider did: send the request again with the same key, and you \
                        pay once";
        let books = "the shop cannot reach its books: send the request again with the same key";
        let (status, code, title, detail) = match self {
            Self::CallerUnknown => (
                StatusCode::FORBIDDEN,
                "caller-unknown",
                "The caller is not known",
                "send your credential: `Authorization: Bearer …`",
            ),
            Self::OrderInvalid(why) => {
                let title = "The order cannot be read";
                return (StatusCode::BAD_REQUEST, "order-invalid", title, why);
            }
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "order-unknown",
                "No such order",
                "you have no order of this number",
            ),
            Self::NotPaid(NotPaid::Declined) => (
                StatusCode::PAYMENT_REQUIRED,
                "card-declined",
                "The card was declined",
                "nothing was bought: send a new request, with a new key and another card",
            ),
            Self::NotPaid(NotPaid::ProviderDown) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "provider-down",
                "The payment provider did not answer",
                provider,
            ),
            Self::NotPaid(NotPaid::Books) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "books-closed",
                "The shop cannot write the order",
                books,
            ),
        };
        (status, code, title, detail.to_owned())
    }
}

/// A problem document, in the form of the layer's own.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, title, detail) = self.parts();
        let document = json!({
            "type": format!("{DOCUMENTED_AT}#{code}"),
            "title": title,
            "status": status.as_u16(),
            "detail": detail,
            "code": code,
        });
        let problem = HeaderValue::from_static("application/problem+json");
        let mut response =
            (status, [(CONTENT_TYPE, problem)], document.to_string()).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}
