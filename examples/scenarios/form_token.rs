//! A form is submitted once, however often its button is clicked: its page carries a one-time token.
//!
//! `cargo run --example form_token` has 200 users who load the page of a form and click three times at once, and reload
//! the answer later. The token is signed for the user and good for five minutes; a submit takes it, atomically, in
//! Redis (`REDIS_URL`, or a server of its own). The order is a row in `PostgreSQL` (`DATABASE_URL`, or a server of its
//! own); a third of the inserts fails, and then the token can be used again. Tokens of other users, forged and expired
//! ones are refused. `--unprotected` shows the same without idem, and exits with 1.
//!
//! This is the server's side. The browser's (the hidden field, the button that is disabled, reload, back, two tabs, no
//! JavaScript) is `cargo run --example checkout`, a shop whose page is loaded here at the end and posted twice.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Parser as _;
use idem_examples::checkout::args::Args as ShopArgs;
use idem_examples::checkout::serve::serve;
use idem_examples::checkout::shop::Shop;
use idem_examples::scenario::{Books, Options, Server};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::token::{TokenIssuer, token};
use idem_runtime::{Classify, Engine, Error, ErrorKind, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS idem_form CASCADE;
CREATE SCHEMA idem_form;
CREATE TABLE idem_form.orders (
    id bigint GENERATED ALWAYS AS IDENTITY, customer int NOT NULL, article text NOT NULL)";

const USERS: i32 = 200;
const CLICKS: i32 = 3;
const ATTEMPTS: u32 = 30;

static BODIES: AtomicU32 = AtomicU32::new(0);
static FAILURES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, Serialize, Deserialize, Classify)]
enum SubmitError {
    /// No order: the token is good for another click.
    #[class(system)]
    Database,
    /// The commit has no reply: the order may be there, and the token stays used.
    #[class(unknown)]
    CommitLost,
    #[class(delegate)]
    Idempotency(Error),
}

impl From<Error> for SubmitError {
    fn from(error: Error) -> Self {
        Self::Idempotency(error)
    }
}

impl From<sqlx::Error> for SubmitError {
    fn from(_: sqlx::Error) -> Self {
        Self::Database
    }
}

impl SubmitError {
    fn is(&self, kind: &ErrorKind) -> bool {
        matches!(self, Self::Idempotency(error) if error.kind() == kind)
    }
}

// The answer outlives the token, for reloads of the page that shows it.
#[idempotent(op = "orders.submit", key = token(form_token, user), fingerprint(article), ttl = "1h")]
async fn submit(
    pool: &PgPool,
    form_token: &str,
    // From the session, not from the form.
    user: i32,
    article: &str,
) -> Result<i64, SubmitError> {
    let body = BODIES.fetch_add(1, Ordering::Relaxed);
    let mut tx = pool.begin().await?;
    let insert = "INSERT INTO idem_form.orders (customer, article) VALUES ($1, $2) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(user).bind(article);
    let id = insert.fetch_one(&mut *tx).await?;
    if body.is_multiple_of(3) {
        FAILURES.fetch_add(1, Ordering::Relaxed);
        return Err(SubmitError::Database); // drops the transaction, and thereby the row
    }
    let committed = tx.commit().await;
    committed.map_or(Err(SubmitError::CommitLost), |()| Ok(id))
}

/// A user, who clicks again after "please try again".
async fn insist(pool: &PgPool, form_token: &str, user: i32) -> Result<i64, SubmitError> {
    for _ in 0..ATTEMPTS {
        match submit(pool, form_token, user, "tea").await {
            Err(SubmitError::Database) => {}
            Err(SubmitError::Idempotency(error)) if error.is_retryable() => {}
            answer => return answer,
        }
    }
    Err(SubmitError::Database)
}

/// Loads the page of `checkout`, and returns the order to which each of two posts of its form leads.
async fn page_posted_twice() -> Result<[String; 2], Box<dyn std::error::Error>> {
    let args = ShopArgs::read(["checkout", "--store", "memory"])?;
    let (shop, _) = Shop::open(&args).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut serving = JoinSet::new(); // ends with it
    serving.spawn(serve(listener, shop));
    let page = exchange(address, "GET / HTTP/1.1", "").await?;
    let cookie = between(&page, "set-cookie: ", ";");
    let hidden = between(&page, "name=\"token\" value=\"", "\"");
    let form = format!("token={hidden}&quantity=1&card=tok_visa");
    let post = format!(
        "POST /orders HTTP/1.1\r\nCookie: {cookie}\r\n\
         Content-Type: application/x-www-form-urlencoded"
    );
    let first = exchange(address, &post, &form).await?;
    let second = exchange(address, &post, &form).await?;
    Ok([first, second].map(|answer| between(&answer, "location: /orders/", "\r").to_owned()))
}

