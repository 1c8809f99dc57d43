//! The local cache of finished answers: calls that it answers without the store, calls that it must not answer, and
//! its invalidation by resets.

mod answers;
mod fixture;
mod max_age;
mod races;
mod redis;
mod resets;
mod rights;
mod stress;
