//! Selection of the response headers that are stored.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

use ::http::header::CONNECTION;
use ::http::{HeaderMap, HeaderName, HeaderValue};

/// The default list of stored headers.
const STORED: [&str; 3] = [
    // Describe the body: RFC 9110, sections 8 and 14.4; RFC 6266; RFC 9530; RFC 7240.
    "content-digest content-disposition content-encoding content-language content-location content-range content-type \
     preference-applied repr-digest",
    // Guide the client's next request: RFC 9110, sections 8.8 and 10.2; RFC 8288; RFC 5789.
    "accept-patch accept-post allow etag last-modified link location retry-after stripe-should-retry",
    // Restrict the use of the response. Without them a replay would be laxer than the first response: RFC 9111; W3C
    // CSP; Fetch.
    "cache-control content-security-policy cross-origin-embedder-policy cross-origin-opener-policy \
     cross-origin-resource-policy expires permissions-policy referrer-policy vary x-content-type-options x-frame-options",
];

/// Headers of one response or one connection, and secrets of one client.
const NEVER: [&str; 4] = [
    // Secrets of the first client.
    "authentication-info authorization cookie dpop dpop-nonce ocp-apim-subscription-key proxy-authenticate \
     proxy-authentication-info proxy-authorization set-cookie set-cookie2 www-authenticate x-amzn-oidc-accesstoken \
     x-amzn-oidc-data x-auth x-functions-key x-jwt x-jwt-assertion x-token x-vault-token",
    // Of the connection: RFC 9110, section 7.6.1.
    "connection keep-alive proxy-connection te transfer-encoding upgrade",
    // Of one request or moment.
    "age date endpoint-load-metrics grpc-server-stats grpc-tags grpc-trace idempotent-replayed request-id server-timing traceparent traceresponse tracestate x-amzn-requestid \
     x-amzn-trace-id x-b3-parentspanid x-b3-sampled x-b3-spanid x-b3-traceid x-correlation-id x-request-id \
     x-response-time x-runtime x-trace-id",
    // Recomputed from the body.
    "content-length trailer",
];

/// Rate limits in their many spellings, and CORS headers of one origin.
const NEVER_PREFIXES: [&str; 4] = [
    "access-control-",
    "ratelimit",
    "x-ratelimit-",
    "x-rate-limit-",
];

/// Names of secrets of one client, alone and after a prefix.
///
/// `access-token`, `x-access-token`, `x-shopify-access-token`. A cursor (`x-continuation-token`) is none.
const SECRETS: [&str; 1] = [
    "access-token api-key apikey auth-key auth-token authorization-token csrf-token id-token password refresh-token \
     secret security-token session session-id session-token xsrf-token",
];

fn names(lists: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    lists.iter().flat_map(|list| list.split(' '))
}

/// Whether a header of this name is never stored, whatever the settings.
fn is_never(name: &str) -> bool {
    static LISTED: LazyLock<HashSet<&str>> = LazyLock::new(|| names(&NEVER).collect());
    static ENDINGS: LazyLock<Vec<&str>> = LazyLock::new(|| names(&SECRETS).collect());
    // The metadata of gRPC whose values are bytes.
    let name = name.strip_suffix("-bin").unwrap_or(name);
    let is_secret = |secret: &&str| {
        let prefix = name.strip_suffix(*secret);
        prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
    };
    LISTED.contains(name)
        || NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || ENDINGS.iter().any(is_secret)
}

/// Parses a header's name; panics if a setting is mistyped.
pub(super) fn header_name(name: &str) -> HeaderName {
    let Ok(parsed) = name.parse() else {
        panic!("no header can have the name {name:?}; write it without colon and blanks");
    };
    parsed
}

/// The media type of a `Content-Type`, without its parameters.
pub(super) fn media_type(content_type: &HeaderValue) -> &[u8] {
    let mut parts = content_type.as_bytes().split(|byte| *byte == b';');
    parts.next().unwrap_or_default().trim_ascii()
}

/// Selection of the response headers that are stored.
#[derive(Clone, Debug)]
pub(super) struct StoredHeaders {
    list: List,
    /// The list is the service's own.
    is_own: bool,
    /// Exceptions from the list.
    never: Vec<HeaderName>,
}

/// The list of stored names.
#[derive(Clone, Debug)]
enum List {
    /// All, because the handler has named each of them.
    All,
    Only(Vec<Cow<'static, str>>),
}

impl Default for StoredHeaders {
    fn default() -> Self {
        Self {
            list: List::Only(names(&STORED).map(Cow::Borrowed).collect()),
            is_own: false,
            never: Vec::new(),
        }
    }
}

impl fmt::Display for StoredHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut usual = 0;
        if !self.is_own {
            parts.push("the usual");
            usual = names(&STORED).count();
        }
        match &self.list {
            List::All => parts.push("all"),
            List::Only(list) => parts.extend(list.iter().skip(usual).map(|name| &**name)),
        }
        f.write_str(&parts.join(", "))?;
        for name in &self.never {
            write!(f, ", not {name}")?;
        }
        Ok(())
    }
}

impl StoredHeaders {
    /// The selection for a response whose handler names each header explicitly.
    pub(super) const fn of_author() -> Self {
        Self {
            list: List::All,
            is_own: false,
            never: Vec::new(),
        }
    }

