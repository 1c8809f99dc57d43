//! Sentinels and clusters that fail over during thousands of calls with duplicates.
//!
//! Every key ends, and all answers of a key are equal.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod durability;
mod groups;
mod journal;
mod load;
mod migration;
mod notifications;
mod plan;
mod report;
mod sentinel_discovery;
mod shard;

/// Two runs at a time: they wait for elections most of the time, and their servers need the machine as well.
async fn seat() -> tokio::sync::SemaphorePermit<'static> {
    static SEATS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
    SEATS.acquire().await.unwrap()
}
