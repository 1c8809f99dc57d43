//! `cargo run --example checkout`: see `--help`, and `submit.rs` beside this file.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use idem_examples::checkout::args::Args;
use idem_examples::checkout::serve::serve;
use idem_examples::checkout::shop::Shop;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    let (shop, listener, address) = match open(&Args::parse()).await {
        Ok(opened) => opened,
        Err(message) => return fail(&message, 2),
    };
    say(&introduction(&address));
    match serve(listener, shop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message, 1),
    }
}

async fn open(args: &Args) -> Result<(Shop, TcpListener, String), String> {
    let (shop, place) = Shop::open(args).await?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener =
        listener.map_err(|error| format!("cannot listen at port {}: {error}", args.port))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    say(&format!("{place}\n"));
    Ok((shop, listener, format!("http://{address}")))
}

fn introduction(address: &str) -> String {
    format!(
        "\
shop at {address}/ and what it does at {address}/live

Each twice, and there is one order, one charge, and a replay of a refusal:

  curl -i {address}/api/orders -H 'Authorization: Bearer ada' -H 'Idempotency-Key: \"8e03978e\"' --json '{{\"quantity\": 2}}'
  curl -i {address}/api/orders -H 'Authorization: Bearer ada' -H 'Idempotency-Key: \"c2a1\"' --json '{{\"quantity\": 1, \"card\": \"tok_chargeDeclined\"}}'

The form of the page has a one-time token: posted again, it leads to the same order.

Ctrl-C ends it when everything that was begun is done.
"
    )
}

fn fail(message: &str, code: u8) -> ExitCode {
    eprintln!("checkout: {message}");
    ExitCode::from(code)
}

/// Prints, and ignores a closed standard output.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
