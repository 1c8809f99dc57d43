//! A shop in a database: what the tests of the order flow and its workers share.

pub mod database;
pub mod order;
