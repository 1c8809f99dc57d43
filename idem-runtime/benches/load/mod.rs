//! Shared parts of the load benchmarks: driver, orders, rows.

#![allow(
    dead_code,
    reason = "no benchmark needs everything, and each is a program of its own"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of calls are small, and figures are rounded"
)]

pub(crate) mod batch;
pub(crate) mod driver;
#[cfg(feature = "redis")]
pub(crate) mod hand;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod process_meter;
#[cfg(feature = "redis")]
pub(crate) mod redis_meter;
#[cfg(feature = "redis")]
pub(crate) mod redis_raw;
#[cfg(feature = "redis")]
pub(crate) mod redis_server;
pub(crate) mod row;
pub(crate) mod sample;
pub(crate) mod shop;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod sql_raw;
#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
pub(crate) mod sql_server;
pub(crate) mod suite;
pub(crate) mod waiting;
