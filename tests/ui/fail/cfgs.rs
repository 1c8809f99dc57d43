//! Arguments that are not compiled.

#![allow(unused)]

use idem_runtime::{Error, idempotent};

#[idempotent(op = "pay")]
async fn no_argument_is_left(#[cfg(any())] order: u64) -> Result<u64, Error> { Ok(1) }

fn main() {}
