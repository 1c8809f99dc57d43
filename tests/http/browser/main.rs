//! The checkout example in a real browser, in six stories: whatever a person does to its form, it is one order.
//!
//! The shop is the real program, with its books in a file. The sold orders are read from that file, and must be
//! the same on the shop's own pages. The answers to forms over HTTP are tested in `examples/tests/checkout`.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod browser;
mod clicks;
mod forms;
mod journey;
mod network;
mod pages;
mod shop;
#[path = "../../../examples/tests/support/mod.rs"]
mod support;
mod tabs;
mod visitor;
