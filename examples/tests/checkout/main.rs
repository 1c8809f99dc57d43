//! The checkout example as browsers and programs use it: over HTTP, against the real server.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod api;
mod browser;
mod cli;
mod form;
mod http;
mod kills;
mod server;
mod stores;
#[path = "../support/mod.rs"]
mod support;
