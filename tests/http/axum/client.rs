//! A client that reports the responses that it received.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use idem_tests::shop::patiently;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A response, as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the body of {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Panics unless it is this problem document.
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        let document = self.json();
        assert_eq!(document["code"], code);
        assert_eq!(document["status"], status);
    }
}

/// One request on a connection of its own.
pub(crate) fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "shop.test")
}

/// A POST of JSON with a key.
pub(crate) fn post(path: &str, key: &str, body: &Value) -> Request<Full<Bytes>> {
    request(Method::POST, path)
        .header("idempotency-key", format!("\"{key}\""))
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))
        .unwrap()
}

pub(crate) async fn send(to: SocketAddr, request: Request<Full<Bytes>>) -> Reply {
    let (mut sender, line) = dial(to).await;
    let reply = async {
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        Reply {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    };
    let reply = patiently("the server answers", reply).await;
    line.abort();
    reply
}

/// A request whose client can hang up.
#[derive(Debug)]
pub(crate) struct Pending {
    line: JoinHandle<()>,
    answer: JoinHandle<()>,
}

impl Pending {
    pub(crate) async fn send(to: SocketAddr, request: Request<Full<Bytes>>) -> Self {
        let (mut sender, line) = dial(to).await;
        let answer = tokio::spawn(async move {
            let _ = sender.send_request(request).await;
        });
        Self { line, answer }
    }

    /// Closes the connection, without waiting for the answer.
    pub(crate) async fn hang_up(self) {
        assert!(!self.answer.is_finished(), "it was answered before");
        self.line.abort();
        let _ = self.line.await;
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

async fn dial(to: SocketAddr) -> (Sender, JoinHandle<()>) {
    let stream = TcpStream::connect(to).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let line = tokio::spawn(async move {
        let _ = connection.await;
    });
    (sender, line)
}
