//! Story 6: the pages: the live page, the total of the form, widths, colour schemes, and the hosts that they contact.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use idem_harness::HANG_LIMIT;
use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::{By, Key};
use serde_json::{Value, from_value, json};

use super::shop::Shop;
use super::visitor::{FAST, arrive, back, buy, click, element, open};

/// A POST by a program.
fn post(shop: &Shop, path: &str, key: &str, content_type: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(shop.addr).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nAuthorization: Bearer ada\r\n\
         Idempotency-Key: \"{key}\"\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// One of each entry that an operator finds on the live page.
fn business(shop: &Shop) {
    let json = "application/json";
    let order = |key: &str, body: &str| post(shop, "/api/orders", key, json, body);
    assert!(order("a", r#"{"quantity":2}"#).starts_with("HTTP/1.1 201"));
    assert!(order("a", r#"{"quantity":2}"#).starts_with("HTTP/1.1 201"));
    assert!(order("a", r#"{"quantity":3}"#).starts_with("HTTP/1.1 422"));
    let declined = r#"{"quantity":1,"card":"tok_chargeDeclined"}"#;
    assert!(order("b", declined).starts_with("HTTP/1.1 402"));
    let down = r#"{"quantity":1,"card":"tok_down"}"#;
    assert!(order("c", down).starts_with("HTTP/1.1 503"));
    let form = "application/x-www-form-urlencoded";
    let charge = "amount=1250&currency=eur&source=tok_visa";
    assert!(post(shop, "/v1/charges", "d", form, charge).starts_with("HTTP/1.1 200"));
}

/// The value of a script in the page.
async fn look(browser: &Browser, script: &str) -> Value {
    let found = browser.execute(script, []).await.unwrap();
    found.json().clone()
}

async fn wait_for_counter(browser: &Browser, counter: &str, count: &str) {
    let css = format!("#counters [data-counter={counter}] b");
    browser.wait_for_text(&css, count).await;
}

/// A counter of the live page, and its value.
type Counter = (String, u64);

#[tokio::test]
async fn the_live_page_counts_by_itself_and_every_row_adds_up() {
    let (shop, visitor) = open(FAST).await;
    let (watcher, scriptless) = tokio::join!(Browser::start(), Browser::without_javascript());
    for watcher in [&watcher, &scriptless] {
        watcher.goto(shop.url("/live")).await.unwrap();
        wait_for_counter(watcher, "executed", "0").await;
    }
    buy(&visitor).await;
    business(&shop);
    // No page is reloaded by its visitor.
    for watcher in [&watcher, &scriptless] {
        wait_for_counter(watcher, "calls", "7").await;
        wait_for_counter(watcher, "orders", "2").await;
    }
    // At one moment, for it changes by itself.
    let all = "return [...document.querySelectorAll('#counters ul')].map(row => \
               [...row.children].map(it => [it.dataset.counter, +it.querySelector('b').textContent]));";
    let rows: Vec<Vec<Counter>> = from_value(look(&watcher, all).await).unwrap();
    for row in &rows {
        let [(name, total), parts @ ..] = &row[..] else {
            panic!("an empty row")
        };
        let sum: u64 = parts.iter().map(|(_, count)| count).sum();
        assert!(parts.is_empty() || *total == sum, "{name}: {row:?}");
    }
    let shown = rows.concat().into_iter();
    let shown = shown.map(|(name, count)| format!("{name} {count}"));
    assert_eq!(
        shown.collect::<Vec<_>>().join(", "),
        "calls 7, executed 4, replayed 1, refused 1, released 1, unknown 0, started 5, ended 5, \
         running 0, all-orders 4, orders 2, declined 1, open 1, charges 3, order-charges 2, \
         open-charges 0, api-charges 1, trouble 0"
    );
    // As a person reads them.
    let row = watcher.text("#counters ul:nth-of-type(4)").await.unwrap();
    let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "3 paid 2 of paid orders 0 of orders not paid yet 1 of the payment API";
    assert_eq!(row, expected);
    let events = watcher.find_all(By::Css("#events tr")).await.unwrap();
    assert_eq!(events.len(), 7);

    for width in [1_200, 700, 400] {
        watcher.set_window_rect(0, 0, width, 900).await.unwrap();
        watcher.goto(shop.url("/live")).await.unwrap();
        let lines = "return [...document.querySelectorAll('#events code')].map(it => it.getClientRects().length);";
        let lines = look(&watcher, lines).await;
        assert_eq!(
            lines,
            Value::from(vec![1; 7]),
            "a digest is on one line at a width of {width}"
        );
        let fits =
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth;";
        assert_eq!(look(&watcher, fits).await, true, "at a width of {width}");
    }
}

async fn fill_in(browser: &Browser, packets: &str) {
    let quantity = element(browser, "#quantity").await;
    quantity.send_keys(Key::Control + "a").await.unwrap();
    quantity.send_keys(packets).await.unwrap();
}

#[tokio::test]
async fn the_total_follows_the_quantity_where_there_are_scripts() {
    let (shop, visitor) = open(FAST).await;
    visitor.wait_for_text("#total", "12.50 €").await;
    for (packets, total) in [
        ("2", "25.00 €"),
        ("20", "250.00 €"),
        ("21", "–"),
        ("3", "37.50 €"),
    ] {
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
    shop.assert_sold(1).await;

    // It would stay as it was while the quantity changes.
    let scriptless = Browser::without_javascript().await;
    arrive(&scriptless, shop.addr).await;
    let total = element(&scriptless, "#sum").await;
    assert!(!total.is_displayed().await.unwrap());
    let page = scriptless.text("main").await.unwrap();
    assert!(page.contains("12.50 € a packet"), "{page}");
}

/// The least contrast that WCAG 2.2 requires, <https://www.w3.org/TR/WCAG22/#contrast-minimum>.
const CONTRAST: f64 = 4.5;

/// The luminance of the page, and each text of too little contrast with its background.
const LOOK: &str = "
    const least = arguments[0];
    const channels = colour => colour.match(/[\\d.]+/g).map(Number);
    const luminance = colour => {
      const [r, g, b] = channels(colour).map(it => it / 255)
        .map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = it => {
      for (; it; it = it.parentElement) {
        const colour = getComputedStyle(it).backgroundColor;
        if ((channels(colour)[3] ?? 1) > 0) return colour;
      }
      return 'rgb(255, 255, 255)';
    };
    const faint = [...document.body.querySelectorAll('*')].filter(it => {
      const has = [...it.childNodes].some(node => node.nodeType === 3 && node.data.trim()) || it.value !== undefined;
      if (!has || !it.checkVisibility()) return false;
      const [a, b] = [luminance(getComputedStyle(it).color), luminance(behind(it))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < least;
    });
    return [luminance(getComputedStyle(document.body).backgroundColor), faint.map(it => it.outerHTML)];
";

/// Waits until the page and its style sheet are loaded.
async fn styled(visitor: &Browser) {
    const LOADED: &str =
        "return document.readyState === 'complete' && document.styleSheets.length > 0";
    let loaded = async {
        loop {
            let loaded = visitor.execute(LOADED, vec![]).await.unwrap();
            if loaded.convert().unwrap() {
                break;
            }
        }
    };
    let loaded = tokio::time::timeout(HANG_LIMIT, loaded).await;
    loaded.expect("the page is loaded");
}

#[tokio::test]
async fn each_page_is_styled_and_readable_and_connects_only_to_the_shop() {
    let shop = Shop::start(FAST);
    let (visitor, log) = Browser::logging().await;
    for path in ["/nowhere", "/orders/12/13", "/%3Cb%3Ebold%3C/b%3E"] {
        visitor.goto(shop.url(path)).await.unwrap();
        assert_eq!(visitor.text("h1").await.as_deref(), Some("No such page"));
        assert_eq!(visitor.text("main code").await.as_deref(), Some(path));
        let bold = visitor.find(By::Css("main b")).await;
        assert!(bold.is_err(), "{path} is text");
        let width = "return getComputedStyle(document.body).maxWidth;";
        assert_ne!(
            look(&visitor, width).await,
            "none",
            "{path} has the shop's style"
        );
        let status = "return performance.getEntriesByType('navigation')[0].responseStatus;";
        assert_eq!(look(&visitor, status).await, 404, "{path}");
    }
    click(&visitor, "main a").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
    let order = format!("/orders/{}", buy(&visitor).await);
    business(&shop);
    for (scheme, luminance) in [("light", 0.8..=1.0), ("dark", 0.0..=0.05)] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        let cdp = visitor.cdp();
        let set = cdp.send_raw("Emulation.setEmulatedMedia", media);
        set.await.unwrap();
        for path in ["/", "/live", &order, "/docs/idempotency", "/nowhere"] {
            visitor.goto(shop.url(path)).await.unwrap();
            styled(&visitor).await;
            let look = visitor.execute(LOOK, vec![json!(CONTRAST)]).await.unwrap();
            let (page, faint): (f64, Vec<String>) = look.convert().unwrap();
            assert!(luminance.contains(&page), "{path}, {scheme}: {page}");
            assert!(faint.is_empty(), "{path}, {scheme}: {faint:#?}");
        }
    }
    let connected = visitor.connected(&log).await;
    assert_eq!(connected, BTreeSet::from([shop.addr.to_string()]));
}
