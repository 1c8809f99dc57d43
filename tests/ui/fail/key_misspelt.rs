use idem_runtime::{Error, idempotent};

#[idempotent(key = oder_id)]
async fn pay(tenant: u32, order_id: u64) -> Result<u64, Error> {
    Ok(order_id + u64::from(tenant))
}

#[idempotent(key = ("eu", format!("{order_ids}")))]
async fn refund(order_id: u64) -> Result<u64, Error> {
    Ok(order_id)
}

#[idempotent(key = order, fingerprint(amuont))]
async fn cancel(order: u64, amount: u64) -> Result<u64, Error> {
    Ok(order + amount)
}

fn main() {}
