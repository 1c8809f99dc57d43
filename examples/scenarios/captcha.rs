//! A captcha is sent to a phone once in 60 s, and a refusal says how many seconds remain.
//!
//! `cargo run --example captcha` sends 1,000 requests for 20 phones at once to Redis (`REDIS_URL`, or one of its own)
//! and prints what was sent. `--unprotected` shows the same without idem, and exits with 1.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Classify, Error, ErrorKind, idempotent};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

const PHONES: u32 = 20;
const REQUESTS: u32 = 1_000;

/// The messages that the gateway has sent.
static SENT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Serialize, Deserialize, Classify)]
enum CaptchaError {
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for CaptchaError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

// A second code within the minute is refused, not replayed: the code is in the first message.
#[idempotent(op = "captcha.send", key = phone, on_duplicate = reject, on_running = reject, ttl = "60s")]
async fn send(phone: u32) -> Result<(), CaptchaError> {
    SENT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let redis = Server::redis();
    let store = RedisStore::connect(redis.url()).await?;
    let engine = options.engine(store);
    let mut calls = JoinSet::new();
    for request in 0..REQUESTS {
        let engine = engine.clone();
        calls.spawn(async move { engine.scope(send(request % PHONES)).await });
    }
    let (mut sent, mut refused, mut other, mut longest) = (0, 0, 0, 0);
    for result in calls.join_all().await {
        match result {
            Ok(()) => sent += 1,
            Err(CaptchaError::Idempotency(error))
                if matches!(
                    error.kind(),
                    ErrorKind::Duplicate { .. } | ErrorKind::Running { .. }
                ) =>
            {
                refused += 1;
                longest = longest.max(error.retry_after().map_or(0, |time| time.as_secs()));
            }
            Err(CaptchaError::Idempotency(_)) => other += 1,
        }
    }
    let mut books = Books::new("captcha: 20 phones ask 50 times each");
    books
        .check(
            "messages of the gateway",
            SENT.load(Ordering::Relaxed),
            PHONES,
        )
        .check("successful answers", sent, PHONES)
        .check("refusals", refused, REQUESTS - PHONES)
        .check("other errors", other, 0)
        .note("longest pause that a refusal named, s", longest);
    Ok(books.close())
}