    /// Clears the list; [`store`](Self::store) adds to it from then on.
    pub(super) fn only(&mut self) {
        self.list = List::Only(Vec::new());
        self.is_own = true;
    }

    /// Selects all headers, because the handler has named each of them.
    ///
    /// Of a list of the service's own, its names and these ones.
    #[cfg(feature = "tonic")]
    pub(super) fn all_or_own_and(&mut self, names: impl IntoIterator<Item = &'static str>) {
        if !self.is_own {
            self.list = List::All;
        }
        for name in names {
            self.store(name);
        }
    }

    /// Adds a header to the list, case-insensitively.
    ///
    /// Panics for a name that is never stored.
    pub(super) fn store(&mut self, name: &str) {
        let name = header_name(name);
        assert!(
            !is_never(name.as_str()),
            "the header `{name}` is never stored: it is a secret of one client, or belongs to one request, origin or \
             connection; leave it off the list"
        );
        if let List::Only(list) = &mut self.list {
            list.push(Cow::Owned(name.as_str().to_owned()));
        }
    }

    /// Excludes a header, case-insensitively.
    pub(super) fn never(&mut self, name: &str) {
        self.never.push(header_name(name));
    }

    /// The stored headers in order; a name may occur several times.
    pub(super) fn of<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        let of_connection = named_by_connection(headers);
        headers
            .iter()
            .filter(move |(name, value)| self.stores(name, of_connection) && !value.is_sensitive())
    }

    /// Removes the headers that would not have been stored.
    pub(super) fn retain(&self, headers: &mut HeaderMap) {
        let of_connection = named_by_connection(headers);
        let names = headers.keys();
        let names = names.filter(|name| !self.stores(name, of_connection));
        let names: Vec<_> = names.cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Whether the header is stored. `of_connection`: the headers, if `Connection` names some.
    fn stores(&self, name: &HeaderName, of_connection: Option<&HeaderMap>) -> bool {
        let text = name.as_str();
        let is_listed = match &self.list {
            List::All => !is_never(text),
            // None that is never stored is on a list.
            List::Only(list) => list.iter().any(|listed| listed == text),
        };
        is_listed
            && !self.never.contains(name)
            && !of_connection.is_some_and(|headers| is_of_connection(headers, text))
    }
}

/// The headers, if there is a `Connection` among them.
fn named_by_connection(headers: &HeaderMap) -> Option<&HeaderMap> {
    headers.contains_key(CONNECTION).then_some(headers)
}

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
    fn what_is_never_stored_is_left_out_whoever_names_it() {
        let spelled = "ratelimit ratelimit-policy x-ratelimit-remaining access-control-allow-origin \
            access-control-expose-headers access-token-bin authorization-bin grpc-trace-bin x-api-key x-goog-api-key x-shopify-access-token x-amz-security-token \
            x-session-token x-csrf-token";
        for name in names(&NEVER)
            .chain(names(&SECRETS))
            .chain(spelled.split(' '))
        {
            for rules in [StoredHeaders::default(), StoredHeaders::of_author()] {
                assert_eq!(stored(&[(name, "1")], &rules), [""; 0]);
            }
            let listed = std::panic::catch_unwind(|| StoredHeaders::default().store(name));
            let text = *listed.unwrap_err().downcast::<String>().unwrap();
            assert!(
                text.contains(&format!("`{name}` is never stored")),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_stored_by_default_is_spelled_as_headers_are() {
        for name in names(&STORED) {
            assert!(!is_never(name), "{name}");
            assert_eq!(header_name(name).as_str(), name);
            let kept = stored(&[(name, "1")], &StoredHeaders::default());
            assert_eq!(kept, [format!("{name}: 1")]);
        }
    }

    #[test]
    fn a_header_is_stored_once_it_is_listed() {
        for name in [
            "x-order-id",
            "server",
            "x-continuation-token",
            "x-secretary",
        ] {
            let (of_name, shown) = ([(name, "1")], [format!("{name}: 1")]);
            let mut rules = StoredHeaders::default();
            assert_eq!(stored(&of_name, &rules), [""; 0], "{name}");
            rules.store(&name.to_uppercase());
            assert_eq!(stored(&of_name, &rules), shown);
            // In addition to the others.
            assert_eq!(stored(&[("etag", "7")], &rules), ["etag: 7"]);
            rules.never(&name.to_uppercase());
            assert_eq!(stored(&of_name, &rules), [""; 0], "{name}");
            rules.only();
            assert_eq!(stored(&[("etag", "7")], &rules), [""; 0]);
            assert_eq!(stored(&of_name, &StoredHeaders::of_author()), shown);
        }
    }

    #[test]
    fn what_would_not_have_been_stored_is_not_read() {
        let rules = StoredHeaders::default();
        let mut map = HeaderMap::new();
        for (name, value) in [
            ("set-cookie", "session=1"),
            ("set-cookie", "session=2"),
            ("connection", "etag"),
            ("etag", "7"),
            ("link", "</a>"),
            ("link", "</b>"),
            ("x-own", "1"),
        ] {
            map.append(name, HeaderValue::from_static(value));
        }
        rules.retain(&mut map);
        let left: Vec<_> = map.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(left, ["link", "link"]);
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
        assert_eq!(stored(&headers, &StoredHeaders::of_author()), ["x-end: 3"]);
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
        assert_eq!(StoredHeaders::of_author().of(&map).count(), 0);
    }
}
