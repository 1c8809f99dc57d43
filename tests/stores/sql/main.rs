//! The SQL stores: calls inside the caller's transaction, faults around the database, and orders whose processes are
//! killed.
//!
//! A test that runs on several databases has the database in its name: `cargo test -p idem-tests --test sql --
//! postgres::`. Servers start with the first test that needs them and serve all; each test has a separate database.

#![allow(clippy::unwrap_used, reason = "a test panics when something is wrong")]

#[macro_use]
mod database;
mod faults;
mod logs;
mod orders;
mod sea_orm_service;
mod transactions;
