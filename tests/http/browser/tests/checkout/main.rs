//! The checkout example in a real browser: whatever a person does to its form, it is one order.
//!
//! The shop is the real program, with its books in a file. What was sold is read from that file,
//! and must be what the shop's own pages say.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod history;
mod live;
mod look;
mod network;
mod outcomes;
mod shop;
mod stores;
mod submits;
mod tabs;
mod tokens;
mod visitor;
