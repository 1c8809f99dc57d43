//! A connection that subscribes to channels, in RESP2 or RESP3.

use std::future::poll_fn;
use std::task::{Context, Poll};

use redis::{RedisResult, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::connect::connect;
use super::endpoint::Endpoint;
use super::wire::ConnectionLimits;
use super::wire::{PendingReplies, Published, Wire, is_confirmation};
use crate::store::StoreError;

/// A connection, and the messages on its channels.
///
/// The messages end with the connection.
pub(crate) struct SubscriberConnection {
    wire: Wire,
    messages: UnboundedReceiver<Published>,
}

impl SubscriberConnection {
    /// Connects. Without a password the server sends no reply, so that success does not prove that a server is there.
    ///
    /// The outer error is that of the provider of credentials.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        limits: ConnectionLimits,
    ) -> Result<RedisResult<Self>, StoreError> {
        let (sender, messages) = unbounded_channel();
        let wire = connect(endpoint, limits, Some(&sender)).await?;
        Ok(wire.map(|wire| Self { wire, messages }))
    }

    /// Sends a command, whose reply [`check`] reads.
    pub(crate) fn begin(&self, command: &[&str; 2]) -> RedisResult<PendingReplies> {
        let [verb, channel] = command.map(str::as_bytes);
        self.wire
            .begin(&|words| words.command(&[&[verb, channel]]), None, false)
    }

    /// Checks that the server is there. Any reply but the confirmation of another command will do.
    pub(crate) fn begin_ping(&self) -> RedisResult<PendingReplies> {
        self.wire
            .begin(&|words| words.command(&[&[b"PING"]]), None, false)
    }

    /// Subscribes, and waits for the confirmation.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let command = ["SUBSCRIBE", channel];
        check(Some(&command), self.begin(&command)?.await?.first)
    }

    /// Waits until the server replies. A refusal is a reply as well.
    pub(crate) async fn ping(&self) -> RedisResult<()> {
        check(None, self.begin_ping()?.await?.first)
    }

    /// The next message; `None` when the connection has ended.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Published>> {
        self.messages.poll_recv(cx)
    }

    pub(crate) async fn message(&mut self) -> Option<Published> {
        poll_fn(|cx| self.poll_message(cx)).await
    }
}

/// Checks the reply to a subscription, its end, or a ping.
///
/// The server ends a subscription unasked when the slot of its key moves to another node. That looks like the reply to
/// the oldest command, so that no later reply on the connection can be trusted.
pub(crate) fn check(command: Option<&[&str; 2]>, reply: Value) -> RedisResult<()> {
    let reply = reply.extract_error()?;
    let confirmed = match &reply {
        Value::Array(parts) if is_confirmation(&reply) => match &parts[..] {
            [Value::BulkString(kind), Value::BulkString(channel), ..] => Some((kind, channel)),
            _ => None,
        },
        _ => None,
    };
    let agrees = match (command, confirmed) {
        (Some([verb, channel]), Some((kind, confirmed))) => {
            kind.eq_ignore_ascii_case(verb.as_bytes()) && confirmed == channel.as_bytes()
        }
        (None, None) => true,
        _ => false,
    };
    if agrees {
        return Ok(());
    }
    // It ends the connection, as its loss does.
    let kind = std::io::ErrorKind::ConnectionAborted;
    Err(std::io::Error::new(kind, "the server has ended a subscription").into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    impl SubscriberConnection {
        /// A connection, and the server's end of it.
        pub(crate) fn in_memory() -> (Self, DuplexStream) {
            let (here, server) = tokio::io::duplex(1 << 16);
            let (read, write) = tokio::io::split(here);
            let (sender, messages) = unbounded_channel();
            let limits = ConnectionLimits {
                connect: Duration::from_hours(1),
                response: Duration::from_hours(1),
                text_bytes: 1 << 20,
            };
            let wire = Wire::new(read, write, limits, Some(sender));
            (Self { wire, messages }, server)
        }
    }

    async fn replies(mut server: DuplexStream, replies: String) -> DuplexStream {
        assert_ne!(server.read(&mut [0; 1_024]).await.unwrap(), 0);
        server.write_all(replies.as_bytes()).await.unwrap();
        server
    }

    /// The confirmation of a subscription among messages, in both protocols.
    #[tokio::test]
    async fn messages_are_told_from_replies_in_both_protocols() {
        for kind in ["*", ">"] {
            let (mut connection, server) = SubscriberConnection::in_memory();
            let message = |of| format!("{kind}3\r\n$7\r\nmessage\r\n$1\r\n{of}\r\n$2\r\nhi\r\n");
            let said = format!(
                "{}{kind}3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n{}",
                message("b"),
                message("a"),
            );
            let (subscribed, server) =
                tokio::join!(connection.subscribe("a"), replies(server, said));
            subscribed.unwrap();
            for channel in ["b", "a"] {
                let message = connection.message().await.unwrap();
                assert_eq!(
                    (&*message.channel, &*message.payload),
                    (channel, &b"hi"[..])
                );
            }
            let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned();
            let (pong, server) = tokio::join!(connection.ping(), replies(server, pong));
            pong.unwrap();
            drop(server);
            assert!(connection.message().await.is_none());
        }
    }

    /// A slot has moved to another node, and took its subscriptions along.
    #[tokio::test]
    async fn a_subscription_that_ends_unasked_ends_the_connection() {
        for kind in ["*", ">"] {
            let ended = format!("{kind}3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n");
            let (connection, server) = SubscriberConnection::in_memory();
            let (ping, _server) = tokio::join!(connection.ping(), replies(server, ended.clone()));
            assert!(ping.unwrap_err().is_io_error());
            let (mut connection, mut server) = SubscriberConnection::in_memory();
            server.write_all(ended.as_bytes()).await.unwrap();
            assert!(connection.message().await.is_none());
        }
    }
}
