//! The live page, and the hosts that the pages contact.

use std::collections::BTreeSet;

use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::By;

use super::shop::Shop;
use super::visitor::{FAST, back, buy, click, notice, pay_with, visitor};

/// Each counter as the page shows it: at one moment, for it changes by itself.
async fn shown(browser: &Browser) -> Vec<(String, String)> {
    let look = "return [...document.querySelectorAll('#counters li')] \
                .map(it => [it.dataset.counter, it.querySelector('b').textContent]);";
    let counters = browser.execute(look, []).await.unwrap();
    counters.convert().unwrap()
}

async fn wait_for_counter(browser: &Browser, counter: &str, count: &str) {
    let css = format!("#counters [data-counter={counter}] b");
    browser.wait_for_text(&css, count).await;
}

/// Orders, goes back and orders again, and is declined once.
async fn shops(browser: &Browser) {
    buy(browser).await;
    back(browser).await;
    buy(browser).await;
    click(browser, "#again").await;
    browser.wait_for_text("#buy", "Order and pay").await;
    pay_with(browser, "tok_chargeDeclined").await;
    click(browser, "#buy").await;
    notice(browser, 402, "The card was declined").await;
}

#[tokio::test]
async fn the_live_page_counts_executions_and_replays() {
    let shop = Shop::start(FAST);
    let (watcher, visitor) = tokio::join!(Browser::start(), visitor(&shop));
    watcher.goto(shop.url("/live")).await.unwrap();
    wait_for_counter(&watcher, "executed", "0").await;
    shops(&visitor).await;
    // The page is not reloaded.
    wait_for_counter(&watcher, "executed", "2").await;
    let expected = [
        ("calls", "3"),
        ("executed", "2"),
        ("replayed", "1"),
        ("refused", "0"),
        ("released", "0"),
        ("unknown", "0"),
        ("started", "2"),
        ("ended", "2"),
        ("running", "0"),
        ("all-orders", "2"),
        ("orders", "1"),
        ("declined", "1"),
        ("open", "0"),
        ("charges", "1"),
        ("order-charges", "1"),
        ("open-charges", "0"),
        ("api-charges", "0"),
        ("trouble", "0"),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count.to_owned()));
    assert_eq!(shown(&watcher).await, expected);
    let events = watcher.find_all(By::Css("#events tr")).await.unwrap();
    assert_eq!(events.len(), 3);
    shop.assert_sold(1).await;
}

#[tokio::test]
async fn the_live_page_counts_without_javascript_too() {
    let shop = Shop::start(FAST);
    let (watcher, visitor) = tokio::join!(Browser::without_javascript(), visitor(&shop));
    watcher.goto(shop.url("/live")).await.unwrap();
    wait_for_counter(&watcher, "executed", "0").await;
    buy(&visitor).await;
    wait_for_counter(&watcher, "executed", "1").await;
    wait_for_counter(&watcher, "orders", "1").await;
}

#[tokio::test]
async fn the_pages_connect_only_to_the_shop() {
    let shop = Shop::start(FAST);
    let (browser, log) = Browser::logging().await;
    for page in ["/", "/live", "/docs/idempotency", "/nowhere", "/"] {
        browser.goto(shop.url(page)).await.unwrap();
    }
    buy(&browser).await;
    let connected = browser.connected(&log).await;
    assert_eq!(connected, BTreeSet::from([shop.addr.to_string()]));
}
