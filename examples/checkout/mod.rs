//! An axum shop whose checkout survives double clicks, reloads and repeated requests.
//!
//! Start reading at `submit`: the form, whose one-time token is the key, and the attribute on the handler. Then
//! `routes`: the layer that reads `Idempotency-Key` around an API without idempotency code. Both buy by `buy`. The
//! rest is a shop: `pages`, `books`, a payment `provider`, and a `live` page of executed and replayed calls.

mod api;
pub mod args;
mod books;
mod buy;
mod caller;
mod docs;
pub mod html;
mod live;
mod live_page;
mod pages;
mod provider;
mod random;
mod routes;
pub mod serve;
mod session;
pub mod shop;
mod sql;
mod submit;
