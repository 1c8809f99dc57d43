//! One request and its response, without a retry or a redirect.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use idem_harness::HANG_LIMIT;

/// A request under construction.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    head: String,
    body: String,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            head: format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"),
            body: String::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        for part in [name, ": ", value, "\r\n"] {
            self.head.push_str(part);
        }
        self
    }

    pub(crate) fn form(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self.header("Content-Type", "application/x-www-form-urlencoded")
    }

    pub(crate) fn json(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self.header("Content-Type", "application/json")
    }

    /// Sends it, and leaves the connection open.
    pub(crate) fn begin(&self, address: &str) -> TcpStream {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(HANG_LIMIT)).unwrap();
        let Self { head, body } = self;
        let length = body.len();
        let text = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        connection.write_all(text.as_bytes()).unwrap();
        connection
    }

    /// Sends it, and reads the response; `None` if the server dies.
    pub(crate) fn try_send(&self, address: &str) -> Option<Response> {
        let mut connection = self.begin(address);
        let mut text = Vec::new();
        // A dying server may reset the connection, or close it in good order.
        let read = connection.read_to_end(&mut text);
        if read.is_err() || text.is_empty() {
            return None;
        }
        Some(Response::parse(&String::from_utf8(text).unwrap()))
    }

    pub(crate) fn send(&self, address: &str) -> Response {
        let response = self.try_send(address);
        response.unwrap_or_else(|| panic!("no answer to {:?}", self.head.lines().next()))
    }
}

impl Response {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        });
        let response = Self {
            status: status.parse().unwrap(),
            headers: headers.collect(),
            body: body.to_owned(),
        };
        assert_eq!(
            response.header("transfer-encoding"),
            None,
            "a body of known length"
        );
        response
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn document(&self) -> serde_json::Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.body))
    }

    /// Code of a problem document, for programs.
    pub(crate) fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let document = self.document();
        assert_eq!(document["status"], self.status);
        document["code"].as_str().unwrap().to_owned()
    }

    /// The text of the body between the first occurrences of these two.
    pub(crate) fn between(&self, before: &str, after: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(before)?;
        Some(rest.split_once(after)?.0)
    }
}
