//! A network with injectable faults.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::fault::{Chooser, Traps, contains, next_http_request, next_piece};
use crate::{Fault, HANG_LIMIT, Partition};

/// A proxy on loopback before a server, with switches for network faults.
///
/// Requests that were passed on reach the server even when their connection is cut afterwards. A request is what arrives
/// in one piece, or [a message of HTTP](Self::http).
#[derive(Debug)]
pub struct TcpProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Statistics of a [`TcpProxy`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyStats {
    pub connections: usize,
    /// Connections that are open now.
    pub live: usize,
    /// Forwarded requests whose reply was dropped together with the connection.
    pub dropped_replies: usize,
    /// Requests that their own connection forwards, without a reply yet.
    pub waiting_copies: usize,
    /// Such requests that have a reply.
    pub answered_copies: usize,
    pub passed_bytes: usize,
    /// Bytes of replies that were passed on.
    pub returned_bytes: usize,
    /// Bytes dropped in both directions by the black hole and forgotten connections.
    pub swallowed_bytes: usize,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Pumps decide under the lock whether to forward: switches act immediately.
#[derive(Debug, Default)]
struct State {
    links: HashMap<usize, Link>,
    stats: ProxyStats,
    traps: Traps,
    /// Texts of replies and their replacements of the same length.
    announced: Vec<(Vec<u8>, Vec<u8>)>,
    black_hole: bool,
    /// The connection of the next request is to be forgotten.
    forget_next: bool,
    /// Peers on the other side of a partition.
    apart: HashMap<IpAddr, Partition>,
    delay: Duration,
    stopped: bool,
}

/// One client's connection.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    peer: IpAddr,
    /// The client's last request.
    last: Vec<u8>,
    /// Its next reply is to be dropped.
    doomed: bool,
    /// Its next reply is to be delayed.
    slow: Option<Duration>,
    /// Bytes of it are missing, so it cannot be used any more.
    torn: bool,
}

impl TcpProxy {
    /// Starts a proxy before `target`, which need not be up yet.
    pub fn start(target: SocketAddr) -> Self {
        Self::listen(target, None)
    }

    /// Starts a proxy in front of a server of HTTP/1.1. The function gets each request, and decides on its fault.
    pub fn http(
        target: SocketAddr,
        fault: impl Fn(&[u8]) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        Self::listen(target, Some(Arc::new(fault)))
    }

    fn listen(target: SocketAddr, http: Option<Chooser>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming() {
                    if shared.lock().stopped {
                        return;
                    }
                    let (shared, http) = (Arc::clone(&shared), http.clone());
                    thread::spawn(move || {
                        client.and_then(|client| shared.serve(client, http.as_ref()))
                    });
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
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a Redis behind the proxy for its default user. It has no password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Puts another server behind the proxy, like a name that resolves anew; live connections stay with theirs.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target() = target;
    }

    /// Cuts all live connections; new ones are accepted. Returns the number of cut connections.
    pub fn cut(&self) -> usize {
        self.shared.cut(|_| true)
    }

    /// Cuts the connections whose last request contains `bytes`.
    pub fn cut_those_with(&self, bytes: impl AsRef<[u8]>) -> usize {
        let bytes = bytes.as_ref();
        self.shared.cut(|link| contains(&link.last, bytes))
    }

    /// Drops all data on live and new connections, or stops that.
    ///
    /// A connection that lost bytes is cut when the hole closes, because its stream is corrupt.
    pub fn black_hole(&self, open: bool) {
        self.shared.lock().black_hole = open;
        if !open {
            self.shared.cut(|link| link.torn);
        }
    }

    /// Drops all data of live connections, like a firewall that forgot them; new ones are served.
    pub fn forget_live(&self) {
        let mut state = self.shared.lock();
        state.links.values_mut().for_each(|link| link.torn = true);
    }

    /// Forwards the next request, and drops its connection's data from then on; others are served.
    pub fn forget_next(&self) {
        self.shared.lock().forget_next = true;
    }

    /// Cuts or silences connections from `peer`, present and future ones.
    pub fn separate(&self, peer: IpAddr, how: Partition) {
        self.shared.lock().apart.insert(peer, how);
        if how == Partition::Cut {
            self.shared.cut(|link| link.peer == peer);
        }
    }

    /// Ends what [`TcpProxy::separate`] began. A connection that lost bytes is cut.
    pub fn rejoin(&self) {
        self.shared.lock().apart.clear();
        self.shared.cut(|link| link.torn);
    }

    /// Forwards the next request, and cuts the connection before its reply: the server has executed it, and the client
    /// cannot know. May be called several times in advance.
    pub fn drop_next_reply(&self) {
        self.drop_next_reply_to("");
    }

    /// Like [`TcpProxy::drop_next_reply`], for the next request that contains `bytes`. These are the name of a command
    /// or a key.
    pub fn drop_next_reply_to(&self, bytes: impl AsRef<[u8]>) {
        self.lay(bytes, Fault::DropReply);
    }

    /// Delays the reply to the next request with `bytes` by `delay`.
    pub fn delay_next_reply_to(&self, bytes: impl AsRef<[u8]>, delay: Duration) {
        self.lay(bytes, Fault::DelayReply(delay));
    }

    fn lay(&self, bytes: impl AsRef<[u8]>, fault: Fault) {
        self.shared.lock().traps.lay(bytes.as_ref(), fault);
    }

    /// Replaces a server's address in the replies of Kafka's brokers: the text of the IP address, and the port in four
    /// bytes. Only data that arrives in one piece is searched.
    pub fn announce(&self, server: SocketAddr, in_its_place: SocketAddr) {
        let of = |addr: SocketAddr| {
            let mut bytes = addr.ip().to_string().into_bytes();
            bytes.extend(u32::from(addr.port()).to_be_bytes());
            bytes
        };
        let announced = (of(server), of(in_its_place));
        self.shared.lock().announced.push(announced);
    }

    /// Delays every reply by at least `delay`; zero ends that, for delayed ones too.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
        self.shared.changed.notify_all();
    }

    pub fn stats(&self) -> ProxyStats {
        self.shared.lock().now()
    }

    /// Ends the proxy without clients, after the replies to all copied requests.
    pub fn finish(self) -> ProxyStats {
        self.wait_until(|seen| seen.live == 0 && seen.waiting_copies == 0)
    }

    /// Waits until the statistics meet a condition: `wait_until(|seen| seen.swallowed_bytes > 0)`.
    pub fn wait_until(&self, mut seen: impl FnMut(ProxyStats) -> bool) -> ProxyStats {
        let state = self.shared.lock();
        let changed = &self.shared.changed;
        let (state, outcome) = changed
            .wait_timeout_while(state, HANG_LIMIT, |state| !seen(state.now()))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(
            !outcome.timed_out(),
            "not within {HANG_LIMIT:?}; the proxy saw {:?}",
            state.stats
        );
        state.now()
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.cut(|_| true);
        // The acceptor checks the switch on each new connection.
        drop(TcpStream::connect(self.addr));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, client: TcpStream, http: Option<&Chooser>) -> io::Result<()> {
        client.set_nodelay(true)?;
        let peer = client.peer_addr()?.ip();
        let hole = self.lock().swallows(peer);
        let server = if hole {
            None
        } else {
            let target = *self.target();
            let server = TcpStream::connect(target)?;
            server.set_nodelay(true)?;
            Some(server)
        };
        let replies = server.as_ref().map(TcpStream::try_clone).transpose()?;
        let id = {
            let mut state = self.lock();
            if state.stopped || state.apart.get(&peer) == Some(&Partition::Cut) {
                return Ok(());
            }
            let id = state.stats.connections;
            state.stats.connections += 1;
            let link = Link {
                client: client.try_clone()?,
                peer,
                last: Vec::new(),
                doomed: false,
                slow: None,
                torn: hole,
            };
            state.links.insert(id, link);
            self.changed.notify_all();
            id
        };
        if let Some(replies) = replies {
            let client = client.try_clone()?;
            let shared = Arc::clone(self);
            thread::spawn(move || {
                shared.pass_replies(id, replies, client);
                shared.forget(id);
            });
        }
        self.pass_requests(id, client, server, http);
        Ok(())
    }

    fn pass_requests(
        self: &Arc<Self>,
        id: usize,
        client: TcpStream,
        mut server: Option<TcpStream>,
        http: Option<&Chooser>,
    ) {
        let mut client = BufReader::with_capacity(64 * 1024, client);
        let mut next = || match http {
            Some(_) => next_http_request(&mut client),
            None => next_piece(&mut client),
        };
        while let Ok(request) = next()
            && !request.is_empty()
        {
            let chosen = http.and_then(|fault| fault(&request));
            let (passes, fault) = self.lock().admit(id, &request, chosen);
            self.changed.notify_all();
            if !passes {
                continue;
            }
            match fault {
                Some(Fault::Double) => self.pass_copy(request.clone(), Duration::ZERO),
                Some(Fault::DelayRequest(by)) => {
                    self.pass_copy(request, by);
                    self.forget(id);
                    break;
                }
                _ => {}
            }
            if let Some(server) = &mut server
                && server.write_all(&request).is_err()
            {
                break;
            }
            if fault == Some(Fault::Cut) {
                self.forget(id);
            }
        }
        match server {
            // The server answers the requests it has received, and then closes.
            Some(server) => drop(server.shutdown(Shutdown::Write)),
            None => self.forget(id),
        }
    }

    /// Forwards a request later on its own connection, and drops the reply.
    fn pass_copy(self: &Arc<Self>, request: Vec<u8>, later: Duration) {
        self.lock().stats.waiting_copies += 1;
        let shared = Arc::clone(self);
        thread::spawn(move || {
            thread::sleep(later);
            let answered = shared.answered_copy(&request);
            {
                let stats = &mut shared.lock().stats;
                stats.waiting_copies -= 1;
                stats.answered_copies += usize::from(answered.is_ok());
            }
            shared.changed.notify_all();
            // The connection stays open: a server may drop a request whose client is gone.
            io::copy(&mut answered?, &mut io::sink())
        });
    }

    fn answered_copy(&self, request: &[u8]) -> io::Result<TcpStream> {
        let mut server = TcpStream::connect(*self.target())?;
        server.write_all(request)?;
        server.read_exact(&mut [0])?;
        Ok(server)
    }

    fn pass_replies(&self, id: usize, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = vec![0; 64 * 1024];
        // Read to the end even when the client is gone: closing a socket with unread bytes in it
        // resets the connection, and the server would lose requests that it has not read yet.
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            let delay = {
                let mut state = self.lock();
                if state.links.get(&id).is_some_and(|link| link.doomed) {
                    state.stats.dropped_replies += 1;
                    state.cut(|&link, _| link == id);
                }
                let pass = state.passes(id, length);
                if pass {
                    state.stats.returned_bytes += length;
                    state.announce(&mut buffer[..length]);
                }
                self.changed.notify_all();
                let link = state.links.get_mut(&id);
                let slow = link.and_then(|link| link.slow.take());
                pass.then_some(slow.ok_or(state.delay))
            };
            if let Some(delay) = delay {
                match delay {
                    Ok(delay) => thread::sleep(delay),
                    Err(delay) => self.wait_while_delayed(delay),
                }
                drop(client.write_all(&buffer[..length]));
            }
        }
    }

    fn wait_while_delayed(&self, delay: Duration) {
        if !delay.is_zero() {
            let is_delayed = |state: &mut State| !state.delay.is_zero();
            let woken = self
                .changed
                .wait_timeout_while(self.lock(), delay, is_delayed);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn forget(&self, id: usize) {
        self.cut_where(|&link, _| link == id);
    }

    fn cut(&self, wanted: impl Fn(&Link) -> bool) -> usize {
        self.cut_where(|_, link| wanted(link))
    }

    fn cut_where(&self, wanted: impl Fn(&usize, &Link) -> bool) -> usize {
        let count = self.lock().cut(wanted);
        self.changed.notify_all();
        count
    }

    fn target(&self) -> MutexGuard<'_, SocketAddr> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether bytes of a connection are to be passed on.
    fn passes(&mut self, id: usize, length: usize) -> bool {
        let Some(link) = self.links.get_mut(&id) else {
            return false;
        };
        let apart = self.apart.get(&link.peer);
        if self.black_hole || apart == Some(&Partition::Silent) {
            link.torn = true;
        }
        if link.torn {
            self.stats.swallowed_bytes += length;
        }
        !link.torn
    }

    fn swallows(&self, peer: IpAddr) -> bool {
        self.black_hole || self.apart.get(&peer) == Some(&Partition::Silent)
    }

    /// Whether a request passes, and its fault.
    fn admit(&mut self, id: usize, request: &[u8], chosen: Option<Fault>) -> (bool, Option<Fault>) {
        if !self.passes(id, request.len()) {
            return (false, None);
        }
        self.stats.passed_bytes += request.len();
        let Some(link) = self.links.get_mut(&id) else {
            return (false, None);
        };
        let fault = self.traps.spring(request).or(chosen);
        match fault {
            Some(Fault::DropReply) => link.doomed = true,
            Some(Fault::DelayReply(by)) => link.slow = Some(by),
            _ => {}
        }
        link.torn |= mem::take(&mut self.forget_next);
        link.last = request.to_vec();
        (true, fault)
    }

    fn announce(&self, reply: &mut [u8]) {
        for (server, in_its_place) in &self.announced {
            for at in 0..reply.len().saturating_sub(server.len() - 1) {
                if reply[at..].starts_with(server) {
                    reply[at..at + server.len()].copy_from_slice(in_its_place);
                }
            }
        }
    }

    fn cut(&mut self, wanted: impl Fn(&usize, &Link) -> bool) -> usize {
        let cut = self.links.extract_if(|id, link| wanted(id, link));
        // Only the client's side: the pump of the requests may be in the middle of one, and
        // closes after passing that on.
        cut.map(|(_, link)| drop(link.client.shutdown(Shutdown::Both)))
            .count()
    }

    fn now(&self) -> ProxyStats {
        ProxyStats {
            live: self.links.len(),
            ..self.stats
        }
    }
}
