//! A form that is sent twice.

use std::time::Duration;

use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::Key;
use serde_json::json;

use super::shop::Shop;
use super::visitor::{
    APART, FAST, SLOW, begin, buy, element, open, open_impatient, order, pay_with, unguard,
};

#[tokio::test]
async fn the_button_is_switched_off_by_the_first_click() {
    let (shop, visitor) = open(SLOW).await;
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    assert_eq!((shop.count("started"), shop.calls()), (1, (1, 0)));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_double_click_without_the_guard_is_one_order() {
    let (shop, visitor) = open(SLOW).await;
    unguard(&visitor).await;
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

/// Chromium gives up the first before anything is sent, or after: it is one order either way.
#[tokio::test]
async fn a_quick_double_click_is_one_order() {
    let (shop, visitor) = open(FAST).await;
    unguard(&visitor).await;
    visitor.click_twice("#buy", Duration::from_millis(60)).await;
    order(&visitor).await;
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn enter_pressed_twice_is_one_order() {
    let (shop, visitor) = open(SLOW).await;
    enter_twice(&visitor).await;
    order(&visitor).await;
    assert_eq!((shop.count("started"), shop.calls()), (1, (1, 0)));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn enter_pressed_twice_without_the_guard_is_one_order() {
    let (shop, visitor) = open(SLOW).await;
    unguard(&visitor).await;
    enter_twice(&visitor).await;
    order(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

/// As [`Browser::click_twice`]: in one go, for the browser's driver waits for a page in between.
async fn enter_twice(browser: &Browser) {
    let field = element(browser, "#quantity").await;
    let enter = || char::from(Key::Enter);
    let twice = browser
        .action_chain_with_delay(None, Some(APART))
        .click_element(&field)
        .key_down(enter())
        .key_up(enter())
        .move_by_offset(0, 0)
        .key_down(enter())
        .key_up(enter());
    twice.perform().await.unwrap();
}

#[tokio::test]
async fn without_javascript_the_form_works_and_a_double_click_is_one_order() {
    let shop = Shop::start(SLOW);
    let visitor = Browser::without_javascript().await;
    visitor.goto(shop.url("/")).await.unwrap();
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_page_that_is_stopped_and_sent_again_leads_to_the_first_order() {
    let (shop, visitor) = open_impatient(SLOW).await;
    begin(&visitor, &shop).await;
    let cdp = visitor.cdp();
    cdp.send_raw("Page.stopLoading", json!({})).await.unwrap();
    // The form is still there, and its button comes back.
    visitor.wait_for_text("#buy", "Order and pay").await;
    buy(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_visitor_that_left_has_ordered() {
    let (shop, visitor) = open_impatient(SLOW).await;
    begin(&visitor, &shop).await;
    drop(visitor);
    shop.wait_for("executed", 1).await;
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn the_order_is_that_of_the_form() {
    let (shop, visitor) = open(FAST).await;
    let quantity = element(&visitor, "#quantity").await;
    quantity.clear().await.unwrap();
    quantity.send_keys("3").await.unwrap();
    pay_with(&visitor, "tok_visa").await;
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    let shown = visitor.text("#order-quantity").await;
    assert_eq!(shown.as_deref(), Some("3"));
    assert_eq!(
        visitor.text("#order-amount").await.as_deref(),
        Some("37.50 €")
    );
    shop.assert_sold(1).await;
}
