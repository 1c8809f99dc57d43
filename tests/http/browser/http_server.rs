//! A server of pages that records its requests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a loopback port, stopped when the value is dropped. One request per connection.
#[derive(Debug)]
pub struct HttpServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// A recorded request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// In their order, the names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
}

/// A response to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    stopped: bool,
}

impl HttpServer {
    /// Starts a server that sends the response of `answer`, which may take its time: each connection has a
    /// thread of its own.
    pub fn start(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::<Shared>::default();
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            let answer = Arc::new(answer);
            move || {
                for client in listener.incoming() {
                    if shared.lock().stopped {
                        return;
                    }
                    let (shared, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                    // A client that breaks off, or has opened a connection in advance, is none of
                    // the test's business.
                    thread::spawn(move || client.and_then(|c| shared.serve(c, &*answer)));
                }
            }
        });
        Self {
            addr,
            shared,
            acceptor: Some(acceptor),
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
        self.shared.lock().requests.clone()
    }

    /// Waits until there are requests of this kind, and returns them.
    ///
    /// # Panics
    ///
    /// When there are fewer after 20 s.
    pub fn wait_for(&self, method: &str, path: &str, count: usize) -> Vec<Request> {
        let wanted = |state: &State| -> Vec<_> {
            let all = state.requests.iter();
            all.filter(|request| request.method == method && request.path == path)
                .cloned()
                .collect()
        };
        let changed = &self.shared.changed;
        let (state, _) = changed
            .wait_timeout_while(self.shared.lock(), PATIENCE, |state| {
                wanted(state).len() < count
            })
            .unwrap_or_else(PoisonError::into_inner);
        let found = wanted(&state);
        assert!(
            found.len() >= count,
            "{} of {count} requests {method} {path} within {PATIENCE:?}",
            found.len()
        );
        found
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        // The acceptor checks the switch at the next connection.
        drop(TcpStream::connect(self.addr));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

impl Request {
    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|(header, value)| (header == name).then_some(&**value))
    }

    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let line = line(from)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err(io::Error::other("no request"));
        };
        let mut request = Self {
            method,
            path,
            ..Self::default()
        };
        loop {
            let header = self::line(from)?;
            let Some((name, value)) = header.split_once(':') else {
                break;
            };
            let value = value.trim().to_owned();
            request.headers.push((name.to_ascii_lowercase(), value));
        }
        let length = request.header("content-length").unwrap_or("0");
        let length = length.parse().map_err(io::Error::other)?;
        from.take(length).read_to_string(&mut request.body)?;
        Ok(request)
    }
}

impl Response {
    /// A page.
    #[must_use]
    pub fn html(body: impl Into<String>) -> Self {
        let kind = ("Content-Type", "text/html; charset=utf-8".to_owned());
        Self {
            status: 200,
            headers: vec![kind],
            body: body.into(),
        }
    }

    /// Data.
    #[must_use]
    pub fn json(body: impl Into<String>) -> Self {
        let kind = ("Content-Type", "application/json".to_owned());
        Self {
            status: 200,
            headers: vec![kind],
            body: body.into(),
        }
    }

    /// Sends a browser that has posted something to a page.
    #[must_use]
    pub fn see_other(path: &str) -> Self {
        Self {
            status: 303,
            headers: vec![("Location", path.to_owned())],
            body: String::new(),
        }
    }

    /// With another status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        // In one piece, so that a proxy sees the reply as one.
        let mut reply = Vec::new();
        write!(reply, "HTTP/1.1 {} -\r\n", self.status)?;
        for (name, value) in &self.headers {
            write!(reply, "{name}: {value}\r\n")?;
        }
        let length = self.body.len();
        write!(
            reply,
            "Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        reply.extend_from_slice(self.body.as_bytes());
        to.write_all(&reply)
    }
}

impl Shared {
    fn serve(
        &self,
        mut client: TcpStream,
        answer: &(impl Fn(&Request) -> Response + ?Sized),
    ) -> io::Result<()> {
        let request = Request::read(&mut BufReader::new(client.try_clone()?))?;
        self.lock().requests.push(request.clone());
        self.changed.notify_all();
        answer(&request).write(&mut client)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    line.truncate(line.trim_end().len());
    Ok(line)
}
