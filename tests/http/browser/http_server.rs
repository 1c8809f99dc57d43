//! A server of pages that records its requests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use idem_harness::HANG_LIMIT;
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

/// A server on a loopback port, stopped when the value is dropped. One request per connection.
#[derive(Debug)]
pub struct HttpServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// A recorded request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
}

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    changed: Condvar,
}

impl HttpServer {
    /// Starts a server that sends the response of `answer`, which may take its time: each request has a
    /// thread of its own.
    pub fn start(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let addr = listener.local_addr().expect("a listener has an address");
        listener
            .set_nonblocking(true)
            .expect("a listener may be non-blocking");
        let (shared, answer) = (Arc::<Shared>::default(), Arc::new(answer));
        let recorder = Arc::clone(&shared);
        let handler = async move |method: Method, uri: Uri, headers: HeaderMap, body: String| {
            let request = Request {
                method: method.to_string(),
                path: uri.to_string(),
                headers,
                body,
            };
            recorder.lock().push(request.clone());
            recorder.changed.notify_all();
            let answer = Arc::clone(&answer);
            let response = spawn_blocking(move || answer(&request)).await;
            let mut response = response.expect("an answer does not panic");
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            response
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime starts");
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener);
            let listener = listener.expect("a runtime with a network");
            axum::serve(listener, Router::new().fallback(handler)).await
        });
        Self {
            addr,
            shared,
            runtime: Some(runtime),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of a page: `url("/")`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// The requests so far, whether the server has answered them or not.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().clone()
    }

    /// Waits until there are requests of this kind, and returns them.
    ///
    /// # Panics
    ///
    /// When there are fewer after the [limit](HANG_LIMIT).
    pub fn wait_for(&self, method: &str, path: &str, count: usize) -> Vec<Request> {
        let wanted = |requests: &[Request]| -> Vec<Request> {
            let all = requests.iter().cloned();
            all.filter(|request| request.method == method && request.path == path)
                .collect()
        };
        let changed = &self.shared.changed;
        let few = |requests: &mut Vec<Request>| wanted(requests).len() < count;
        let ended = changed.wait_timeout_while(self.shared.lock(), HANG_LIMIT, few);
        let (requests, _) = ended.unwrap_or_else(PoisonError::into_inner);
        let found = wanted(&requests);
        assert!(
            found.len() >= count,
            "{} of {count} requests {method} {path} within {HANG_LIMIT:?}",
            found.len()
        );
        found
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may drop it in a runtime of its own, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl Request {
    /// A header, where it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
