#![allow(unused)]

use idem_runtime::{Error, idempotent};

#[idempotent(op = "", key = order)]
async fn empty(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "pay\nme", key = order)]
async fn control_character(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "pay.{tenant}", key = order)]
async fn format_string(order: u64, tenant: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = NAME, key = order)]
async fn not_a_literal(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order)]
async fn generic_without_op<T: serde::Serialize>(order: T) -> Result<u64, Error> { Ok(1) }

#[idempotent(key = order)]
async fn impl_argument_without_op(order: impl serde::Serialize) -> Result<u64, Error> { Ok(1) }

fn main() {}
