//! The pages for people: the product with its form, an order, and errors.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Extension;
use axum::extract::{OriginalUri, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;

use super::books::{Cart, Order};
use super::html::{Euro, Spell, Text, page};
use super::provider::CARDS;
use super::session::Session;
use super::shop::{MOST, PRICE, Shop};
use super::submit::SubmitError;

/// `GET /`: the product, and a form that can be submitted once.
pub(crate) async fn product(
    State(shop): State<Shop>,
    Extension(session): Extension<Session>,
) -> Response {
    form_page(&shop, &session, StatusCode::OK, None).await
}

/// `GET /orders/{id}`: an order of this visitor.
pub(crate) async fn order(
    State(shop): State<Shop>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Response {
    match shop.books.order(&id, session.as_str()).await {
        Ok(Some(order)) => page(
            StatusCode::OK,
            "Thank you for your order",
            "",
            &order_markup(&order),
        ),
        Ok(None) => page(
            StatusCode::NOT_FOUND,
            "No such order",
            "",
            "<p>You have no order of this number. <a href=\"/\">Back to the shop</a></p>\n",
        ),
        Err(error) => trouble(&format!("cannot read an order: {error}")),
    }
}

/// Turns a refused form into a page: the reason, and the current form of the cart. After a system error
/// that is the same form, after a stored answer a new one.
pub(crate) async fn explain(
    State(shop): State<Shop>,
    Extension(session): Extension<Session>,
    request: Request,
    next: Next,
) -> Response {
    shop.live.submitted();
    let mut response = next.run(request).await;
    let status = response.status();
    let refusal = match response.extensions_mut().remove::<SubmitError>() {
        Some(error) => Refusal::Said(error),
        // A response of axum itself, for example to a form that lacks a field.
        None if status.is_client_error() => Refusal::Unreadable,
        None => return response,
    };
    form_page(&shop, &session, status, Some(&refusal)).await
}

/// Fallback route.
pub(crate) async fn nowhere(OriginalUri(uri): OriginalUri) -> Response {
    let path = Text(uri.path());
    let main = format!(
        "<p>There is nothing at <code>{path}</code>. <a href=\"/\">Back to the shop</a></p>\n"
    );
    page(StatusCode::NOT_FOUND, "No such page", "", &main)
}

enum Refusal {
    Said(SubmitError),
    Unreadable,
}

async fn form_page(
    shop: &Shop,
    session: &Session,
    status: StatusCode,
    refusal: Option<&Refusal>,
) -> Response {
    let cart = match shop.cart(session).await {
        Ok(cart) => cart,
        Err(message) => return trouble(&message),
    };
    let orders = match shop.books.orders_of(session.as_str()).await {
        Ok(orders) => orders,
        Err(error) => return trouble(&format!("cannot read the orders: {error}")),
    };
    let notice = refusal.map_or_else(String::new, |refusal| {
        let notice = Text(match refusal {
            Refusal::Said(error) => error.notice(cart.tried),
            Refusal::Unreadable => {
                "The form could not be read, and nothing was bought. Here is one to fill in."
            }
        });
        let status = status.as_u16();
        format!("<p id=\"notice\" role=\"alert\" data-status=\"{status}\">{notice}</p>\n")
    });
    let main = notice + &form_markup(&cart, shop.form_life) + &orders_markup(&orders);
    let script = "<script src=\"/checkout.js\" defer></script>\n";
    page(status, "Tea, 250 g", script, &main)
}

fn form_markup(cart: &Cart, life: Duration) -> String {
    // A submitted form with an unknown outcome is repeated unchanged, so that it is paid once.
    let readonly = if cart.tried { " readonly" } else { "" };
    let mut cards = String::new();
    for (card, words) in CARDS {
        let chosen = card == cart.card;
        if chosen || !cart.tried {
            let selected = if chosen { " selected" } else { "" };
            let _ = writeln!(cards, "<option value=\"{card}\"{selected}>{words}</option>");
        }
    }
    if cart.tried && !CARDS.iter().any(|(card, _)| *card == cart.card) {
        let other = Text(&cart.card);
        let _ = writeln!(cards, "<option value=\"{other}\" selected>{other}</option>");
    }
    format!(
        include_str!("form.html"),
        price = Euro(PRICE),
        cents = PRICE,
        most = MOST,
        life = Spell(life),
        tried = cart.tried,
        token = Text(&cart.token),
        quantity = cart.quantity,
        readonly = readonly,
        cards = cards,
    )
}

fn order_markup(order: &Order) -> String {
    format!(
        include_str!("order.html"),
        id = Text(&order.id),
        state = Text(&order.state),
        quantity = order.quantity,
        amount = Euro(order.amount),
        charge = Text(&order.charge),
    )
}

fn orders_markup(orders: &[Order]) -> String {
    let mut rows = String::new();
    for order in orders {
        let (id, state) = (Text(&order.id), Text(&order.state));
        let _ = writeln!(
            rows,
            "<li data-order=\"{id}\" data-state=\"{state}\"><a href=\"/orders/{id}\">{id}</a>: {} × tea, {}, {state}</li>",
            order.quantity,
            Euro(order.amount),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("<h2>Your orders</h2>\n<ul id=\"orders\">\n{rows}</ul>\n")
}

/// The details are for the operator, not for the visitor.
fn trouble(message: &str) -> Response {
    eprintln!("checkout: {message}");
    page(
        StatusCode::SERVICE_UNAVAILABLE,
        "The shop is closed",
        "",
        "<p>Something is broken on our side, and nothing was bought. Please come back later.</p>\n",
    )
}
