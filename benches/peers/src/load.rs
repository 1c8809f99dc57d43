//! The driver of the load benchmarks: the same files.

#![allow(dead_code, reason = "these are parts of it")]

#[path = "../../../idem-runtime/benches/load/driver.rs"]
pub(crate) mod driver;
#[path = "../../../idem-runtime/benches/load/options.rs"]
pub(crate) mod options;
#[path = "../../../idem-runtime/benches/load/order.rs"]
pub(crate) mod order;
#[path = "../../../idem-runtime/benches/load/redis_meter.rs"]
pub(crate) mod redis_meter;
#[path = "../../../idem-runtime/benches/load/redis_raw.rs"]
pub(crate) mod redis_raw;
#[path = "../../../idem-runtime/benches/load/row.rs"]
pub(crate) mod row;
#[path = "../../../idem-runtime/benches/load/sample.rs"]
pub(crate) mod sample;
#[path = "../../../idem-runtime/benches/load/suite.rs"]
pub(crate) mod suite;
