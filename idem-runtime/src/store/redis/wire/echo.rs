//! A server that echoes, and helpers of the tests of connections.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use redis::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::runtime::Runtime;

use super::Words;

/// Replies to each command with its last word, once it may. Records the commands.
pub(super) async fn server(
    stream: DuplexStream,
    received: Arc<Mutex<Vec<String>>>,
    may: Arc<AtomicBool>,
) {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    let mut line = String::new();
    while read.read_line(&mut line).await.unwrap() > 0 {
        let words: usize = line.trim().trim_start_matches('*').parse().unwrap();
        let mut command = Vec::new();
        for _ in 0..words {
            line.clear();
            read.read_line(&mut line).await.unwrap();
            let mut word = vec![0; line.trim()[1..].parse::<usize>().unwrap() + 2];
            read.read_exact(&mut word).await.unwrap();
            command.push(String::from_utf8(word).unwrap().trim_end().to_owned());
        }
        let last = command.last().unwrap().clone();
        received.lock().unwrap().push(command.join(" "));
        while !may.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let reply = format!("${}\r\n{last}\r\n", last.len());
        write.write_all(reply.as_bytes()).await.unwrap();
        line.clear();
    }
}

pub(super) fn said(word: &str) -> impl Fn(&mut Words<'_>) + Send + Sync {
    move |words| words.command(&[&[b"ECHO", word.as_bytes()]])
}

pub(super) fn bulk(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

pub(super) fn timed_runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

/// Lets every task run as far as it can.
pub(super) async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Polls once, whatever else the task has polled.
pub(super) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let once = std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    });
    tokio::task::unconstrained(once).await
}
