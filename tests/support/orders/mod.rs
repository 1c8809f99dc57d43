//! A shop in a database for the order flow's tests and workers.

pub mod database;
pub mod order;
