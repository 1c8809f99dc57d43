// `entry` generates `pay_entry(order)` without `tx`, where `T` could not be inferred.

use idem_runtime::store::sql::SqlTransaction;
use idem_runtime::{Error, idempotent};

#[idempotent(op = "payments.pay", key = order, on_error = release, tx = tx, entry = pay_entry)]
async fn pay<T: SqlTransaction>(order: u64, tx: &mut T) -> Result<u64, Error> {
    let _ = tx;
    Ok(order)
}

fn main() {}
