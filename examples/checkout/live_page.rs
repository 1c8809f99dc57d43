//! `GET /live`: executed and replayed calls.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{Html, IntoResponse, Response};

use super::html::{Text, page};
use super::live::{KEPT, RESULTS, Seen};
use super::shop::Shop;

/// The page. It refreshes itself, with and without JavaScript. A real shop shows it to its operators only.
pub(crate) async fn live(State(shop): State<Shop>) -> Response {
    let rows = rows(&shop).await;
    let main = format!(include_str!("live.html"), rows = rows, kept = KEPT);
    let head = "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n\
                <script src=\"/live.js\" defer></script>\n";
    page(StatusCode::OK, "Live", head, &main)
}

/// The part of the page that changes.
pub(crate) async fn live_rows(State(shop): State<Shop>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Html(rows(&shop).await)).into_response()
}

async fn rows(shop: &Shop) -> String {
    let log = shop.live.look();
    let mut html = "<div id=\"counters\">\n".to_owned();
    let calls = RESULTS.map(|result| (result, result, log.count(result)));
    counters(&mut html, "Calls", &calls);
    let running = log.started.saturating_sub(log.ended);
    let forms = [("submitted", "submitted", log.submitted)];
    counters(&mut html, "Forms", &forms);
    let bodies = [
        ("started", "started", log.started),
        ("running", "running now", running),
    ];
    counters(&mut html, "Bodies", &bodies);
    if let Ok(sold) = shop.books.sold().await {
        let orders = [
            ("orders", "paid", sold.paid),
            ("declined", "declined", sold.declined),
            ("open", "not paid yet", sold.open),
            ("charges", "charges", sold.charges),
        ];
        counters(&mut html, "Orders", &orders);
    }
    let trouble = [("trouble", "for an operator", log.count("trouble"))];
    counters(&mut html, "Trouble", &trouble);
    html.push_str(
        "</div>\n<table>\n<thead><tr><th>UTC</th><th>Operation</th><th>Key</th><th>What</th><th>Details</th></tr></thead>\n\
         <tbody id=\"events\">\n",
    );
    for seen in &log.latest {
        row(&mut html, seen);
    }
    html.push_str("</tbody>\n</table>\n");
    html
}

/// Counters: the name, the label and the count of each.
fn counters(html: &mut String, title: &str, counters: &[(&str, &str, u64)]) {
    let _ = write!(html, "<h2>{title}</h2>\n<ul>\n");
    for (name, words, count) in counters {
        let _ = writeln!(
            html,
            "<li data-counter=\"{name}\" data-count=\"{count}\"><b>{count}</b> {words}</li>"
        );
    }
    html.push_str("</ul>\n");
}

fn row(html: &mut String, seen: &Seen) {
    let second = seen.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = second.as_secs() % 86_400;
    let _ = writeln!(
        html,
        "<tr data-what=\"{what}\" data-operation=\"{operation}\"><td>{:02}:{:02}:{:02}</td><td>{operation}</td>\
         <td><code>{}</code></td><td>{what}</td><td>{}</td></tr>",
        second / 3_600,
        second / 60 % 60,
        second % 60,
        Text(&seen.digest),
        Text(&seen.detail),
        what = seen.what,
        operation = Text(&seen.operation),
    );
}
