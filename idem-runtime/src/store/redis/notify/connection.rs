//! A connection that subscribes, in RESP2 or RESP3.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{Client, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::store::StoreError;
use crate::store::redis::address::place;
use crate::store::redis::failure::connect_error;
use crate::store::redis::limits::Limits;
use crate::store::redis::link::Target;

/// A connection that subscribes. Its driver runs on the runtime that opened it.
pub(super) struct SubscriberConnection {
    pub(super) commands: CommandSink,
    messages: MessageStream,
}

/// The sending half. A command is sent once its future has been polled.
#[derive(Clone)]
pub(super) enum CommandSink {
    /// RESP2, which every server and nearly every proxy speaks.
    Plain(PubSubSink),
    /// The channels of a cluster's shards, which the client library supports in RESP3 only.
    Sharded(MultiplexedConnection),
}

/// The receiving half.
enum MessageStream {
    Plain(PubSubStream),
    Sharded(UnboundedReceiver<PushInfo>),
}

impl SubscriberConnection {
    /// Connects. Without a password the server sends no reply, so that success does not prove that a server is there.
    pub(super) async fn open(
        target: &Target,
        sharded: bool,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let endpoint = target.endpoint(limits).await?;
        let open = |client: Client| async move {
            if sharded {
                Self::sharded(&client, limits).await
            } else {
                Self::plain(&client, limits).await
            }
        };
        let opened = endpoint.log_in(limits.connect, open).await?;
        opened.map_err(|error| connect_error(&place(&endpoint), error, true))
    }

    async fn plain(client: &Client, limits: Limits) -> RedisResult<Self> {
        let opened = timeout(limits.connect, client.get_async_pubsub()).await;
        let (sink, stream) = opened.map_err(|_| late())??.split();
        Ok(Self {
            commands: CommandSink::Plain(sink),
            messages: MessageStream::Plain(stream),
        })
    }

    async fn sharded(client: &Client, limits: Limits) -> RedisResult<Self> {
        let info = client.get_connection_info().clone();
        let redis = info.redis_settings().clone();
        let redis = redis.set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(redis))?;
        let (sender, receiver) = unbounded_channel();
        let config = limits.config().set_push_sender(sender);
        let opened = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self {
            commands: CommandSink::Sharded(opened.await?),
            messages: MessageStream::Sharded(receiver),
        })
    }

    /// Polls for the next message. `None` when the connection has ended, or can no longer be trusted.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<ChannelEvent>> {
        match &mut self.messages {
            MessageStream::Plain(stream) => {
                let message = ready!(Pin::new(stream).poll_next(cx));
                let name = |message: redis::Msg| message.get_channel_name().to_owned();
                Poll::Ready(message.map(name).map(ChannelEvent::Message))
            }
            MessageStream::Sharded(receiver) => loop {
                let Some(push) = ready!(receiver.poll_recv(cx)) else {
                    return Poll::Ready(None);
                };
                match push.kind {
                    PushKind::SMessage => {
                        return Poll::Ready(channel(push).map(ChannelEvent::Message));
                    }
                    PushKind::SUnsubscribe => {
                        return Poll::Ready(channel(push).map(ChannelEvent::Unsubscribed));
                    }
                    PushKind::Disconnection => return Poll::Ready(None),
                    _ => {}
                }
            },
        }
    }
}

/// A message about a channel.
pub(super) enum ChannelEvent {
    Message(String),
    /// The server no longer sends the channel's messages.
    Unsubscribed(String),
}

/// The channel of a message: its first part.
fn channel(push: PushInfo) -> Option<String> {
    match push.data.into_iter().next() {
        Some(Value::BulkString(name)) => String::from_utf8(name).ok(),
        _ => None,
    }
}

impl CommandSink {
    pub(super) async fn subscribe(self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Plain(mut sink) => sink.subscribe(channel).await,
            Self::Sharded(connection) => send(connection, &["SSUBSCRIBE", channel]).await,
        }
    }

    pub(super) async fn unsubscribe(self, channel: &str) -> RedisResult<()> {
        match self {
            Self::Plain(mut sink) => sink.unsubscribe(channel).await,
            Self::Sharded(connection) => send(connection, &["SUNSUBSCRIBE", channel]).await,
        }
    }

    /// Checks that the server replies. A refusal is a reply as well.
    pub(super) async fn ping(self) -> RedisResult<()> {
        match self {
            Self::Plain(mut sink) => sink.ping::<Value>().await.map(drop),
            Self::Sharded(connection) => send(connection, &["PING"]).await,
        }
    }
}

async fn send(mut connection: MultiplexedConnection, words: &[&str]) -> RedisResult<()> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    let reply = connection.send_packed_command(&command).await?;
    reply.extract_error().map(drop)
}

/// A time-out; the error of the client library for it is private.
fn late() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
