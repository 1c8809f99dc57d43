//! The local cache of finished answers: what it answers without the store, what it must not, and how it
//! hears of answers that are taken back.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod answers;
mod cluster;
mod fixture;
mod max_age;
mod races;
mod redis;
mod resets;
mod rights;
mod stress;
