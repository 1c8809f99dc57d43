//! Reload, back and forward.

use super::visitor::{
    FAST, SLOW, back, begin, buy, click, open, open_impatient, order, token, unguard,
};

#[tokio::test]
async fn a_reload_of_the_order_sends_no_form() {
    let (shop, visitor) = open(FAST).await;
    let first = buy(&visitor).await;
    for _ in 0..2 {
        visitor.refresh().await.unwrap();
        assert_eq!(order(&visitor).await, first);
    }
    assert_eq!(shop.calls(), (1, 0));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_reload_while_the_order_is_paid_is_the_same_cart() {
    let (shop, visitor) = open_impatient(SLOW).await;
    let form = token(&visitor).await;
    begin(&visitor, &shop).await;
    visitor.goto(shop.url("/")).await.unwrap();
    // Switched off on the page before it.
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_eq!(token(&visitor).await, form);
    buy(&visitor).await;
    assert_eq!(shop.calls(), (1, 1));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn back_and_submit_again_leads_to_the_same_order() {
    let (shop, visitor) = open(FAST).await;
    let form = token(&visitor).await;
    let first = buy(&visitor).await;
    for _ in 0..2 {
        back(&visitor).await;
        assert_eq!(token(&visitor).await, form, "the form that was sent");
        assert_eq!(buy(&visitor).await, first);
    }
    assert_eq!(shop.calls(), (1, 2));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn back_and_forward_send_nothing() {
    let (shop, visitor) = open(FAST).await;
    unguard(&visitor).await;
    let first = buy(&visitor).await;
    for _ in 0..3 {
        back(&visitor).await;
        visitor.forward().await.unwrap();
        assert_eq!(order(&visitor).await, first);
    }
    assert_eq!((shop.count("started"), shop.calls()), (1, (1, 0)));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_new_cart_is_a_new_order() {
    let (shop, visitor) = open(FAST).await;
    let form = token(&visitor).await;
    let first = buy(&visitor).await;
    click(&visitor, "#again").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_ne!(token(&visitor).await, form);
    let listed = visitor.text("#orders a").await;
    assert_eq!(listed.as_ref(), Some(&first));
    click(&visitor, "#buy").await;
    // The page before it has no state to show.
    assert_ne!(order(&visitor).await, first);
    assert_eq!(shop.calls(), (2, 0));
    shop.assert_sold(2).await;
}
