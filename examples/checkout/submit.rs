//! `POST /orders`: the form, submitted once or more often.

use axum::Extension;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use idem_runtime::http::Problem;
use idem_runtime::{Answer, Classify, Error, context, idempotent, token::token};
use serde::{Deserialize, Serialize};

use super::buy::{NotPaid, Purchase};
use super::session::Session;
use super::shop::{MOST, Shop};

/// Fields of the form.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OrderForm {
    token: String,
    quantity: Quantity,
    card: String,
}

/// Number of packets: 1 to 20. Another number is refused before a claim is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub(crate) struct Quantity(u32);

impl TryFrom<u32> for Quantity {
    type Error = String;

    fn try_from(packets: u32) -> Result<Self, String> {
        match packets {
            1..=MOST => Ok(Self(packets)),
            _ => Err(format!("the quantity must be 1 to {MOST}")),
        }
    }
}

impl From<Quantity> for u32 {
    fn from(Quantity(packets): Quantity) -> Self {
        packets
    }
}

/// A placed order. Its response redirects to the page of the order, so that a reload of that page sends no form.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    order: String,
}

impl IntoResponse for Placed {
    fn into_response(self) -> Response {
        Redirect::to(&format!("/orders/{}", self.order)).into_response()
    }
}

/// Reason why no order was placed. The class decides about a repeat of the form.
#[derive(Clone, Debug, Serialize, Deserialize, Classify)]
pub(crate) enum SubmitError {
    /// A repeat gets the same answer: the form is used up.
    #[class(business)]
    Declined,
    /// A repeat is another attempt: the form stays valid.
    #[class(system)]
    ProviderDown,
    /// A repeat is another attempt, too.
    #[class(system)]
    Books,
    /// idem's own refusals: a forged token, a form submitted before with another quantity.
    #[class(delegate)]
    Idem(Error),
}

/// Every submission of one form gets the same order: the token is the key, and it is valid for this session only.
///
/// It runs to completion even if the visitor closes the page. A double click waits for the first one; after a crash the
/// lease is how long a repeat waits at most.
#[idempotent(
    op = "orders.submit",
    key = token(&form.token, &session),
    ttl = "24h",
    lease = "3s",
    max_attempts = unlimited,
    on_running = wait("30s"),
    on_cancel = finish,
    engine = shop.engine,
)]
pub(crate) async fn submit(
    #[idem(skip)] State(shop): State<Shop>,
    #[idem(skip)] Extension(session): Extension<Session>,
    Form(form): Form<OrderForm>,
) -> Result<Answer<Placed>, SubmitError> {
    let call = context();
    let purchase = Purchase {
        buyer: session.as_str(),
        quantity: form.quantity.into(),
        card: &form.card,
    };
    let (session, quantity) = (session.as_str(), purchase.quantity.into());
    let tried = shop
        .books
        .try_cart(session, &form.token, quantity, &form.card);
    tried.await.map_err(|error| cannot_write(&error))?;
    let bought = shop.buy(&call, purchase).await;
    if matches!(bought, Ok(_) | Err(NotPaid::Declined)) {
        // The form is used up: the cart gets a new one.
        let closed = shop.books.close_cart(session, &form.token).await;
        closed.map_err(|error| cannot_write(&error))?;
    }
    let order = bought?;
    Ok(Placed { order: order.id }.into())
}

fn cannot_write(error: &sqlx::Error) -> SubmitError {
    eprintln!("checkout: cannot write a cart: {error}");
    SubmitError::Books
}

impl From<NotPaid> for SubmitError {
    fn from(reason: NotPaid) -> Self {
        match reason {
            NotPaid::Declined => Self::Declined,
            NotPaid::ProviderDown => Self::ProviderDown,
            NotPaid::Books => Self::Books,
        }
    }
}

impl From<Error> for SubmitError {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl SubmitError {
    /// Status of the error page.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Declined => StatusCode::PAYMENT_REQUIRED,
            Self::ProviderDown | Self::Books => StatusCode::SERVICE_UNAVAILABLE,
            Self::Idem(error) => Problem::from(error).status(),
        }
    }

    /// Text for the visitor. `tried`: whether the form of the page was submitted before with an unknown outcome.
    pub(crate) fn notice(&self, tried: bool) -> &'static str {
        let code = match self {
            Self::Declined => {
                return "The card was declined, and nothing was bought. Here is a new form: try another card.";
            }
            Self::ProviderDown => {
                return "The payment provider cannot be reached. Press the button again: this form is still good, and \
                        you pay once, whatever has happened.";
            }
            Self::Books => {
                return "The shop cannot write the order now. Press the button again: this form is still good, and you \
                        pay once.";
            }
            Self::Idem(error) => Problem::from(error).code(),
        };
        match code {
            "key-reused" if tried => {
                "This form was submitted before with something else in it, and may have been paid. Here it is as it \
                 was: press the button to find out, and you pay once."
            }
            "key-reused" => {
                "This form was submitted before with something else in it, and that counts: see your orders below. \
                 Nothing more was bought. Here is a new form."
            }
            "token-expired" => {
                "The form was open for too long, and nothing was bought. Here is a new one."
            }
            "token-invalid" | "key-invalid" => {
                "This form is not one that the shop gave you, and nothing was bought. Here is one that is."
            }
            "request-running" => {
                "Your order is still being worked on. Press the button again in a moment: it stays one order."
            }
            "unavailable" => {
                "The shop cannot take orders now. Press the button again later: this form is still good."
            }
            _ => {
                "Something went wrong with this form, and it is not worked on again. See your orders below, and ask us \
                 before you order once more."
            }
        }
    }
}

/// The error is an extension of the response. [`explain`](super::pages::explain) makes a page of it.
impl IntoResponse for SubmitError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}
