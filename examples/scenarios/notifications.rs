//! A message is sent once in spite of repeats and gateway faults. A captcha is sent once in 60 s.
//!
//! `cargo run --example notifications` sends 200 text messages and 100 mails, each for four callers at once, with its
//! records in Redis (`REDIS_URL`, or one of its own). A text message has no number: the same text to the same phone is
//! the same message for an hour. A mail has a business number, which is the key for a day. A gateway that refuses the
//! connection has sent nothing, and the call is repeated. After a time-out only the gateway knows: the next call asks
//! it for the message (`reconcile`), and sends it only if it is not there. A captcha is asked for 1,000 times for 20
//! phones: a second one within the minute is refused, and the refusal says how many seconds remain.
//! `--unprotected` shows the same without idem, and exits with 1.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser as _;
use idem_examples::scenario::{Books, Options, Server, pause, repeat};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Classify, Context, Error, ErrorKind, Reconciled, context, idempotent};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

const TEXTS: u32 = 200;
const MAILS: u32 = 100;
const CALLERS: u32 = 4;
const CAPTCHAS: u32 = 20;
const REQUESTS: u32 = 1_000;

#[derive(Debug, Serialize, Deserialize, Classify)]
enum SendError {
    /// No connection: nothing was sent, and the next call sends.
    #[class(system)]
    GatewayDown,
    /// The gateway may have the message. No other one is sent before that is known.
    #[class(unknown)]
    TimedOut,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

// Without a key: the arguments are the key.
#[idempotent(op = "sms.send", ttl = "1h", reconcile = find_text)]
async fn send_text(phone: u32, text: String) -> Result<usize, SendError> {
    let id = context().derive_key("gateway");
    gateway::send(id, format!("text to {phone}: {text}")).await
}

async fn find_text(_: &u32, _: &String, cx: &Context) -> Result<Reconciled<usize>, SendError> {
    find(cx).await
}

#[idempotent(op = "mail.send", key = number, ttl = "24h", reconcile = find_mail)]
async fn send_mail(number: String, to: String) -> Result<usize, SendError> {
    let id = context().derive_key("gateway");
    gateway::send(id, format!("mail {number} to {to}")).await
}

async fn find_mail(_: &String, _: &String, cx: &Context) -> Result<Reconciled<usize>, SendError> {
    find(cx).await
}

// A second code within the minute is refused, not replayed: the code is in the first message.
#[idempotent(op = "captcha.send", key = phone, on_duplicate = reject, on_running = reject, ttl = "60s")]
async fn send_captcha(phone: String) -> Result<(), SendError> {
    Ok(())
}

/// An error leaves the outcome unknown, and the next call asks again.
async fn find(cx: &Context) -> Result<Reconciled<usize>, SendError> {
    Ok(match gateway::find(cx.derive_key("gateway")).await? {
        Some(number) => Reconciled::Landed(number),
        // This gateway takes a message at once or not at all, so it cannot arrive later.
        None => Reconciled::NotLanded,
    })
}

/// Stands for the gateway. It does not compare ids: a message sent twice is delivered twice.
mod gateway {
    use super::{AtomicU32, Duration, Mutex, Ordering, PoisonError, SendError};

    pub(super) static OUTBOX: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
    pub(super) static DOWN: AtomicU32 = AtomicU32::new(0);
    pub(super) static LOST_REPLIES: AtomicU32 = AtomicU32::new(0);
    pub(super) static LOST_REQUESTS: AtomicU32 = AtomicU32::new(0);
    pub(super) static SEARCHES: AtomicU32 = AtomicU32::new(0);
    static CALLS: AtomicU32 = AtomicU32::new(0);

    async fn network() -> Result<u32, SendError> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        if call.is_multiple_of(5) {
            DOWN.fetch_add(1, Ordering::Relaxed);
            return Err(SendError::GatewayDown);
        }
        Ok(call)
    }

