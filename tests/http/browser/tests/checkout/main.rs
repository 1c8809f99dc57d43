//! The checkout example in a real browser: whatever a person does to its form, it is one order.
//!
//! The shop is the real program, with its books in a file. The sold orders are read from that file, and must be
//! the same on the shop's own pages.

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
