//! A visitor with a browser, in the shop.

use std::net::SocketAddr;
use std::time::Duration;

use idem_harness::Chromium;
use thirtyfour::{By, WebElement};

use super::browser::Browser;
use super::shop::Shop;

/// Replaces the form by one without the script that disables the button.
const UNGUARD: &str = "const form = document.getElementById('order-form'); \
    const card = form.elements.card.value; form.replaceWith(form.cloneNode(true)); \
    document.getElementById('card').value = card;";

/// Far enough apart for both clicks to be sent; see [`Browser::click_twice`].
pub(crate) const APART: Duration = Duration::from_secs(1);

pub(crate) async fn visitor(shop: &Shop) -> Browser {
    let browser = Browser::start().await;
    arrive(&browser, shop.addr).await;
    browser
}

/// A browser that has opened the shop, and waits for no page: during a payment it acts at once.
pub(crate) async fn impatient_visitor(shop: &Shop) -> Browser {
    let browser = Browser::start_with(Chromium::without_waiting).await;
    arrive(&browser, shop.addr).await;
    browser
}

/// Opens the shop, here or behind something, and waits for its form.
pub(crate) async fn arrive(browser: &Browser, addr: SocketAddr) {
    browser.goto(format!("http://{addr}/")).await.unwrap();
    browser.wait_for_text("#buy", "Order and pay").await;
}

/// An element of the page, by its CSS selector.
pub(crate) async fn element(browser: &Browser, css: &str) -> WebElement {
    let found = browser.find(By::Css(css)).await;
    found.unwrap_or_else(|error| panic!("no `{css}`: {error}"))
}

/// Takes the script's guard from the button.
pub(crate) async fn unguard(browser: &Browser) {
    browser.execute(UNGUARD, []).await.unwrap();
}

pub(crate) async fn click(browser: &Browser, css: &str) {
    element(browser, css).await.click().await.unwrap();
}

/// Sends the form, and waits for the page of the paid order; its number.
pub(crate) async fn buy(browser: &Browser) -> String {
    click(browser, "#buy").await;
    order(browser).await
}

pub(crate) async fn back(browser: &Browser) {
    browser.back().await.unwrap();
    browser.wait_for_text("#buy", "Order and pay").await;
}

/// Sends the form, whose payment is then under way.
pub(crate) async fn begin(browser: &Browser, shop: &Shop) {
    let before = (shop.count("started"), shop.calls());
    click(browser, "#buy").await;
    shop.wait_for("started", before.0 + 1).await;
    assert_eq!(shop.calls(), before.1, "it is still being paid");
    assert_eq!(shop.count("running"), 1);
}

/// Sends the form again, whose payment is under way, and lets that end once the shop has the repeat.
pub(crate) async fn repeat(browser: &Browser, shop: &mut Shop) {
    let before = shop.count("submitted");
    click(browser, "#buy").await;
    shop.pay_after("submitted", before + 1).await;
}

pub(crate) async fn pay_with(browser: &Browser, card: &str) {
    click(browser, &format!("#card option[value={card}]")).await;
}

/// The token of the form that is before the visitor.
pub(crate) async fn token(browser: &Browser) -> String {
    let field = element(browser, "#order-form [name=token]").await;
    field.prop("value").await.unwrap().unwrap()
}

/// Waits for the page of a paid order; its number.
pub(crate) async fn order(browser: &Browser) -> String {
    browser.wait_for_text("#order-state", "paid").await;
    let path = browser.current_url().await.unwrap().path().to_owned();
    let shown = browser.text("#order-id").await.unwrap();
    assert_eq!(path, format!("/orders/{shown}"));
    shown
}

/// Waits for a form with this notice above it and this status.
pub(crate) async fn notice(browser: &Browser, status: u16, says: &str) {
    browser
        .wait_for("#notice", |found| found.contains(says))
        .await;
    let notice = element(browser, "#notice").await;
    let shown = notice.attr("data-status").await.unwrap();
    assert_eq!(shown.as_deref(), Some(&*status.to_string()));
    assert_eq!(browser.text("#buy").await.as_deref(), Some("Order and pay"));
}
