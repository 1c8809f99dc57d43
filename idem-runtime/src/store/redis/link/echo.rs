//! A server of tests, which echoes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redis::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

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
