//! How the pages look: the total of the form, both colour schemes, an address where nothing is.

use std::io::{Read, Write};
use std::net::TcpStream;

use idem_harness::HANG_LIMIT;
use idem_tests_browser::Browser;
use idem_tests_browser::thirtyfour::{By, Key};
use serde_json::json;

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

/// Each row of counters of the live page, at one moment.
async fn rows(browser: &Browser) -> Vec<Vec<(String, u64)>> {
    let look = "return [...document.querySelectorAll('#counters ul')].map(row => \
                [...row.children].map(it => [it.dataset.counter, +it.querySelector('b').textContent]));";
    let rows = browser.execute(look, []).await.unwrap();
    rows.convert().unwrap()
}

#[tokio::test]
async fn every_row_of_the_live_page_adds_up() {
    let (shop, visitor) = open(FAST).await;
    buy(&visitor).await;
    business(&shop);
    visitor.goto(shop.url("/live")).await.unwrap();
    let rows = rows(&visitor).await;
    for row in &rows {
        let [(name, total), parts @ ..] = &row[..] else {
            panic!("an empty row")
        };
        let sum: u64 = parts.iter().map(|(_, count)| count).sum();
        assert!(parts.is_empty() || *total == sum, "{name}: {row:?}");
    }
    let expected: &[&[(&str, u64)]] = &[
        &[
            ("calls", 7),
            ("executed", 4),
            ("replayed", 1),
            ("refused", 1),
            ("released", 1),
            ("unknown", 0),
        ],
        &[("started", 5), ("ended", 5), ("running", 0)],
        &[
            ("all-orders", 4),
            ("orders", 2),
            ("declined", 1),
            ("open", 1),
        ],
        &[
            ("charges", 3),
            ("order-charges", 2),
            ("open-charges", 0),
            ("api-charges", 1),
        ],
        &[("trouble", 0)],
    ];
    let rows: Vec<Vec<_>> = rows
        .iter()
        .map(|row| row.iter().map(|(name, count)| (&**name, *count)).collect())
        .collect();
    assert_eq!(rows, expected);
    // As a person reads them.
    let row = visitor.text("#counters ul:nth-of-type(4)").await.unwrap();
    let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        row,
        "3 paid 2 of paid orders 0 of orders not paid yet 1 of the payment API"
    );
}

#[tokio::test]
async fn a_digest_is_on_one_line_of_the_live_page() {
    let shop = Shop::start(FAST);
    let browser = Browser::start().await;
    business(&shop);
    for width in [1_200, 700, 400] {
        browser.set_window_rect(0, 0, width, 900).await.unwrap();
        browser.goto(shop.url("/live")).await.unwrap();
        let look = "return [...document.querySelectorAll('#events code')].map(it => it.getClientRects().length);";
        let lines: Vec<u32> = browser.execute(look, []).await.unwrap().convert().unwrap();
        assert_eq!(lines, [1; 6], "at a width of {width}");
        let look =
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth;";
        let fits: bool = browser.execute(look, []).await.unwrap().convert().unwrap();
        assert!(fits, "at a width of {width}");
    }
}

async fn fill_in(browser: &Browser, packets: &str) {
    let quantity = element(browser, "#quantity").await;
    quantity.send_keys(Key::Control + "a").await.unwrap();
    quantity.send_keys(packets).await.unwrap();
}

#[tokio::test]
async fn the_total_follows_the_quantity() {
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
    assert_eq!(
        visitor.text("#order-amount").await.as_deref(),
        Some("37.50 €")
    );
    // The form as it was left, or with another quantity: the total is that of the quantity.
    back(&visitor).await;
    let packets = element(&visitor, "#quantity").await.prop("value").await;
    let packets: u32 = packets.unwrap().unwrap().parse().unwrap();
    let total = format!("{}.{:02} €", packets * 1_250 / 100, packets * 1_250 % 100);
    visitor.wait_for_text("#total", &total).await;
    shop.assert_sold(1).await;
}

/// It would stay as it was while the quantity changes.
#[tokio::test]
async fn without_javascript_there_is_no_total() {
    let shop = Shop::start(FAST);
    let visitor = Browser::without_javascript().await;
    arrive(&visitor, shop.addr).await;
    let total = element(&visitor, "#sum").await;
    assert!(!total.is_displayed().await.unwrap());
    let page = visitor.text("main").await.unwrap();
    assert!(page.contains("12.50 € a packet"), "{page}");
}

#[tokio::test]
async fn an_unknown_address_is_a_page_of_the_shop() {
    let (shop, visitor) = open(FAST).await;
    for path in ["/nowhere", "/orders/12/13", "/%3Cb%3Ebold%3C/b%3E"] {
        visitor.goto(shop.url(path)).await.unwrap();
        assert_eq!(visitor.text("h1").await.as_deref(), Some("No such page"));
        assert_eq!(visitor.text("main code").await.as_deref(), Some(path));
        assert!(
            visitor.find(By::Css("main b")).await.is_err(),
            "{path} is text"
        );
        let styled = "return getComputedStyle(document.body).maxWidth;";
        let width: String = visitor
            .execute(styled, [])
            .await
            .unwrap()
            .convert()
            .unwrap();
        assert_ne!(width, "none", "{path} has the shop's style");
        let status = "return performance.getEntriesByType('navigation')[0].responseStatus;";
        let status: u16 = visitor
            .execute(status, [])
            .await
            .unwrap()
            .convert()
            .unwrap();
        assert_eq!(status, 404, "{path}");
    }
    click(&visitor, "main a").await;
    visitor.wait_for_text("#buy", "Order and pay").await;
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
async fn the_pages_follow_the_colour_scheme_and_can_be_read_in_both() {
    let (shop, visitor) = open(FAST).await;
    let number = buy(&visitor).await;
    business(&shop);
    let order = format!("/orders/{number}");
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
}
