//! Networks that are slow or lose replies, and a shop that is killed.

use std::time::Duration;

use idem_harness::TcpProxy;
use idem_tests_browser::Browser;
use serde_json::json;

use super::shop::Shop;
use super::visitor::{APART, FAST, SLOW, click, order, script, token, unguard, visitor};

#[tokio::test]
async fn an_impatient_visitor_on_a_slow_network_orders_once() {
    let shop = Shop::start(FAST);
    let visitor = visitor(&shop).await;
    unguard(&visitor).await;
    let slow = json!({
        "offline": false,
        "latency": 2_500,
        "downloadThroughput": 4_000,
        "uploadThroughput": 4_000,
    });
    let cdp = visitor.cdp();
    let set = cdp.send_raw("Network.emulateNetworkConditions", slow);
    set.await.unwrap();
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    shop.wait_for("replayed", 1).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn an_answer_that_is_late_is_asked_for_again() {
    let shop = Shop::start(FAST);
    let (visitor, proxy) = visitor_behind_proxy(&shop).await;
    unguard(&visitor).await;
    proxy.delay(Duration::from_secs(3));
    visitor.click_twice("#buy", APART).await;
    order(&visitor).await;
    assert_eq!(shop.calls(), (1, 1), "both were sent");
    shop.assert_sold(1).await;
}

async fn visitor_behind_proxy(shop: &Shop) -> (Browser, TcpProxy) {
    let proxy = TcpProxy::start(shop.addr);
    let browser = Browser::start().await;
    let url = format!("http://{}/", proxy.addr());
    browser.goto(url).await.unwrap();
    (browser, proxy)
}

/// Chromium sends a form again by itself when a connection breaks that has served before.
#[tokio::test]
async fn a_form_that_the_browser_sends_again_by_itself_is_one_order() {
    let shop = Shop::start(FAST);
    let (visitor, proxy) = visitor_behind_proxy(&shop).await;
    proxy.drop_next_reply_to("POST /orders");
    click(&visitor, "#buy").await;
    order(&visitor).await;
    assert_eq!(proxy.stats().dropped_replies, 1);
    assert_eq!(shop.calls(), (1, 1), "the browser sent it again");
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_form_sent_again_after_its_answer_was_lost_leads_to_the_order() {
    let shop = Shop::start(FAST);
    let (visitor, proxy) = visitor_behind_proxy(&shop).await;
    let form = token(&visitor).await;
    // That of the browser's own second attempt, too: the visitor sees an error.
    proxy.drop_next_reply_to("POST /orders");
    proxy.drop_next_reply_to("POST /orders");
    // The driver takes the error page for an error of the click.
    drop(
        visitor
            .execute("document.getElementById('order-form').requestSubmit();", [])
            .await,
    );
    shop.wait_for("replayed", 1).await;
    proxy.wait_until(|seen| seen.dropped_replies == 2);
    shop.assert_sold(1).await;

    drop(visitor.back().await);
    visitor.wait_for_text("#buy", "Order and pay").await;
    assert_eq!(token(&visitor).await, form);
    click(&visitor, "#buy").await;
    order(&visitor).await;
    assert_eq!(shop.calls(), (1, 2));
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn a_shop_that_was_killed_while_it_was_paid_finishes_the_order() {
    let mut shop = Shop::start(SLOW);
    let visitor = visitor(&shop).await;
    let form = token(&visitor).await;
    script(
        &visitor,
        "document.getElementById('order-form').requestSubmit();",
    )
    .await;
    shop.wait_for("started", 1).await;
    shop.kill9_and_restart();
    // To the browser the connection broke, and it may have tried again by itself.
    visitor.goto(shop.url("/")).await.unwrap();
    assert_eq!(token(&visitor).await, form);
    click(&visitor, "#buy").await;
    order(&visitor).await;
    shop.assert_sold(1).await;
}
