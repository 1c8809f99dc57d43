//! The fingerprint: its list, incomparable values, and calls without one.

#![allow(unused)]

use idem_runtime::{Error, idempotent};
use std::collections::HashSet;

struct Shop {
    id: u64,
}

#[idempotent(key = order, fingerprint(order, note))]
async fn lists_a_skipped_argument(order: u64, #[idem(skip)] note: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, fingerprint(order + 1))]
async fn lists_an_expression(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, fingerprint(order, tenant.id))]
async fn names_no_argument(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, fingerprint(order, order))]
async fn listed_twice(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, fingerprint())]
async fn lists_nothing(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(fingerprint = none)]
async fn none_without_key(order: u64) -> Result<u64, Error> { Ok(order) }

impl Shop {
    #[idempotent(key = order, fingerprint(self.id, order))]
    async fn lists_self(&self, order: u64) -> Result<u64, Error> { Ok(self.id + order) }
}

#[idempotent(key = order)]
async fn unnamed_argument(order: u64, _: &str) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "pay")]
async fn nothing_is_left(#[idem(skip)] order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent]
async fn set_in_an_argument(order: u64, tags: Vec<HashSet<u32>>) -> Result<u64, Error> { Ok(order + tags.len() as u64) }

#[idempotent(key = order, fingerprint(tags))]
async fn lists_a_set(order: u64, tags: &HashSet<u32>) -> Result<u64, Error> { Ok(order + tags.len() as u64) }

#[idempotent(key = (1, &tags))]
async fn set_as_key(#[idem(skip)] tags: HashSet<u32>) -> Result<u64, Error> { Ok(tags.len() as u64) }

fn main() {}
