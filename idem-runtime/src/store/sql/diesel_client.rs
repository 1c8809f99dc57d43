//! diesel-async as a client: its connections are sessions, in transactions of callers or of idem.
//!
//! In the order in which a call goes: `session` has the methods, `message` sends a script or a `query` and forwards each
//! `row`, and `transaction` begins and ends one, on a `connection` of `mysql` or `postgres`.

mod connection;
mod message;
#[cfg(feature = "diesel-async-mysql")]
mod mysql;
#[cfg(any(feature = "diesel-async-bb8", feature = "diesel-async-deadpool"))]
mod pools;
#[cfg(feature = "diesel-async-postgres")]
mod postgres;
mod query;
mod row;
mod session;
mod transaction;
