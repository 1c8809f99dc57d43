//! A catalog of Iceberg tables over HTTP, whose mutations are idempotent.
//!
//! On axum and `PostgreSQL`.
//!
//! The one attribute is in `mutation.rs`. The files in the order of a request: `routes`, `caller`, `mutation`, then
//! `namespaces`, or `tables` and `metadata`, and `refusal`. `tests/rules.rs` compares the catalog with each sentence
//! of the specification.

mod caller;
pub mod catalog;
mod metadata;
mod mutation;
mod namespaces;
mod refusal;
pub mod routes;
mod tables;
