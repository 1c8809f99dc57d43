//! A network with injectable faults.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{HANG_LIMIT, Partition};

/// A proxy on loopback in front of a server, with switches for network faults.
///
/// Requests that were passed on reach the server even when their connection is cut afterwards.
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
    /// Requests that were passed on and whose reply was dropped together with the connection.
    pub dropped_replies: usize,
    /// Requests that were passed on twice, and whose copy the server has answered.
    pub doubled_requests: usize,
    pub passed_bytes: usize,
    /// Bytes of replies that were passed on.
    pub returned_bytes: usize,
    /// Bytes dropped by the black hole, and of forgotten connections, in both directions.
    pub swallowed_bytes: usize,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Pumps decide under the lock whether to pass their bytes on, so a switch takes effect at once.
#[derive(Debug, Default)]
struct State {
    links: HashMap<usize, Link>,
    stats: ProxyStats,
    /// Bytes whose occurrence in a request springs a trap.
    traps: Vec<(Vec<u8>, Trap)>,
    /// Bytes whose occurrence in a request doubles it.
    doubles: Vec<(Vec<u8>, ())>,
    /// What replies say, and what the client reads in its place, of the same length.
    announced: Vec<(Vec<u8>, Vec<u8>)>,
    black_hole: bool,
    /// The connection of the next request is to be forgotten.
    forget_next: bool,
    /// Peers on the other side of a partition.
    apart: HashMap<IpAddr, Partition>,
    delay: Duration,
    stopped: bool,
}

/// A fault of one request, which was passed on.
#[derive(Debug, Clone, Copy)]
enum Trap {
    DropReply,
    DelayReply(Duration),
}

/// One client's connection.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    peer: IpAddr,
    /// What the client sent last.
    last: Vec<u8>,
    /// Its next reply is to be dropped.
    doomed: bool,
    /// Its next reply is to be delayed.
    slow: Option<Duration>,
    /// Bytes of it are missing, so it cannot be used any more.
    torn: bool,
}

impl TcpProxy {
    /// Starts a proxy in front of `target`, which need not be up yet.
    pub fn start(target: SocketAddr) -> Self {
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
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || client.and_then(|client| shared.serve(client)));
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

