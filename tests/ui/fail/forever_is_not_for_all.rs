use idem_runtime::{Error, idempotent};

#[idempotent(key = order, on_error = release, lease = forever, max_run = forever, on_running = wait(forever))]
async fn pay(order: u64) -> Result<u64, Error> {
    Ok(order)
}

fn main() {}
