//! A network that loses, delays and doubles whole requests over HTTP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A fault of a request, or of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpFault {
    /// The server has replied, and the client's connection is closed in place of the reply.
    ReplyLost,
    /// The reply comes later.
    ReplyLate(Duration),
    /// The server gets the request twice at once, and the client the reply to one of them.
    RequestDoubled,
    /// The client's connection is closed, and the server gets the request later.
    RequestLate(Duration),
    /// Both connections are closed when the server has got the request.
    Cut,
}

/// A proxy on loopback in front of a server of HTTP/1.1, with faults of whole requests.
///
/// Unlike a [`TcpProxy`](crate::TcpProxy) it knows where a request ends, in however many pieces a client sends it. Each
/// request has a connection of its own. A request's body has a `Content-Length`, or is none.
#[derive(Debug)]
pub struct HttpProxy {
    addr: SocketAddr,
    stopped: Arc<AtomicBool>,
    acceptor: JoinHandle<()>,
    exchanges: Arc<Exchanges>,
}

#[derive(Debug, Default)]
struct Exchanges(Mutex<Vec<JoinHandle<io::Result<()>>>>);

impl Exchanges {
    fn spawn(&self, exchange: impl FnOnce() -> io::Result<()> + Send + 'static) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.push(thread::spawn(exchange));
    }

    fn next(&self) -> Option<JoinHandle<io::Result<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl HttpProxy {
    /// Starts a proxy. The function gets the bytes of each request, and decides on its fault.
    pub fn start(
        target: SocketAddr,
        fault: impl Fn(&[u8]) -> Option<HttpFault> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let (stopped, exchanges) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(Exchanges::default()),
        );
        let fault = Arc::new(fault);
        let acceptor = thread::spawn({
            let (stopped, exchanges) = (Arc::clone(&stopped), Arc::clone(&exchanges));
            move || {
                for client in listener.incoming() {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let (fault, others) = (Arc::clone(&fault), Arc::clone(&exchanges));
                    exchanges.spawn(move || serve(client?, target, &*fault, &others));
                }
            }
        });
        Self {
            addr,
            stopped,
            acceptor,
            exchanges,
        }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the proxy when the last request has reached the server, and was answered.
    pub fn finish(self) {
        self.stopped.store(true, Ordering::SeqCst);
        // The acceptor checks the switch on each new connection.
        drop(TcpStream::connect(self.addr));
        drop(self.acceptor.join());
        while let Some(exchange) = self.exchanges.next() {
            drop(exchange.join());
        }
    }
}

fn serve(
    mut client: TcpStream,
    target: SocketAddr,
    fault: &dyn Fn(&[u8]) -> Option<HttpFault>,
    others: &Exchanges,
) -> io::Result<()> {
    let request = read_request(&client)?;
    match fault(&request) {
        None => client.write_all(&exchange(target, &request)?),
        Some(HttpFault::ReplyLost) => exchange(target, &request).map(drop),
        Some(HttpFault::ReplyLate(by)) => {
            let reply = exchange(target, &request)?;
            thread::sleep(by);
            client.write_all(&reply)
        }
        Some(HttpFault::RequestDoubled) => {
            let copy = request.clone();
            others.spawn(move || exchange(target, &copy).map(drop));
            client.write_all(&exchange(target, &request)?)
        }
        Some(HttpFault::RequestLate(by)) => {
            client.shutdown(Shutdown::Both)?;
            thread::sleep(by);
            exchange(target, &request).map(drop)
        }
        Some(HttpFault::Cut) => {
            let mut server = TcpStream::connect(target)?;
            server.write_all(&request)
        }
    }
}

/// Reads a request, and asks the server to close the connection after its reply.
fn read_request(client: &TcpStream) -> io::Result<Vec<u8>> {
    let mut client = BufReader::new(client);
    let (mut request, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if client.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
        if !lower.starts_with("connection:") {
            request.extend(line.bytes());
        }
    }
    request.extend(b"connection: close\r\n\r\n");
    client.take(length).read_to_end(&mut request)?;
    Ok(request)
}

fn exchange(target: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(target)?;
    server.write_all(request)?;
    let mut reply = Vec::new();
    server.read_to_end(&mut reply)?;
    Ok(reply)
}
