//! A request of the server under test.

use std::fmt;
use std::str::FromStr;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Place of a request's number in a path, body or payment.
pub(super) const NUMBER: &str = "{number}";

/// A request of the server under test: its method, and templates of its path and body.
///
/// Each `{number}` in them is replaced by a number; the same number is the same request, and another one another request. A
/// number is used in one run only: it grows from the time of the run in milliseconds, times 1,000.
///
/// ```
/// use idem_conformance::http::Operation;
///
/// let order = Operation::post("/orders").json(r#"{"item": "tea", "quantity": {number}}"#);
/// let parsed: Operation = r#"POST /orders {"item": "tea", "quantity": {number}}"#.parse()?;
/// # let _ = (order, parsed);
/// # Ok::<(), idem_conformance::http::InvalidOperation>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operation {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Operation {
    /// A request without a body; the path begins with `/`, and may have a query.
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: String::new(),
        }
    }

    /// A `POST` without a body.
    #[must_use]
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Sets a body of JSON and its content type.
    ///
    /// Tests of equal bodies need an object that has two members, an integer and an array of two different values,
    /// at any depth.
    #[must_use]
    pub fn json(self, body: impl Into<String>) -> Self {
        self.body(HeaderValue::from_static("application/json"), body)
    }

    /// Sets a body of another content type.
    #[must_use]
    pub fn body(mut self, content_type: HeaderValue, body: impl Into<String>) -> Self {
        self.body = body.into();
        self.header(CONTENT_TYPE, content_type)
    }

    /// Sets a header of each of these requests.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn has_number(&self) -> bool {
        self.path.contains(NUMBER) || self.body.contains(NUMBER)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A text other than a method, a blank and an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOperation(String);

impl fmt::Display for InvalidOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a method and a path, such as `POST /orders`",
            self.0
        )
    }
}

impl std::error::Error for InvalidOperation {}

/// A method, a path and optionally a JSON body, separated by blanks.
impl FromStr for Operation {
    type Err = InvalidOperation;

    fn from_str(text: &str) -> Result<Self, InvalidOperation> {
        let mut parts = text.splitn(3, ' ');
        let method = parts.next().and_then(|method| method.parse().ok());
        let path = parts.next().filter(|path| path.starts_with('/'));
        let (Some(method), Some(path)) = (method, path) else {
            return Err(InvalidOperation(text.to_owned()));
        };
        let operation = Self::new(method, path);
        Ok(match parts.next() {
            Some(body) => operation.json(body),
            None => operation,
        })
    }
}
