//! Faults of single requests, and the framing of requests.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is cut in place of an executed request's reply.
    DropReply,
    /// The reply comes later.
    DelayReply(Duration),
    /// The server gets a copy at once, by a connection without reply.
    Double,
    /// The client's connection is cut. The server gets the request later, on its own connection.
    DelayRequest(Duration),
    /// Both connections are closed when the server has got the request.
    Cut,
}

/// Decides on the fault of each request over HTTP.
pub(crate) type Chooser = Arc<dyn Fn(&[u8]) -> Option<Fault> + Send + Sync>;

/// Faults of the next requests with certain bytes in them.
#[derive(Debug, Default)]
pub(crate) struct Traps(Vec<(Vec<u8>, Fault)>);

impl Traps {
    pub(crate) fn lay(&mut self, bytes: &[u8], fault: Fault) {
        self.0.push((bytes.to_vec(), fault));
    }

    /// Removes the first trap of a request.
    pub(crate) fn spring(&mut self, request: &[u8]) -> Option<Fault> {
        let mut laid = self.0.iter();
        let at = laid.position(|(bytes, _)| contains(request, bytes));
        at.map(|at| self.0.remove(at).1)
    }
}

/// Whether bytes occur in a request; the empty ones do in each.
pub(crate) fn contains(request: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || request.windows(bytes.len()).any(|part| part == bytes)
}

/// What arrives in one piece; nothing at the end of the connection.
pub(crate) fn next_piece(client: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let piece = client.fill_buf()?.to_vec();
    client.consume(piece.len());
    Ok(piece)
}

/// A request of HTTP/1.1, in however many pieces it arrives. Its body has a `Content-Length`, or is none.
pub(crate) fn next_http_request(client: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let (mut request, mut length) = (Vec::new(), 0);
    while !request.ends_with(b"\r\n\r\n") {
        let mut line = String::new();
        if client.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        request.extend(line.bytes());
    }
    client.take(length).read_to_end(&mut request)?;
    Ok(request)
}
