//! A [`Browser`] for tests of pages, and an [`HttpServer`] that keeps what it was asked.
//!
//! As in the harness, everything panics when something is wrong, with a message that says what to
//! do.

#![allow(
    clippy::missing_panics_doc,
    reason = "every function panics when the browser does not do as it is told"
)]

mod browser;
mod http_server;

pub use axum;
pub use browser::Browser;
pub use http_server::{HttpServer, Request};
pub use thirtyfour;
