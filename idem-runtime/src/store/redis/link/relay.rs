//! A connection that the client library makes, as a stream of bytes.
//!
//! For a client of the application with certificates of its own, which the client library does not give away: it alone
//! can connect with them.

use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::wire::{Frame, first_frame};
use super::words::word;
use crate::store::redis::limits::Limits;

/// Bytes in each direction that neither side has read.
const BUFFER: usize = 64 * 1_024;

/// Connects, and relays commands and replies on the calling runtime.
pub(super) async fn connect(client: &Client, limits: Limits) -> RedisResult<DuplexStream> {
    // The wire has the time limits of replies.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limits.connect))
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let connection = connection.await?;
    let (here, there) = duplex(BUFFER);
    tokio::spawn(relay(connection, there));
    Ok(here)
}

/// Sends complete commands as pipelines, one at a time, until either side ends.
async fn relay(mut connection: MultiplexedConnection, mut wire: DuplexStream) -> Option<()> {
    let (mut received, mut replies) = (Vec::new(), Vec::new());
    while wire.read_buf(&mut received).await.ok()? > 0 {
        let commands = take_commands(&mut received)?;
        if commands.is_empty() {
            continue;
        }
        let count = commands.len();
        let values = connection.send_packed_commands(&commands, 0, count);
        replies.clear();
        for value in values.await.ok()? {
            encode(&value, &mut replies)?;
        }
        wire.write_all(&replies).await.ok()?;
    }
    None
}

/// Takes the complete commands out of the bytes of a wire.
fn take_commands(received: &mut Vec<u8>) -> Option<Pipeline> {
    let (mut commands, mut at) = (Pipeline::new(), 0);
    while at < received.len() {
        match first_frame(&received[at..]).ok()? {
            Frame::Reply(Value::Array(words), length) => {
                at += length;
                let mut command = redis::Cmd::new();
                for word in words {
                    let Value::BulkString(word) = word else {
                        return None;
                    };
                    command.arg(word);
                }
                commands.add_command(command);
            }
            Frame::Partial => break,
            _ => return None,
        }
    }
    received.drain(..at);
    Some(commands)
}

/// Appends a reply as a server sends it; `None`: idem has no command with such a reply.
fn encode(value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Nil => out.extend(b"$-1\r\n"),
        Value::Okay => out.extend(b"+OK\r\n"),
        Value::Int(number) => line(out, ':', number),
        Value::SimpleString(said) => line(out, '+', said),
        Value::Boolean(is) => line(out, '#', if *is { 't' } else { 'f' }),
        Value::Double(number) => line(out, ',', number),
        Value::ServerError(error) => {
            let said = error.details().unwrap_or_default();
            line(out, '-', format_args!("{} {said}", error.code()));
        }
        Value::BulkString(bytes) => word(out, bytes),
        Value::VerbatimString { text, .. } => word(out, text.as_bytes()),
        Value::Array(values) | Value::Set(values) => {
            line(out, '*', values.len());
            values.iter().try_for_each(|value| encode(value, out))?;
        }
        Value::Map(pairs) => {
            line(out, '%', pairs.len());
            for (name, value) in pairs {
                encode(name, out)?;
                encode(value, out)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fn line(out: &mut Vec<u8>, kind: char, text: impl fmt::Display) {
    out.extend(format!("{kind}{text}\r\n").into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_encoded_as_the_server_sent_it() {
        let sent = b"*7\r\n$-1\r\n:-7\r\n+OK\r\n+QUEUED\r\n-WRONGTYPE Operation against a key\r\n$3\r\na\r\n\r\n\
                     %1\r\n+ip\r\n*1\r\n#t\r\n";
        let value = redis::parse_redis_value(sent).unwrap();
        let mut encoded = Vec::new();
        encode(&value, &mut encoded).unwrap();
        assert_eq!(
            encoded.escape_ascii().to_string(),
            sent.escape_ascii().to_string()
        );
    }

    #[test]
    fn commands_are_taken_once_they_are_complete() {
        let mut command = redis::cmd("SET");
        command.arg("name").arg(b"a\r\n\0");
        let bytes = command.get_packed_command().repeat(2);
        for cut in 0..bytes.len() {
            let mut received = bytes[..cut].to_vec();
            let before = take_commands(&mut received).unwrap();
            received.extend_from_slice(&bytes[cut..]);
            let after = take_commands(&mut received).unwrap();
            let taken = [before, after].map(|taken| taken.get_packed_pipeline());
            assert_eq!(
                (taken.concat(), received.len()),
                (bytes.clone(), 0),
                "{cut}"
            );
        }
        assert!(take_commands(&mut b"+OK\r\n".to_vec()).is_none());
    }
}
