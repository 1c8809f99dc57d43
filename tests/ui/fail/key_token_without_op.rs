use idem_runtime::{Error, idempotent};

#[idempotent(key = idem_runtime::token::token(form, user), on_error = release)]
async fn submit(form: &str, user: u64) -> Result<u64, Error> {
    let _ = form;
    Ok(user)
}

fn main() {}
