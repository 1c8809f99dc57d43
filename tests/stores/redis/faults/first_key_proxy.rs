//! A proxy in front of several servers that sends each command to the server of its first key, as proxies that know
//! nothing of scripts do.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use idem_harness::RespConn;

use crate::prelude::*;

/// A proxy in front of two servers, until the process ends.
pub(crate) struct FirstKeyProxy(SocketAddr);

impl FirstKeyProxy {
    pub(crate) fn start(servers: &[RedisServer; 2]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let servers = [0, 1].map(|at| servers[at].addr());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A connection ends with its client or its server.
                thread::spawn(move || forward(client, servers));
            }
        });
        Self(addr)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.0)
    }
}

fn forward(client: TcpStream, servers: [SocketAddr; 2]) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = RespConn::accepted(client);
    let mut servers = [RespConn::open(servers[0])?, RespConn::open(servers[1])?];
    loop {
        let Reply::Array(words) = client.read()? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let words: Vec<_> = words
            .iter()
            .map(|word| word.as_bytes().unwrap_or_default())
            .collect();
        let reply = servers[server_of(&words)].command(&words)?;
        client.reply(&reply)?;
    }
}

/// The server of the first key; the first one for a command without a key.
fn server_of(words: &[&[u8]]) -> usize {
    let first_key = match words[0] {
        b"EVAL" | b"EVALSHA" if words[2] != b"0" => words.get(3),
        b"EVAL" | b"EVALSHA" | b"HELLO" | b"INFO" | b"CLIENT" | b"CONFIG" => None,
        _ => words.get(1),
    };
    let last = first_key.and_then(|key| key.last());
    last.map_or(0, |byte| usize::from(byte % 2))
}
