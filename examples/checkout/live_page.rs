//! `GET /live`: what was executed and what was replayed.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{Html, IntoResponse, Response};

use super::html::{Text, page};
use super::live::{KEPT, Seen, What};
use super::shop::Shop;

/// The page. It refreshes itself, with and without JavaScript. A real shop shows it to its operators only.
pub async fn live(State(shop): State<Shop>) -> Response {
    let rows = rows(&shop).await;
    let main = format!(
        "<p>What the engine has done since the shop was opened.</p>\n<div id=\"live\">\n{rows}</div>\n\
         <p id=\"words\">Executed: the work was done, and its answer is stored. Replayed: a repeat got that answer, \
         and nothing was done. Refused: it was not let in, such as another request with the same key. Released: the \
         work failed, and a repeat may try again. Unknown: nobody can tell whether the work was done. Trouble: \
         something for an operator to look at. The table has the last {KEPT}; a key is shown as the first characters of \
         its digest.</p>\n"
    );
    let head = "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n\
                <script src=\"/live.js\" defer></script>\n";
    page(StatusCode::OK, "Live", head, &main)
}

/// What changes in it.
pub async fn live_rows(State(shop): State<Shop>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Html(rows(&shop).await)).into_response()
}

async fn rows(shop: &Shop) -> String {
    let log = shop.live.look();
    let started = log.started;
    let mut html = format!(
        "<ul id=\"counters\">\n<li data-counter=\"started\" data-count=\"{started}\"><b>{started}</b> started</li>\n"
    );
    for what in What::ALL {
        let (word, count) = (what.word(), log.count(what));
        let _ = writeln!(
            html,
            "<li data-counter=\"{word}\" data-count=\"{count}\"><b>{count}</b> {word}</li>"
        );
    }
    if let Ok((orders, charges)) = shop.books.paid().await {
        let _ = writeln!(
            html,
            "<li data-counter=\"orders\" data-count=\"{orders}\"><b>{orders}</b> paid orders</li>\n\
             <li data-counter=\"charges\" data-count=\"{charges}\"><b>{charges}</b> charges</li>"
        );
    }
    html.push_str(
        "</ul>\n<table>\n<thead><tr><th>UTC</th><th>Operation</th><th>Key</th><th>What</th><th>Details</th></tr></thead>\n\
         <tbody id=\"events\">\n",
    );
    for seen in &log.latest {
        row(&mut html, seen);
    }
    html.push_str("</tbody>\n</table>\n");
    html
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
        what = seen.what.word(),
        operation = Text(&seen.operation),
    );
}
