use idem_runtime::{Error, idempotent};
use std::collections::HashSet;

#[idempotent]
async fn label(order: u64, tags: Vec<HashSet<u32>>) -> Result<u64, Error> {
    Ok(order + tags.len() as u64)
}

#[idempotent(key = order, fingerprint(tags))]
async fn tag(order: u64, tags: &HashSet<u32>) -> Result<u64, Error> {
    Ok(order + tags.len() as u64)
}

#[idempotent(key = (1, &tags))]
async fn untag(#[idem(skip)] tags: HashSet<u32>) -> Result<u64, Error> {
    Ok(tags.len() as u64)
}

fn main() {}
