//! One process of several: calls until its time is over, and says how many calls that were.

use std::io::{BufRead as _, stdin};
use std::time::{Duration, Instant};

use idem_runtime::store::redis::RedisStore;
use tokio::task::JoinSet;

use super::load::driver::{self, Work};
use super::load::shop::{Customer, First, Replay, Shop};
use super::server;

pub(crate) const CONCURRENCY: u64 = 64;
pub(crate) const VALUE_BYTES: usize = 200;
/// Calls before the clock runs.
const WARMING: u64 = 8;

/// What a child is told on its command line.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) case: String,
    pub(crate) url: String,
    pub(crate) merchant: u64,
    pub(crate) millis: u64,
}

impl Task {
    /// As [`words`](Self::words) wrote it.
    pub(crate) fn of(mut words: impl Iterator<Item = String>) -> Self {
        let mut word = || words.next().expect("a parent says everything");
        Self {
            case: word(),
            url: word(),
            merchant: word().parse().unwrap(),
            millis: word().parse().unwrap(),
        }
    }

    pub(crate) fn words(&self) -> [String; 5] {
        let (merchant, millis) = (self.merchant.to_string(), self.millis.to_string());
        let (case, url) = (self.case.clone(), self.url.clone());
        ["--child".to_owned(), case, url, merchant, millis]
    }
}

/// Says that it is ready, waits for a line, calls, and prints calls per second.
pub(crate) fn run(task: &Task) {
    let runtime = driver::current_thread();
    let store = runtime.block_on(RedisStore::connect(task.url.as_str()));
    let engine = server::builder(store.unwrap()).build().unwrap();
    let shop = Shop::new(engine, VALUE_BYTES);
    let customer = Customer::of(&shop, task.merchant);
    let time = Duration::from_millis(task.millis);
    let per_second = if task.case == "first" {
        runtime.block_on(work(First(customer), time))
    } else {
        runtime.block_on(work(Replay(customer), time))
    };
    say(&format!("{per_second:.0}"));
}

async fn work<W: Work>(work: W, time: Duration) -> f64 {
    for number in 0..WARMING {
        work.clone().call(number).await;
    }
    say("ready");
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..CONCURRENCY {
        let mut work = work.clone();
        workers.spawn(async move {
            let mut calls = 0;
            while began.elapsed() < time {
                // Numbers that no other worker has.
                work.call(WARMING + calls * CONCURRENCY + worker).await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u64 = workers.join_all().await.into_iter().sum();
    calls as f64 / began.elapsed().as_secs_f64()
}

#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn say(what: &str) {
    println!("{what}");
}
