//! The other side, in the test's process: it counts the effects of each step.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) process: usize,
    addr: SocketAddr,
}

impl Ledger {
    pub(crate) fn new(process: usize, addr: SocketAddr) -> Self {
        Self { process, addr }
    }

    /// An effect of a step. Returns its number among those of this step.
    pub(crate) async fn effect(&self, key: &str, step: &str) -> io::Result<u64> {
        self.ask(&format!("{} {key} {step}\n", self.process)).await
    }

    /// The number of effects of a step.
    pub(crate) async fn count(&self, key: &str, step: &str) -> io::Result<u64> {
        self.ask(&format!("? {key} {step}\n")).await
    }

    async fn ask(&self, request: &str) -> io::Result<u64> {
        let mut ledger = BufReader::new(TcpStream::connect(self.addr).await?);
        ledger.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        ledger.read_line(&mut answer).await?;
        answer.trim().parse().map_err(io::Error::other)
    }
}
