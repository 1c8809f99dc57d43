//! What people do to a page, done by a real browser.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use idem_harness::{HANG_LIMIT, TcpProxy};
use idem_tests_browser::axum::http::StatusCode;
use idem_tests_browser::axum::response::{Html, IntoResponse as _, Redirect, Response};
use idem_tests_browser::thirtyfour::By;
use idem_tests_browser::{Browser, HttpServer, Request};

const FORM: &str = r#"<!doctype html><title>Shop</title>
<p id="script">off</p>
<script>document.getElementById("script").textContent = "on";</script>
<noscript><p id="noscript">no script</p></noscript>
<form method="post" action="/orders">
<input id="name" name="name"><button id="buy">Buy</button>
</form>"#;

fn shop(request: &Request) -> Response {
    match (&*request.method, &*request.path) {
        ("GET", "/") => ([("set-cookie", "visitor=7")], Html(FORM)).into_response(),
        ("GET", "/link") => Html("<p id=link>1</p>").into_response(),
        ("GET", "/orders/1") => Html("<p id=order>ordered</p>").into_response(),
        ("POST", "/orders") => Redirect::to("/orders/1").into_response(),
        ("POST", "/unredirected") => Html("<p id=order>answered</p>").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn posts(server: &HttpServer) -> Vec<Request> {
    let mut all = server.requests();
    all.retain(|request| request.method == "POST");
    all
}

async fn buy(browser: &Browser) {
    let button = browser.find(By::Id("buy")).await.expect("a button");
    button.click().await.expect("a click");
}

#[tokio::test]
async fn it_types_and_clicks_and_sends_a_form_once() {
    let server = HttpServer::start(shop);
    let browser = Browser::start().await;
    browser.goto(server.url("/")).await.unwrap();
    assert_eq!(browser.title().await.unwrap(), "Shop");
    let name = browser.find(By::Id("name")).await.unwrap();
    name.send_keys("Ada & Co").await.unwrap();
    buy(&browser).await;

    browser.wait_for_text("#order", "ordered").await;
    assert_eq!(posts(&server).len(), 1);
    assert_eq!(posts(&server)[0].body, "name=Ada+%26+Co");
    assert_eq!(browser.current_url().await.unwrap().path(), "/orders/1");
}

#[tokio::test]
async fn a_reload_repeats_the_request_unless_it_was_redirected() {
    let server = HttpServer::start(shop);
    let browser = Browser::start().await;
    browser.goto(server.url("/")).await.unwrap();
    buy(&browser).await;
    browser.wait_for_text("#order", "ordered").await;
    browser.refresh().await.unwrap();
    server.wait_for("GET", "/orders/1", 2);
    assert_eq!(posts(&server).len(), 1);

    browser.back().await.unwrap();
    browser.wait_for_text("#script", "on").await;
    let elsewhere = "document.forms[0].action = '/unredirected'";
    browser.execute(elsewhere, []).await.unwrap();
    buy(&browser).await;
    browser.wait_for_text("#order", "answered").await;
    browser.refresh().await.unwrap();
    server.wait_for("POST", "/unredirected", 2);
}

#[tokio::test]
async fn the_back_button_leads_to_a_form_that_can_be_sent_again() {
    let server = HttpServer::start(shop);
    let browser = Browser::start().await;
    browser.goto(server.url("/")).await.unwrap();
    for count in 1..=2 {
        buy(&browser).await;
        browser.wait_for_text("#order", "ordered").await;
        server.wait_for("POST", "/orders", count);
        browser.back().await.unwrap();
        browser.wait_for_text("#buy", "Buy").await;
    }
}

#[tokio::test]
async fn a_second_click_before_the_answer_sends_again() {
    // The first order is answered when the second has come.
    let orders = Arc::new((Mutex::new(0), Condvar::new()));
    let server = HttpServer::start(move |request| {
        if request.method == "POST" {
            let (count, changed) = &*orders;
            *count.lock().unwrap() += 1;
            changed.notify_all();
            let count = count.lock().unwrap();
            drop(changed.wait_timeout_while(count, HANG_LIMIT, |count| *count < 2));
        }
        shop(request)
    });
    let browser = Browser::start().await;
    browser.goto(server.url("/")).await.unwrap();
    browser.click_twice("#buy", Duration::from_secs(1)).await;
    browser.wait_for_text("#order", "ordered").await;
    assert_eq!(posts(&server).len(), 2);
}

#[tokio::test]
async fn on_a_slow_network_the_answer_comes_late() {
    let server = HttpServer::start(shop);
    let proxy = TcpProxy::start(server.addr());
    let browser = Browser::start().await;
    let url = format!("http://{}/", proxy.addr());
    browser.goto(url).await.unwrap();
    let delay = Duration::from_millis(500);
    proxy.delay(delay);
    let begun = Instant::now();
    buy(&browser).await;
    browser.wait_for_text("#order", "ordered").await;
    // The answer of the form, and the page that it leads to.
    assert!(begun.elapsed() >= 2 * delay, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn two_tabs_are_one_visitor_and_two_browsers_are_two() {
    let server = HttpServer::start(shop);
    let browser = Browser::start().await;
    browser.goto(server.url("/")).await.unwrap();
    let first = browser.window().await.unwrap();
    let second = browser.new_tab().await.unwrap();
    browser.switch_to_window(second).await.unwrap();
    browser.goto(server.url("/link")).await.unwrap();
    assert_eq!(browser.text("#link").await.as_deref(), Some("1"));
    browser.switch_to_window(first).await.unwrap();
    assert_eq!(browser.text("#script").await.as_deref(), Some("on"));
    let link = server.wait_for("GET", "/link", 1);
    assert_eq!(link[0].header("cookie"), Some("visitor=7"));

    let other = Browser::start().await;
    other.goto(server.url("/link")).await.unwrap();
    assert_eq!(server.wait_for("GET", "/link", 2)[1].header("cookie"), None);
}

#[tokio::test]
async fn without_javascript_no_script_of_a_page_runs_and_its_forms_work() {
    let server = HttpServer::start(shop);
    let with = Browser::start().await;
    with.goto(server.url("/")).await.unwrap();
    assert_eq!(with.text("#script").await.as_deref(), Some("on"));
    assert_eq!(with.text("#noscript").await, None);

    let without = Browser::without_javascript().await;
    without.goto(server.url("/")).await.unwrap();
    assert_eq!(without.text("#script").await.as_deref(), Some("off"));
    assert_eq!(
        without.text("#noscript").await.as_deref(),
        Some("no script")
    );
    buy(&without).await;
    without.wait_for_text("#order", "ordered").await;
    assert_eq!(posts(&server).len(), 1);
}

#[tokio::test]
async fn the_browser_connects_only_to_loopback() {
    let server = HttpServer::start(shop);
    let (browser, log) = Browser::logging().await;
    browser.goto(server.url("/")).await.unwrap();
    let connected = browser.connected(&log).await;
    assert_eq!(connected, BTreeSet::from([server.addr().to_string()]));
}
