use idem_runtime::{Error, idempotent, token::token};

struct User;

#[idempotent(op = "orders.submit", key = token(form_token, user), fingerprint = none, on_error = release)]
async fn submit(form_token: &str, user: User) -> Result<u64, Error> {
    let _ = (form_token, user);
    Ok(1)
}

fn main() {}
