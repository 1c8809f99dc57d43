//! Page frame, and escaping of text.

use std::fmt;
use std::time::Duration;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Response};

/// Text in a page, escaped.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(['&', '<', '>', '"', '\'']) {
            let (text, special) = match part.char_indices().next_back() {
                Some((at, special)) => (&part[..at], special),
                None => continue,
            };
            f.write_str(text)?;
            match special {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => write!(f, "{other}")?,
            }
        }
        Ok(())
    }
}

/// Cents, formatted for people.
#[derive(Clone, Copy, Debug)]
pub struct Euro(pub i64);

impl fmt::Display for Euro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} €", self.0 / 100, self.0 % 100)
    }
}

/// A duration for people, in whole minutes or else in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Spell(pub Duration);

impl fmt::Display for Spell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (count, unit) = match seconds % 60 {
            0 if seconds > 0 => (seconds / 60, "minute"),
            _ => (seconds, "second"),
        };
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} {unit}{plural}")
    }
}

/// A page with this title. `main` is markup: texts in it are [`Text`].
pub fn page(status: StatusCode, title: &str, head: &str, main: &str) -> Response {
    let title = Text(title);
    let html = format!(
        include_str!("page.html"),
        title = title,
        head = head,
        main = main
    );
    let headers = [
        // Not `no-store`, because then the back button would request the page again and get a form with a new token.
        (CACHE_CONTROL, "private, no-cache"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
        (HeaderName::from_static("referrer-policy"), "same-origin"),
    ];
    (status, headers, Html(html)).into_response()
}

/// A file of the example.
pub fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, content_type)], text).into_response()
}
