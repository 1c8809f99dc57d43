#![allow(unused_variables)]

use idem_runtime::http::{IdempotencyKey, Reply};
use idem_runtime::key::redacted;
use idem_runtime::{Error, idempotent};

#[idempotent(key = key.as_str(), scope = tenant, label = key.as_str(), on_error = release)]
async fn whole(key: IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> {
    Ok(Reply::ok(tenant))
}

#[idempotent(key = &key, scope = tenant, label = "{tenant}/{key}", on_error = release)]
async fn in_a_format_string(IdempotencyKey(key): IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> {
    Ok(Reply::ok(tenant))
}

// No mistake.
#[idempotent(key = key.as_str(), scope = tenant, label = redacted(key.as_str(), 4), on_error = release)]
async fn its_end(key: IdempotencyKey, tenant: u64) -> Result<Reply<u64>, Error> {
    Ok(Reply::ok(tenant))
}

fn main() {}
