use idem_runtime::{Error, idempotent};

struct Pay {
    order: u64,
}

#[idempotent(key = order, label = "a payment", on_error = release)]
async fn constant_text(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = 7, on_error = release)]
async fn constant_number(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = &"", on_error = release)]
async fn empty(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = "order {}", on_error = release)]
async fn placeholder_empty(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = pay.order, fingerprint = none, label = "order {pay.order}", on_error = release)]
async fn placeholder_field(pay: Pay) -> Result<u64, Error> { Ok(pay.order) }

#[idempotent(key = order, label = ("order", order), on_error = release)]
async fn tuple(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = "order {ordr}", on_error = release)]
async fn misspelt_in_a_format_string(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = idem_runtime::key::redacted(&ordre, 4), on_error = release)]
async fn misspelt_in_an_expression(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = &"order {order}", on_error = release)]
async fn text_by_reference(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, lable = "order {order}", on_error = release)]
async fn misspelt(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label, on_error = release)]
async fn without_value(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label("order {order}"), on_error = release)]
async fn in_parentheses(order: u64) -> Result<u64, Error> { Ok(order) }

#[idempotent(key = order, label = "{order}", label = "order {order}", on_error = release)]
async fn twice(order: u64) -> Result<u64, Error> { Ok(order) }

fn main() {}
