//! A relay that reads commands: it routes each by its first key, or logs its client out before it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use idem_harness::RespConn;

use crate::prelude::*;

/// A relay in front of some servers, until the process ends.
///
/// Like proxies that know nothing of scripts, it sends each command to the server of its first key.
pub(crate) struct Relay {
    addr: SocketAddr,
    expired: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) fn start(servers: &[&RedisServer]) -> Self {
        let servers: Vec<_> = servers.iter().map(|server| server.addr()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let expired = Arc::new(AtomicUsize::new(0));
        let relay = Arc::clone(&expired);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (servers, expired) = (servers.clone(), Arc::clone(&relay));
                // A connection ends with its client or its server.
                thread::spawn(move || forward(client, &servers, &expired));
            }
        });
        Self { addr, expired }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Logs each connection out before its next command, as expired tokens do.
    pub(crate) fn expire(&self) {
        self.expired.fetch_add(1, Ordering::SeqCst);
    }
}

fn forward(client: TcpStream, servers: &[SocketAddr], all: &AtomicUsize) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = RespConn::accepted(client);
    let servers = servers.iter().map(|server| RespConn::open(*server));
    let mut servers = servers.collect::<io::Result<Vec<_>>>()?;
    let mut expired = all.load(Ordering::SeqCst);
    loop {
        let Reply::Array(words) = client.read()? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if all.load(Ordering::SeqCst) > expired {
            expired = all.load(Ordering::SeqCst);
            for server in &mut servers {
                server.command(&["RESET"])?;
            }
        }
        let words = words.iter().map(|word| word.as_bytes().unwrap_or_default());
        let words: Vec<_> = words.collect();
        let at = usize::from(last_byte(&words)) % servers.len();
        client.reply(&servers[at].command(&words)?)?;
    }
}

/// The last byte of the first key; 0 for a command without a key.
fn last_byte(words: &[&[u8]]) -> u8 {
    let first_key = match words[0] {
        b"EVAL" | b"EVALSHA" if words[2] != b"0" => words.get(3),
        b"EVAL" | b"EVALSHA" | b"HELLO" | b"INFO" | b"CLIENT" | b"CONFIG" => None,
        _ => words.get(1),
    };
    first_key.and_then(|key| key.last()).map_or(0, |byte| *byte)
}
