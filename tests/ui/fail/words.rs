//! Settings that take one of a few words.

use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_duplicate = refuse)]
async fn not_a_word_of_it(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, on_cancel = abort)]
async fn unknown(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, on_cancel = finnish)]
async fn misspelt(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, on_lease_lost = "continue")]
async fn quoted(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = release, on_panic = Some(1))]
async fn expression(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = Release, on_cancel = finish())]
async fn with_parentheses(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, on_error = realease)]
async fn misspelt_on_error(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "a", key = order, on_error = released)]
async fn in_other_words(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(op = "b", key = order, on_error = idem_runtime::Class::System)]
async fn class(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