    /// The URL of a Redis behind the proxy, for its default user without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Puts another server behind the proxy, as a name that is resolved anew; live connections stay with theirs.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target() = target;
    }

    /// Cuts all live connections; new ones are accepted. Returns the number of cut connections.
    pub fn cut(&self) -> usize {
        self.shared.cut(|_| true)
    }

    /// Cuts the connections whose last request contains `bytes`, such as one that the server is working on. Only data that
    /// arrived in one piece is searched.
    pub fn cut_those_with(&self, bytes: impl AsRef<[u8]>) -> usize {
        let bytes = bytes.as_ref();
        self.shared.cut(|link| contains(&link.last, bytes))
    }

    /// Drops all data in both directions, on live and on new connections, or stops doing so.
    ///
    /// A connection that lost bytes is cut when the hole closes, because its stream is corrupt.
    pub fn black_hole(&self, open: bool) {
        self.shared.lock().black_hole = open;
        if !open {
            self.shared.cut(|link| link.torn);
        }
    }

    /// Drops all data of the live connections, as a firewall that has forgotten them; new ones are served.
    pub fn forget_live(&self) {
        let mut state = self.shared.lock();
        state.links.values_mut().for_each(|link| link.torn = true);
    }

    /// Passes the next request on, and drops all data of its connection from then on; others are served.
    pub fn forget_next(&self) {
        self.shared.lock().forget_next = true;
    }

    /// Cuts or silences the links of connections from `peer`, present and future ones.
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

    /// Passes the next request on, then cuts its connection in place of the reply: the server has
    /// executed it, and the client cannot know. May be called several times in advance.
    pub fn drop_next_reply(&self) {
        self.drop_next_reply_to("");
    }

    /// Like [`TcpProxy::drop_next_reply`], for the next request that contains `bytes`, such as
    /// the name of a command or a key. Only data that arrives in one piece is searched.
    pub fn drop_next_reply_to(&self, bytes: impl AsRef<[u8]>) {
        self.lay(bytes.as_ref(), Trap::DropReply);
    }

    /// Delays the reply to the next request that contains `bytes` by at least `delay`. Only data that arrives in one
    /// piece is searched.
    pub fn delay_next_reply_to(&self, bytes: impl AsRef<[u8]>, delay: Duration) {
        self.lay(bytes.as_ref(), Trap::DelayReply(delay));
    }

    fn lay(&self, bytes: &[u8], trap: Trap) {
        self.shared.lock().traps.push((bytes.to_vec(), trap));
    }

    /// Passes the next request that contains `bytes` on twice: the copy comes on a connection of its own, whose reply is
    /// dropped. Only data that arrives in one piece is searched and copied.
    pub fn double_next(&self, bytes: impl AsRef<[u8]>) {
        let double = (bytes.as_ref().to_vec(), ());
        self.shared.lock().doubles.push(double);
    }

    /// Replaces a server's address in the replies of Kafka's brokers, which tell clients where to connect: the text of
    /// the IP address, and the port in four bytes. Only data that arrives in one piece is searched.
    pub fn announce(&self, server: SocketAddr, in_its_place: SocketAddr) {
        let of = |addr: SocketAddr| {
            let mut bytes = addr.ip().to_string().into_bytes();
            bytes.extend(u32::from(addr.port()).to_be_bytes());
            bytes
        };
        let announced = (of(server), of(in_its_place));
        self.shared.lock().announced.push(announced);
    }

    /// Delays every reply by at least `delay`; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    pub fn stats(&self) -> ProxyStats {
        self.shared.lock().now()
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
    fn serve(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
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
        self.pass_requests(id, client, server);
        Ok(())
    }

    fn pass_requests(
        self: &Arc<Self>,
        id: usize,
        mut client: TcpStream,
        mut server: Option<TcpStream>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let bytes = &buffer[..length];
            let (pass, double) = {
                let mut state = self.lock();
                let pass = state.passes(id, length);
                if pass {
                    state.stats.passed_bytes += length;
                    state.spring(id, bytes);
                }
                self.changed.notify_all();
                let double = pass && take_match(&mut state.doubles, bytes).is_some();
                (pass, double)
            };
            if double {
                let (shared, copy) = (Arc::clone(self), bytes.to_vec());
                thread::spawn(move || shared.pass_copy(&copy));
            }
            if let Some(server) = &mut server
                && pass
                && server.write_all(bytes).is_err()
            {
                break;
            }
        }
        match server {
            // The server answers the requests it has received, and then closes.
            Some(server) => drop(server.shutdown(Shutdown::Write)),
            None => self.forget(id),
        }
    }

    fn pass_copy(&self, request: &[u8]) -> io::Result<()> {
        let mut server = TcpStream::connect(*self.target())?;
        server.write_all(request)?;
        // The connection stays open: a server may drop a request whose client is gone.
        if server.read(&mut [0])? == 1 {
            self.lock().stats.doubled_requests += 1;
            self.changed.notify_all();
        }
        io::copy(&mut server, &mut io::sink())?;
        Ok(())
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
                pass.then_some(slow.unwrap_or(state.delay))
            };
            if let Some(delay) = delay {
                thread::sleep(delay);
                drop(client.write_all(&buffer[..length]));
            }
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

    /// Marks the connection if its request springs a trap, or if it is to be forgotten.
    fn spring(&mut self, id: usize, request: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        match take_match(&mut self.traps, request) {
            Some(Trap::DropReply) => link.doomed = true,
            Some(Trap::DelayReply(delay)) => link.slow = Some(delay),
            None => {}
        }
        link.torn |= mem::take(&mut self.forget_next);
        link.last = request.to_vec();
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

/// Removes the first pattern that occurs in the request, and returns what is to happen then.
fn take_match<T>(patterns: &mut Vec<(Vec<u8>, T)>, request: &[u8]) -> Option<T> {
    let found = patterns
        .iter()
        .position(|(pattern, _)| contains(request, pattern));
    found.map(|at| patterns.remove(at).1)
}

/// Whether the pattern occurs in a request; the empty one does in each.
fn contains(request: &[u8], pattern: &[u8]) -> bool {
    pattern.is_empty() || request.windows(pattern.len()).any(|bytes| bytes == pattern)
}