async fn exchange(address: SocketAddr, head: &str, body: &str) -> std::io::Result<String> {
    let length = body.len();
    let end = format!("Host: shop\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut connection = TcpStream::connect(address).await?;
    connection
        .write_all(format!("{head}\r\n{end}").as_bytes())
        .await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).map_or("", |(_, rest)| rest);
    rest.split_once(after).map_or("", |(found, _)| found)
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let options = Options::parse();
    let (postgres, redis) = (Server::postgres(), Server::redis());
    let pool = PgPoolOptions::new().max_connections(20);
    let pool = pool.connect(postgres.url()).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    // At least 32 bytes from your secret store, the same in every process.
    let secret = [7; 32];
    let engine = options.builder(RedisStore::connect(redis.url()).await?);
    let engine = engine.tokens(TokenIssuer::new(secret)).build()?;
    engine.install()?;
    // Another process, whose tokens live for a second.
    let hasty = TokenIssuer::new(secret).life(Duration::from_secs(1));
    let hasty = Engine::builder(MemoryStore::new()).tokens(hasty).build()?;
    let (expired, since) = (hasty.issue_token("orders.submit", &0)?, Instant::now());

    // The pages: each has a token in a hidden field.
    let mut tokens = Vec::new();
    for user in 0..USERS {
        tokens.push(engine.issue_token("orders.submit", &user)?);
    }
    let mut clicks = JoinSet::new();
    for (user, hidden) in (0..CLICKS).flat_map(|_| (0..USERS).zip(&tokens)) {
        let (pool, hidden) = (pool.clone(), hidden.clone());
        clicks.spawn(async move { (user, insist(&pool, &hidden, user).await) });
    }
    let mut answers = clicks.join_all().await;
    let bodies = BODIES.load(Ordering::Relaxed);

    let (mut of_others, mut forged, mut changed) = (0, 0, 0);
    for (user, hidden) in (0..USERS).zip(&tokens) {
        answers.push((user, insist(&pool, hidden, user).await)); // a reload
        let other = insist(&pool, hidden, user + 1).await;
        of_others += i32::from(other.is_err_and(|e| e.is(&ErrorKind::TokenInvalid)));
        let (front, back) = hidden.split_at(40);
        let forgery = insist(&pool, &format!("{back}{front}"), user).await;
        forged += i32::from(forgery.is_err_and(|e| e.is(&ErrorKind::TokenInvalid)));
        let coffee = submit(&pool, hidden, user, "coffee").await;
        changed += i32::from(coffee.is_err_and(|e| e.is(&ErrorKind::Mismatch)));
    }
    sleep_until(since + Duration::from_secs(2)).await; // the life of the token
    let late = insist(&pool, &expired, 0).await;
    let late = late.is_err_and(|e| e.is(&ErrorKind::TokenExpired));
    let [first, second] = page_posted_twice().await?;
    let page_is_one_order = !first.is_empty() && first == second;
    let later_bodies = BODIES.load(Ordering::Relaxed) - bodies;

    let rows = "SELECT count(*), count(DISTINCT customer) FROM idem_form.orders";
    let (rows, customers): (i64, i64) = sqlx::query_as(rows).fetch_one(&pool).await?;
    let mut told: HashMap<i32, HashSet<i64>> = HashMap::new();
    for (user, answer) in &answers {
        told.entry(*user).or_default().extend(answer);
    }
    let one = told.values().filter(|orders| orders.len() == 1).count();
    let answered = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    let mut books = Books::new("form_token: 200 users, 3 clicks");
    books
        .check("orders", rows, USERS.into())
        .check("users with an order", customers, USERS.into())
        .check("users told of one order", one, USERS as usize)
        .check("clicks and reloads with an answer", answered, answers.len())
        .check("tokens of other users refused", of_others, USERS)
        .check("forged tokens refused", forged, USERS)
        .check("tokens with another order refused", changed, USERS)
        .check("expired tokens refused", i32::from(late), 1)
        .check("  bodies run for all these", later_bodies, 0)
        .check(
            "orders of a page posted twice",
            i32::from(page_is_one_order),
            1,
        )
        .note("bodies run", bodies)
        .note(
            "  failed, so that the token was free again",
            FAILURES.load(Ordering::Relaxed),
        );
    Ok(books.close())
}
