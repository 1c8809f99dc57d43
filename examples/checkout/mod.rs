//! An axum shop whose checkout survives double clicks, reloads and clients that call again.
//!
//! Start reading at [`submit`]: the form, whose one-time token is the key, and the attribute on the handler. Then
//! [`routes`]: the layer that reads `Idempotency-Key` around an API without idempotency code. Both buy by [`buy`]. The
//! rest is a shop: [`pages`], [`books`], a payment [`provider`], and a [`live`] page of executed and replayed calls.

pub mod api;
pub mod args;
pub mod books;
pub mod buy;
pub mod caller;
pub mod charges;
pub mod docs;
pub mod html;
pub mod live;
pub mod live_page;
pub mod pages;
pub mod provider;
mod random;
pub mod routes;
pub mod serve;
pub mod session;
pub mod shop;
mod sql;
pub mod submit;
