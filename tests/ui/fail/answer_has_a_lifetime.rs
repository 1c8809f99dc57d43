use idem_runtime::{Error, idempotent};

use std::borrow::Cow;

#[idempotent(key = order)]
async fn pay<'a>(order: &'a str) -> Result<Cow<'a, str>, Error> {
    Ok(Cow::Borrowed(order))
}

fn main() {}
