use idem_runtime::{Error, idempotent};

#[idempotent(op = "a", key = order, on_error = release, entry = 5)]
async fn number(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "b", key = order, on_error = release, entry = "quoted_entry")]
async fn quoted(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "c", key = order, on_error = release, entry = self::path_entry)]
async fn path(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "d", key = order, on_error = release, entry = called_entry())]
async fn called(order: u64) -> Result<u64, Error> {
    Ok(order)
}

#[idempotent(op = "e", key = order, on_error = release, entry)]
async fn valueless(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
