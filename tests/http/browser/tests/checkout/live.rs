//! The live page, and the hosts that the pages contact.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::{By, WebDriver};
use serde_json::Value;

use super::shop::Shop;
use super::visitor::{FAST, click, notice, order, pay_with, visitor};

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
    click(browser, "#buy").await;
    order(browser).await;
    browser.back().await.unwrap();
    browser.wait_for_text("#buy", "Order and pay").await;
    click(browser, "#buy").await;
    order(browser).await;
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
    click(&visitor, "#buy").await;
    order(&visitor).await;
    wait_for_counter(&watcher, "executed", "1").await;
    wait_for_counter(&watcher, "orders", "1").await;
}

/// By the browser's own log of its network traffic.
#[tokio::test]
async fn the_pages_connect_only_to_the_shop() {
    let shop = Shop::start(FAST);
    let mut log = PathBuf::new();
    let browser = Browser::start_with(|chromium| {
        log = chromium.profile().with_extension("net.json");
        chromium.arg(format!("--log-net-log={}", log.display()))
    });
    let browser = browser.await;
    for page in [
        "/",
        "/live",
        "/docs/idempotency",
        "/openapi.json",
        "/nowhere",
        "/",
    ] {
        browser.goto(shop.url(page)).await.unwrap();
    }
    click(&browser, "#buy").await;
    order(&browser).await;
    WebDriver::clone(&browser).quit().await.unwrap();
    let log = whole(&log).await;

    let kinds = log["constants"]["logEventTypes"].as_object().unwrap();
    let events = log["events"].as_array().unwrap();
    let kind = &kinds["TCP_CONNECT_ATTEMPT"];
    let connected: BTreeSet<_> = events
        .iter()
        .filter(|event| &event["type"] == kind)
        .filter_map(|event| event["params"]["address"].as_str())
        .collect();
    assert_eq!(connected, BTreeSet::from([&*shop.addr.to_string()]));
    for kind in [
        "HOST_RESOLVER_DNS_TASK",
        "HOST_RESOLVER_SYSTEM_TASK",
        "UDP_BYTES_SENT",
    ] {
        let kind_of_event = &kinds[kind];
        assert!(
            !events.iter().any(|event| &event["type"] == kind_of_event),
            "{kind}"
        );
    }
}

/// A file of JSON that a process is about to finish.
async fn whole(path: &Path) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = fs::read(path).unwrap_or_default();
        match serde_json::from_slice(&text) {
            Ok(value) => return value,
            Err(error) => assert!(
                Instant::now() < deadline,
                "not whole within 20 s: {error} in {} bytes",
                text.len()
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
