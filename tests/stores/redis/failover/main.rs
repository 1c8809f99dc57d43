//! Sentinels and clusters that fail over during thousands of calls with duplicates, ten thousand in a full run: every
//! key ends, and all answers of a key are equal.
//!
//! The time until calls continue is printed; `--nocapture` (of nextest: `--no-capture`) shows
//! it.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]
#![allow(clippy::print_stdout, reason = "recovery times are told, not judged")]

mod cluster;
mod durability;
mod journal;
mod load;
mod migration;
mod notifications;
mod plan;
mod recovery;
mod report;
mod sentinel;
mod sentinel_discovery;
mod shard;

/// Two runs at a time: they wait for elections most of the time, and their servers need the machine as well.
async fn seat() -> tokio::sync::SemaphorePermit<'static> {
    static SEATS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
    SEATS.acquire().await.unwrap()
}
