//! Bodies, durations and engines of another type.

use idem_runtime::{Error, idempotent};
use std::sync::Arc;

#[idempotent(key = order, on_error = release)]
async fn missing_tail(order: u64) -> Result<u64, Error> {
    Ok(order);
}

#[idempotent(key = order, on_error = release)]
async fn wrong_tail(order: u64) -> Result<u64, Error> {
    order
}

#[idempotent(key = order, on_error = release)]
async fn wrong_return(order: u64) -> Result<u64, Error> {
    if order == 0 {
        return order;
    }
    Ok(order)
}

#[idempotent(key = order, on_error = release, ttl = seconds)]
async fn duration(order: u64, seconds: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(key = order, on_error = release, engine = order)]
async fn engine(order: u64) -> Result<u64, Error> {
    Ok(order)
}

struct App;

impl App {
    #[idempotent(key = order, on_error = release, engine = self)]
    async fn engine_of_self(&self, order: u64) -> Result<u64, Error> {
        Ok(order)
    }

    #[idempotent(key = order, on_error = release, engine = self)]
    async fn engine_of_an_arc(self: Arc<Self>, order: u64) -> Result<u64, Error> {
        Ok(order)
    }
}

fn main() {}
