use idem_runtime::{Error, idempotent, token::token};

#[idempotent(op = "orders.submit", scope = public, key = token(form_token, user), on_error = release)]
async fn submit(form_token: &str, user: u64) -> Result<u64, Error> {
    let _ = form_token;
    Ok(user)
}

fn main() {}
