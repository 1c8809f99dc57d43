//! Which headers of a response are stored with it.

use ::http::header::CONNECTION;
use ::http::{HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to one response and one connection, or that are secrets of one client.
const NEVER: &[&str] = &[
    // Secrets of whoever asked first.
    "authentication-info",
    "authorization",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "x-access-token",
    "x-auth-token",
    "x-csrf-token",
    "x-xsrf-token",
    // Of the connection: RFC 9110, section 7.6.1.
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    // Of the request and the moment.
    "age",
    "date",
    "idempotent-replayed",
    "request-id",
    "server-timing",
    "traceparent",
    "traceresponse",
    "tracestate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-correlation-id",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
    // Made anew of the body.
    "content-length",
    "trailer",
];

/// What is left of a limit, in its many spellings.
const NEVER_PREFIXES: &[&str] = &["ratelimit", "x-ratelimit-", "x-rate-limit-"];

/// The name of a header in the service's own settings.
///
/// # Panics
///
/// If no header can have it: a setting that was mistyped would protect nothing.
pub(super) fn header_name(name: &str) -> HeaderName {
    let Ok(parsed) = name.parse() else {
        panic!("no header can have the name {name:?}; write it without colon and blanks");
    };
    parsed
}

/// Which headers of a response are stored with it.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredHeaders {
    never: Vec<HeaderName>,
}

impl StoredHeaders {
    /// Nor is this one, whatever the case of its letters.
    ///
    /// # Panics
    ///
    /// As [`header_name`].
    pub(super) fn never(&mut self, name: &str) {
        self.never.push(header_name(name));
    }

    /// What is stored of these, in order; one name may come several times.
    pub(super) fn of<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        headers.iter().filter(|(name, value)| {
            let text = name.as_str();
            let never = NEVER.contains(&text)
                || NEVER_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
                || self.never.contains(name)
                || value.is_sensitive()
                || is_of_connection(headers, text);
            !never
        })
    }
}

/// Whether `Connection` names this header.
fn is_of_connection(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(CONNECTION).iter().any(|line| {
        let mut named = line.as_bytes().split(|byte| *byte == b',');
        named.any(|one| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(headers: &[(&'static str, &'static str)], rules: &StoredHeaders) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        rules
            .of(&map)
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn every_listed_name_is_one_and_is_left_out() {
        for name in NEVER {
            assert_eq!(stored(&[(name, "1")], &StoredHeaders::default()), [""; 0]);
        }
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-remaining"] {
            assert_eq!(stored(&[(name, "1")], &StoredHeaders::default()), [""; 0]);
        }
    }

    #[test]
    #[should_panic(expected = "no header can have the name \"x-account:\"")]
    fn a_name_that_no_header_can_have_is_a_mistake() {
        StoredHeaders::default().never("x-account:");
    }

    #[test]
    fn the_others_stay_with_their_repeats() {
        let headers = [
            ("content-type", "text/plain"),
            ("link", "</a>; rel=next"),
            ("set-cookie", "session=1"),
            ("location", "/orders/7"),
            ("link", "</b>; rel=prev"),
        ];
        assert_eq!(
            stored(&headers, &StoredHeaders::default()),
            [
                "content-type: text/plain",
                "link: </a>; rel=next",
                "link: </b>; rel=prev",
                "location: /orders/7"
            ]
        );
    }

    #[test]
    fn what_connection_names_belongs_to_the_connection() {
        let headers = [
            ("connection", "close, X-Hop"),
            ("connection", "x-other"),
            ("x-hop", "1"),
            ("x-other", "2"),
            ("x-end", "3"),
        ];
        assert_eq!(stored(&headers, &StoredHeaders::default()), ["x-end: 3"]);
    }

    #[test]
    fn a_service_leaves_out_more() {
        let mut rules = StoredHeaders::default();
        rules.never("X-Debug");
        assert_eq!(
            stored(&[("x-debug", "1"), ("x-kept", "2")], &rules),
            ["x-kept: 2"]
        );
    }

    #[test]
    #[should_panic(expected = "no header can have the name \"not a name\"")]
    fn a_name_that_no_header_has_is_a_mistake() {
        StoredHeaders::default().never("not a name");
    }

    #[test]
    fn what_is_marked_as_sensitive_is_not_stored() {
        let mut map = HeaderMap::new();
        let mut secret = HeaderValue::from_static("s3cret");
        secret.set_sensitive(true);
        map.insert("x-link", secret);
        assert_eq!(StoredHeaders::default().of(&map).count(), 0);
    }
}
