//! A store on another system, written from outside: records in `ZooKeeper`.
//!
//! A model for a store of one's own. [`store`] implements
//! [`Store`](idem_runtime::store::Store) and is the place to begin; [`place`] defines the path and the bytes
//! of a record, `exchange` reads and writes it, `link` keeps a connection, `failure`
//! maps the errors, `news` notifies waiting calls. With [`fixture`], `tests/zookeeper_store_conformance.rs` runs the
//! conformance suite of `idem-runtime` against the store, which decides whether an engine may use it.
//!
//! Only the public API of `idem-runtime` is used. Its functions
//! [`claim`](idem_runtime::store::author::claim), [`complete`](idem_runtime::store::author::complete) and so on
//! decide; a store passes them the stored record and its remaining life, and writes the result,
//! if the record is unchanged.

mod exchange;
mod failure;
pub mod fixture;
mod link;
mod news;
pub mod place;
pub mod store;
