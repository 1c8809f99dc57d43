//! Listing what a store holds: ten thousand records of two operations, in pages and by cursors, on each store.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

mod bounds;
mod cluster;
mod filled;
mod layered;
mod operations;
mod pages;
mod refused;
