//! The half of a connection that is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Size up to which the empty buffer is kept.
const KEPT: usize = 1 << 20;

/// The half of a connection that is written, and the bytes for it.
///
/// One task at a time takes it out of the state and writes without the lock, because a write takes longer than all that is
/// done under the lock. If it panics, the connection has ended.
pub(super) struct Output {
    half: Box<dyn AsyncWrite + Send + Unpin>,
    /// Commands in flight, from `written` on not yet written.
    pub(super) bytes: Vec<u8>,
    written: usize,
    /// All that was written has been flushed: TLS keeps what the socket does not take.
    is_flushed: bool,
}

impl Output {
    pub(super) fn new(half: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self {
            half,
            bytes: Vec::new(),
            written: 0,
            is_flushed: true,
        }
    }

    /// Whether all bytes are written and flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.is_flushed
    }

    /// Writes as much as the socket takes.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.bytes.len() {
            let bytes = &self.bytes[self.written..];
            match Pin::new(&mut self.half).poll_write(cx, bytes) {
                Poll::Pending => {
                    // On a busy connection all bytes may never be written at once.
                    if self.written > self.bytes.len() / 2 {
                        self.bytes.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if !self.bytes.is_empty() {
            self.is_flushed = false;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.written = 0;
        }
        if !self.is_flushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.half).poll_flush(cx)
        {
            flushed?;
            self.is_flushed = true;
        }
        Ok(())
    }
}
