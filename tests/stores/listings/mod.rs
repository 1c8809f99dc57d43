//! Listings of a store's records: ten thousand records of two operations, in pages and by cursors, on each store.

mod bounds;
mod cluster;
mod filled;
mod layered;
mod operations;
mod pages;
mod refused;
