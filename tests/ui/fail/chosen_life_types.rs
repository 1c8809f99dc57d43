//! Closures of `ttl` with other types than the answer's and a duration.

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{Engine, Error, idempotent};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[idempotent(key = order, on_error = release, ttl = |_| 30)]
async fn a_number(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, ttl = |answer: &String| DAY)]
async fn of_another_answer(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, ttl = |answer| answer.valid_for)]
async fn no_such_field(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn life(_: &u64) -> Duration {
    DAY
}

#[idempotent(key = order, on_error = release, ttl = life)]
async fn no_closure(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, ttl = |_| DAY)]
async fn no_result(order: u64) -> u64 {
    order
}

async fn by_hand(engine: Engine) -> Result<u64, Error> {
    let call = engine.operation("orders.create").key(&7).ttl_of(|_: &u64| 30);
    call.run(|_| async { Ok(7) }).await
}

async fn by_hand_of_another_answer(engine: Engine) -> Result<u64, Error> {
    let call = engine.operation("orders.create").key(&7).ttl_of(|_: &String| DAY);
    call.run(|_| async { Ok(7) }).await
}

async fn without_a_body() {
    let engine = Engine::new(MemoryStore::new());
    let call = engine.operation("orders.create").key(&7).ttl_of(life);
    let _ = call.begin().await;
}

#[idempotent(key = order, on_error = release, lease = order)]
async fn number_for_a_lease(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
