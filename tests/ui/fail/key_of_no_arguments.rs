use idem_runtime::{Error, idempotent};

fn today() -> u32 {
    7
}

#[idempotent(key = today())]
async fn report() -> Result<u32, Error> {
    Ok(today())
}

fn main() {}
