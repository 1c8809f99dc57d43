//! A visitor's session: a random cookie.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HeaderValue, SET_COOKIE};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;

use super::random::random_text;

/// A visitor's session. Its text authenticates the visitor, so it is neither logged nor shown, and
/// has no `Debug`.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct Session(String);

impl Session {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn of(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(COOKIE).iter();
        let mut cookies = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        let text = cookies.find_map(|cookie| cookie.trim().strip_prefix("session="))?;
        let is_ours = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| Self(text.to_owned()))
    }
}

/// Gives every request a session, and a visitor without one a cookie.
///
/// `SameSite=Lax`: a form on another site that posts to this one comes without the cookie, and gets
/// none: a new one would replace the visitor's own. With HTTPS, a shop sets `Secure` as well.
pub(crate) async fn with_session(mut request: Request, next: Next) -> Response {
    let known = Session::of(request.headers());
    let site = request.headers().get("sec-fetch-site");
    let foreign = !request.method().is_safe() && site.is_some_and(|site| site == "cross-site");
    let new = known.is_none() && !foreign;
    let session = known.unwrap_or_else(|| Session(random_text(16)));
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    if new {
        let cookie = format!(
            "session={}; Path=/; HttpOnly; SameSite=Lax; Max-Age=86400",
            session.0
        );
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    response
}
