//! Story 2: a visitor that reloads, goes back and forward, stops a page, and leaves.

use serde_json::json;
use thirtyfour::Key;

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{
    back, begin, buy, click, element, impatient_visitor, order, repeat, token, unguard, visitor,
};

#[tokio::test]
async fn a_visitor_that_moves_about_orders_once_for_each_cart() {
    let shop = Shop::start();
    let visitor = visitor(&shop).await;
    let form = token(&visitor).await;
    let quantity = element(&visitor, "#quantity").await;
    quantity.send_keys(Key::Control + "a").await.unwrap();
    quantity.send_keys("3").await.unwrap();
    let first = buy(&visitor).await;
    let shown = visitor.text("#order-quantity").await;
    assert_eq!(shown.as_deref(), Some("3"), "the order is that of the form");
    for _ in 0..2 {
        visitor.refresh().await.unwrap();
        assert_eq!(order(&visitor).await, first);
    }
    assert_eq!(shop.calls(), (1, 0), "a reload of the order sends no form");

    for _ in 0..2 {
        back(&visitor).await;
        assert_eq!(token(&visitor).await, form, "the form that was sent");
        visitor.forward().await.unwrap();
        assert_eq!(order(&visitor).await, first);
    }
    assert_eq!(shop.calls(), (1, 0), "back and forward send nothing");

    for replays in 1..=2 {
        back(&visitor).await;
        assert_eq!(buy(&visitor).await, first);
        assert_eq!(shop.calls(), (1, replays), "sent again");
    }
    shop.assert_sold(1).await;

    click(&visitor, "#again").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_ne!(token(&visitor).await, form, "a new cart");
    assert_eq!(visitor.text("#orders a").await.as_ref(), Some(&first));
    unguard(&visitor).await;
    assert_ne!(buy(&visitor).await, first);
    assert_eq!(shop.calls(), (2, 2));
    shop.assert_sold(2).await;
}

/// Sends a form, opens or stops the page meanwhile, and repeats it.
async fn again_meanwhile(shop: &mut Shop, visitor: &Browser, is_stopped: bool) {
    let form = token(visitor).await;
    begin(visitor, shop).await;
    if is_stopped {
        let cdp = visitor.cdp();
        cdp.send_raw("Page.stopLoading", json!({})).await.unwrap();
    } else {
        visitor.goto(shop.url("/")).await.unwrap();
    }
    // Its button was switched off, and comes back.
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_eq!(token(visitor).await, form, "the same cart");
    repeat(visitor, shop).await;
    order(visitor).await;
}

#[tokio::test]
async fn a_visitor_that_does_not_wait_for_its_order_has_ordered() {
    let mut shop = Shop::by_hand();
    let visitor = impatient_visitor(&shop).await;
    again_meanwhile(&mut shop, &visitor, false).await;
    assert_eq!(shop.calls(), (1, 1));
    click(&visitor, "#again").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    again_meanwhile(&mut shop, &visitor, true).await;
    assert_eq!(shop.calls(), (2, 2));
    click(&visitor, "#again").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    begin(&visitor, &shop).await;
    drop(visitor);
    shop.pay();
    shop.wait_for("executed", 3).await;
    shop.assert_sold(3).await;
}
