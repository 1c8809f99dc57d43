//! `POST /v1/charges`: a payment endpoint for payment SDKs, with a form as the body.

use axum::body::Body;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Json, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use idem_runtime::context;
use idem_runtime::http::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::books::now;
use super::caller::Caller;
use super::provider::{Charge, ProviderDown};
use super::shop::Shop;

/// Form fields of an SDK, which may send more.
#[derive(Debug, Deserialize)]
pub(crate) struct NewCharge {
    amount: i64,
    currency: String,
    source: String,
    description: Option<String>,
}

/// Answers 200 and the charge, or 402 or 400 and an error in the SDKs' format.
pub(crate) async fn create(
    State(shop): State<Shop>,
    _: Caller,
    form: Result<Form<NewCharge>, FormRejection>,
) -> Response {
    let form = match form {
        Ok(Form(form)) if form.amount > 0 => form,
        Ok(_) => return invalid("the amount must be more than 0"),
        Err(rejection) => return invalid(&rejection.body_text()),
    };
    // The payment is part of the name, because an expired key may come back with another request.
    let what = format!("{} {} from {}", form.amount, form.currency, form.source);
    let charge = Charge {
        name: &context().derive_key(&format!("payment of {what}")),
        amount: form.amount,
        currency: &form.currency,
        card: &form.source,
    };
    match shop.provider.charge(charge).await {
        Ok(charged) if charged.paid => Json(json!({
            "id": charged.id,
            "object": "charge",
            "amount": form.amount,
            "currency": form.currency,
            "created": now(),
            "description": form.description,
            "livemode": false,
            "paid": true,
            "status": "succeeded",
        }))
        .into_response(),
        Ok(charged) => {
            let error = json!({
                "type": "card_error",
                "code": "card_declined",
                "charge": charged.id,
                "message": "Your card was declined.",
            });
            failed(StatusCode::PAYMENT_REQUIRED, &error).into_response()
        }
        Err(ProviderDown) => {
            let error = json!({ "type": "api_error", "message": "The bank cannot be reached: send it again." });
            failed(StatusCode::SERVICE_UNAVAILABLE, &error).into_response()
        }
    }
}

/// idem's own refusals in the SDKs' format, which uses 400 for a key that came with another request.
pub(crate) fn refusal(problem: Problem) -> axum::http::Response<String> {
    let error = json!({
        "type": "idempotency_error",
        "code": problem.code(),
        "message": problem.detail(),
    });
    let reused = problem.code() == "key-reused";
    let mut response = problem.into_response();
    if reused {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    *response.body_mut() = json!({ "error": error }).to_string();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn invalid(why: &str) -> Response<Body> {
    let error = json!({ "type": "invalid_request_error", "message": why });
    failed(StatusCode::BAD_REQUEST, &error).into_response()
}

fn failed(status: StatusCode, error: &Value) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "error": error })))
}
