//! The service behind a socket, and a client that writes bytes: a library would correct the errors.

use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Answer, patiently};

/// A service on loopback. It takes no more connections once it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(service: Router) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serve = axum::serve(listener, service).with_graceful_shutdown(async {
            // Dropped, it is stopped as well.
            let _ = stopped.await;
        });
        let task = tokio::spawn(async move { serve.await.unwrap() });
        Self {
            addr,
            stop: Some(stop),
            task,
        }
    }

    /// Takes no more connections, and waits for the open ones.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        patiently("the server ends", &mut self.task).await.unwrap();
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(self.addr).await
    }

    pub(crate) async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect().await;
        client.write(request.as_ref()).await;
        client.answer().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request to `/orders` whose connection ends with it: these lines among its headers, and this body.
pub(crate) fn request(lines: impl AsRef<[u8]>, body: &str) -> Vec<u8> {
    let start = format!(
        "POST /orders HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    [start.as_bytes(), lines.as_ref(), b"\r\n", body.as_bytes()].concat()
}

pub(crate) fn with_key(key: impl AsRef<[u8]>, body: &str) -> Vec<u8> {
    let line = [b"Idempotency-Key: ", key.as_ref(), b"\r\n"].concat();
    request(line, body)
}

#[derive(Debug)]
pub(crate) struct Client(TcpStream);

pub(crate) async fn connect(addr: SocketAddr) -> Client {
    let stream = patiently("a connection", TcpStream::connect(addr)).await;
    Client(stream.expect("somebody listens"))
}

impl Client {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // A server that has read enough refuses the rest.
        let _ = patiently("bytes are written", self.0.write_all(bytes)).await;
    }

    /// All bytes before this are a part of it.
    pub(crate) async fn until(&mut self, part: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.windows(part.len()).any(|there| there == part) {
            let more = patiently("more bytes", self.0.read_buf(&mut bytes)).await;
            assert!(more.unwrap() > 0, "it ends: {}", bytes.escape_ascii());
        }
        bytes
    }

    /// All bytes until the end of the connection: they are one answer.
    pub(crate) async fn answer(self) -> Answer {
        let bytes = self.rest().await;
        let mut answers = answers(&bytes);
        assert_eq!(answers.len(), 1, "{}", bytes.escape_ascii());
        answers.remove(0)
    }

    /// All that comes until the end of the connection.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A connection that the server cut during our write has its answer all the same.
        let _ = patiently("the server ends it", self.0.read_to_end(&mut bytes)).await;
        bytes
    }
}

/// The answers of a connection, one after the other.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no end of headers: {}", bytes.escape_ascii()));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let status: StatusCode = status.parse().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
        }
        assert!(!headers.contains_key("transfer-encoding"), "{headers:?}");
        let length = headers.get("content-length");
        let length = length.map_or(0, |value| value.to_str().unwrap().parse().unwrap());
        let body = &bytes[end + 4..];
        assert!(
            body.len() >= length,
            "it broke off: {}",
            body.escape_ascii()
        );
        let (body, next) = body.split_at(length);
        let body = Bytes::copy_from_slice(body);
        answers.push(Answer {
            status,
            headers,
            body,
        });
        bytes = next;
    }
    answers
}
