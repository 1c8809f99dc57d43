//! The same on the servers that a shop would have.

use std::sync::Arc;

use idem_harness::{PostgresServer, RedisServer};

use super::shop::Shop;
use super::visitor::{APART, SLOW, back, buy, click, order, token, unguard, visitor};

/// A double click, the back button, and then another order.
async fn journey(shop: &Shop) {
    let visitor = visitor(shop).await;
    let form = token(&visitor).await;
    unguard(&visitor).await;
    visitor.click_twice("#buy", APART).await;
    let first = order(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");

    back(&visitor).await;
    assert_eq!(token(&visitor).await, form);
    assert_eq!(buy(&visitor).await, first);
    assert_eq!(shop.calls(), (1, 2));
    shop.assert_sold(1).await;

    click(&visitor, "#again").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_ne!(buy(&visitor).await, first);
    assert_eq!(shop.calls(), (2, 2));
    shop.assert_sold(2).await;
}

#[tokio::test]
async fn on_redis() {
    let server = RedisServer::start();
    let shop = Shop::start_with(SLOW, &["--redis", &server.url()]);
    journey(&shop).await;
}

#[tokio::test]
async fn on_postgres() {
    let shop = Shop::on_postgres(SLOW, Arc::new(PostgresServer::start()));
    journey(&shop).await;
}
