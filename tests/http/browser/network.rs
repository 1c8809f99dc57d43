//! Story 4: networks that are slow or lose replies, and a shop that is killed.

use std::time::Duration;

use idem_harness::{Chromium, HANG_LIMIT, TcpProxy};

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{APART, arrive, back, begin, buy, click, order, token, unguard};

async fn open_behind_proxy(shop: &Shop) -> (Browser, TcpProxy) {
    let proxy = TcpProxy::start(shop.addr);
    let browser = Browser::start_with(Chromium::without_waiting).await;
    arrive(&browser, proxy.addr()).await;
    (browser, proxy)
}

/// Waits until the browser tells its visitor that there was no answer. It has then sent the form
/// again over every connection that it had open; those are cut, too.
async fn error_page(browser: &Browser, proxy: &TcpProxy) {
    let cuts = async {
        loop {
            proxy.cut();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The driver looks at no page while another is on its way.
    let told = async {
        while browser.text(".error-code").await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = tokio::time::sleep(HANG_LIMIT);
    tokio::select! {
        () = told => {}
        () = cuts => {}
        () = patience => panic!("the browser shows no error"),
    }
}

async fn lose_the_answer(browser: &Browser, proxy: &TcpProxy, shop: &Shop, orders: i64) {
    arrive(browser, proxy.addr()).await;
    proxy.delay(Duration::from_hours(1));
    click(browser, "#buy").await;
    shop.wait_for("executed", orders).await;
    error_page(browser, proxy).await;
    shop.assert_sold(orders).await;
    proxy.delay(Duration::ZERO);
}

#[tokio::test]
async fn a_network_that_loses_answers_loses_no_order_and_makes_none() {
    let shop = Shop::start();
    let (visitor, proxy) = open_behind_proxy(&shop).await;
    // Chromium sends a form again by itself when a connection breaks that has served before.
    proxy.drop_next_reply_to("POST /orders");
    buy(&visitor).await;
    assert_eq!(proxy.stats().dropped_replies, 1);
    assert_eq!(shop.calls(), (1, 1), "the browser sent it again");
    shop.assert_sold(1).await;

    arrive(&visitor, proxy.addr()).await;
    unguard(&visitor).await;
    proxy.delay(Duration::from_hours(1));
    visitor.click_twice("#buy", APART).await;
    shop.wait_for("replayed", 2).await;
    proxy.delay(Duration::ZERO);
    order(&visitor).await;
    assert_eq!(shop.calls(), (2, 2), "a late answer is asked for again");
    shop.assert_sold(2).await;

    arrive(&visitor, proxy.addr()).await;
    let form = token(&visitor).await;
    lose_the_answer(&visitor, &proxy, &shop, 3).await;
    back(&visitor).await;
    assert_eq!(token(&visitor).await, form);
    buy(&visitor).await;
    assert_eq!(shop.count("executed"), 3, "back and submitted");
    shop.assert_sold(3).await;

    lose_the_answer(&visitor, &proxy, &shop, 4).await;
    visitor.refresh().await.unwrap();
    order(&visitor).await;
    assert_eq!(shop.count("executed"), 4, "the error page is reloaded");
    shop.assert_sold(4).await;
}

#[tokio::test]
async fn a_shop_that_was_killed_while_it_was_paid_finishes_the_order() {
    let mut shop = Shop::by_hand();
    let (visitor, proxy) = open_behind_proxy(&shop).await;
    let form = token(&visitor).await;
    begin(&visitor, &shop).await;
    shop.wait_for_order().await;
    shop.kill9();
    error_page(&visitor, &proxy).await;
    shop.restart();
    shop.assert_books(0, 1).await;
    arrive(&visitor, proxy.addr()).await;
    assert_eq!(token(&visitor).await, form, "nothing came of it yet");
    shop.pay();
    buy(&visitor).await;
    assert_eq!(shop.calls(), (1, 0));
    shop.assert_sold(1).await;
}
