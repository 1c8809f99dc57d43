//! Payments that are not made.

use super::visitor::{FAST, buy, click, notice, open, order, pay_with, token};

#[tokio::test]
async fn a_declined_card_stays_declined_and_another_one_pays() {
    let (shop, visitor) = open(FAST).await;
    let form = token(&visitor).await;
    pay_with(&visitor, "tok_chargeDeclined").await;
    click(&visitor, "#buy").await;
    notice(&visitor, 402, "The card was declined").await;
    let says = visitor.text("#notice").await;
    let next = token(&visitor).await;
    assert_ne!(next, form);
    // This page is the answer to the form: a reload sends it again.
    visitor.refresh().await.unwrap();
    notice(&visitor, 402, "The card was declined").await;
    assert_eq!(visitor.text("#notice").await, says);
    assert_eq!(token(&visitor).await, next);
    assert_eq!(shop.calls(), (1, 1));
    shop.assert_sold(0).await;

    pay_with(&visitor, "tok_visa").await;
    buy(&visitor).await;
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn when_the_provider_is_there_again_the_same_form_works() {
    let (shop, visitor) = open(FAST).await;
    let form = token(&visitor).await;
    pay_with(&visitor, "tok_down").await;
    click(&visitor, "#buy").await;
    notice(&visitor, 503, "The payment provider cannot be reached").await;
    assert_eq!(token(&visitor).await, form);
    shop.assert_books(0, 1).await;
    buy(&visitor).await;
    assert_eq!((shop.count("released"), shop.calls()), (1, (1, 0)));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_reload_asks_a_provider_again_that_was_not_there() {
    let (shop, visitor) = open(FAST).await;
    pay_with(&visitor, "tok_down").await;
    click(&visitor, "#buy").await;
    notice(&visitor, 503, "The payment provider cannot be reached").await;
    visitor.refresh().await.unwrap();
    let first = order(&visitor).await;
    // Back is the page that the form led to.
    visitor.refresh().await.unwrap();
    assert_eq!(order(&visitor).await, first);
    assert_eq!((shop.count("released"), shop.calls()), (1, (1, 0)));
    shop.assert_sold(1).await;
}
