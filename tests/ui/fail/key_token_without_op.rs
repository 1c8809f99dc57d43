use idem_runtime::{Error, idempotent, token};

#[idempotent(key = token::token(form, user), on_error = release)]
async fn submit(form: &str, user: u64) -> Result<u64, Error> {
    let _ = form;
    Ok(user)
}

fn main() {}