    /// The number of the message in the outbox.
    pub(super) async fn send(id: String, message: String) -> Result<usize, SendError> {
        let call = network().await?;
        if call % 7 == 1 {
            LOST_REQUESTS.fetch_add(1, Ordering::Relaxed);
            return Err(SendError::TimedOut);
        }
        let mut outbox = OUTBOX.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.push((id, message));
        if call % 3 == 1 {
            LOST_REPLIES.fetch_add(1, Ordering::Relaxed);
            return Err(SendError::TimedOut);
        }
        Ok(outbox.len() - 1)
    }

    pub(super) async fn find(id: String) -> Result<Option<usize>, SendError> {
        SEARCHES.fetch_add(1, Ordering::Relaxed);
        network().await?;
        let outbox = OUTBOX.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(outbox.iter().position(|(of, _)| *of == id))
    }
}

/// The pause of a caller that repeats until it has an answer: also after an unknown outcome, which is then looked for.
fn again(error: &SendError) -> Option<Duration> {
    match error {
        SendError::GatewayDown | SendError::TimedOut => Some(Duration::ZERO),
        SendError::Idempotency(error) => match error.kind() {
            ErrorKind::Unknown { .. } => Some(Duration::ZERO),
            _ => pause(error),
        },
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let redis = Server::redis();
    let store = RedisStore::connect(redis.url()).await?;
    options.engine(store).install()?;

    // Records of an earlier run may still be in a Redis of yours.
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let mut calls = JoinSet::new();
    for n in 0..CALLERS * TEXTS {
        // Two texts for each phone.
        let (phone, text) = (n % (TEXTS / 2), format!("code {run}-{}", n % TEXTS));
        calls.spawn(async move { repeat(|| send_text(phone, text.clone()), again).await });
    }
    for n in 0..CALLERS * MAILS {
        let (number, to) = (
            format!("bill-{run}-{}", n % MAILS),
            format!("user-{}", n % MAILS),
        );
        calls.spawn(async move {
            let call = || send_mail(number.clone(), to.clone());
            repeat(call, again).await
        });
    }
    let answers = calls.join_all().await;
    let told: HashSet<_> = answers.iter().flatten().collect();
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();

    let mut refused = 0;
    for n in 0..MAILS {
        let answer = send_mail(format!("bill-{run}-{n}"), "another-user".to_owned()).await;
        if let Err(SendError::Idempotency(error)) = answer {
            refused += u32::from(*error.kind() == ErrorKind::Mismatch);
        }
    }

    let mut calls = JoinSet::new();
    for n in 0..REQUESTS {
        calls.spawn(send_captcha(format!("{run}-{}", n % CAPTCHAS)));
    }
    let (mut captchas, mut early, mut longest) = (0, 0, 0);
    for answer in calls.join_all().await {
        match answer {
            Ok(()) => captchas += 1,
            Err(SendError::Idempotency(error)) => {
                early += u32::from(error.retry_after().is_some());
                longest = longest.max(error.retry_after().map_or(0, |time| time.as_secs()));
            }
            Err(_) => {}
        }
    }

    let mut sent: BTreeMap<String, u32> = BTreeMap::new();
    let outbox = gateway::OUTBOX
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (_, message) in &*outbox {
        *sent.entry(message.clone()).or_default() += 1;
    }
    let of = |kind: &str| {
        sent.keys()
            .filter(|message| message.starts_with(kind))
            .count()
    };
    let twice = sent.values().filter(|times| **times > 1).count();
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    let all = (TEXTS + MAILS) as usize;
    let mut books = Books::new("notifications: Redis");
    books
        .check("text messages", of("text"), TEXTS as usize)
        .check("mails", of("mail"), MAILS as usize)
        .check("  sent more than once", twice, 0)
        .check("messages named in answers", told.len(), all)
        .check("callers with an answer", answered, all * CALLERS as usize)
        .check("mails to others refused", refused, MAILS)
        .check("captchas", captchas, CAPTCHAS)
        .check("  refused within the minute", early, REQUESTS - CAPTCHAS)
        .note("  longest pause that a refusal named, s", longest)
        .note("the gateway was down", count(&gateway::DOWN))
        .note("time-outs of sent messages", count(&gateway::LOST_REPLIES))
        .note(
            "time-outs of messages that got lost",
            count(&gateway::LOST_REQUESTS),
        )
        .note("searches in its outbox", count(&gateway::SEARCHES));
    Ok(books.close())
}
