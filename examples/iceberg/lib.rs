//! A catalog of Iceberg tables over HTTP, on axum and `PostgreSQL`, whose mutations are idempotent.
//!
//! The one attribute is in `mutation.rs`. The files in the order of a request: `routes`, `caller`, `mutation`, then
//! `namespaces`, or `tables` and `metadata`, and `done` or `refusal`.

mod caller;
pub mod catalog;
mod done;
mod metadata;
mod mutation;
mod namespaces;
mod refusal;
pub mod routes;
mod tables;
pub mod uuid;
