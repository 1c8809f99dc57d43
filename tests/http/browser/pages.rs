//! Story 6: the scripts of the pages: the live page, and the total of the form.

use thirtyfour::Key;

use super::browser::Browser;
use super::shop::Shop;
use super::visitor::{arrive, back, buy, element, visitor};

async fn wait_for_counter(browser: &Browser, counter: &str, count: &str) {
    let css = format!("#counters [data-counter={counter}] b");
    browser.wait_for_text(&css, count).await;
}

async fn fill_in(browser: &Browser, packets: &str) {
    let quantity = element(browser, "#quantity").await;
    quantity.send_keys(Key::Control + "a").await.unwrap();
    quantity.send_keys(packets).await.unwrap();
}

#[tokio::test]
async fn pages_follow_by_themselves_where_there_are_scripts() {
    let shop = Shop::start();
    let visitor = visitor(&shop).await;
    let (watcher, scriptless) = tokio::join!(Browser::start(), Browser::without_javascript());
    for watcher in [&watcher, &scriptless] {
        watcher.goto(shop.url("/live")).await.unwrap();
        wait_for_counter(watcher, "executed", "0").await;
    }
    visitor.wait_for_text("#total", "12.50 €").await;
    for (packets, total) in [("20", "250.00 €"), ("21", "–"), ("3", "37.50 €")] {
        fill_in(&visitor, packets).await;
        visitor.wait_for_text("#total", total).await;
    }
    buy(&visitor).await;
    let amount = visitor.text("#order-amount").await;
    assert_eq!(amount.as_deref(), Some("37.50 €"));
    // The form as it was left, or with another quantity: the total is that of the quantity.
    back(&visitor).await;
    let packets = element(&visitor, "#quantity").await.prop("value").await;
    let packets: u32 = packets.unwrap().unwrap().parse().unwrap();
    let total = format!("{}.{:02} €", packets * 1_250 / 100, packets * 1_250 % 100);
    visitor.wait_for_text("#total", &total).await;
    // No page is reloaded by its visitor.
    for watcher in [&watcher, &scriptless] {
        wait_for_counter(watcher, "executed", "1").await;
        wait_for_counter(watcher, "orders", "1").await;
    }
    // Without a script the total would stay as it was while the quantity changes.
    arrive(&scriptless, shop.addr).await;
    let total = element(&scriptless, "#sum").await;
    assert!(!total.is_displayed().await.unwrap());
}
