//! A store on another system, written from outside: records in `ZooKeeper`.
//!
//! Whoever wants records elsewhere writes what is here. [`store`] implements
//! [`Store`](idem_runtime::store::Store) and is the place to begin; [`place`] says where a record
//! stands and in which bytes, `exchange` reads and writes it, [`link`] keeps a connection, [`failure`]
//! sorts the errors, [`news`] tells waiting calls. [`fixture`] and [`suite`] put the store under the conformance suite of
//! `idem-runtime`, which says whether it may be put under an engine.
//!
//! Nothing but the public API of `idem-runtime` is used. Its functions
//! [`claim`](idem_runtime::store::claim), [`complete`](idem_runtime::store::complete) and so on
//! decide; a store gives them what stands under a key and how long it will still stand there, and
//! writes what they say, if nobody has written since.

mod exchange;
pub mod failure;
pub mod fixture;
pub mod link;
pub mod news;
pub mod place;
pub mod store;
pub mod suite;
