//! Writes `deliveries.jsonl` anew: `cargo run --example payments_log > FILE`.

use std::io::{self, Write as _};

use idem_examples::payments::generator::{SEED, generate};

fn main() -> io::Result<()> {
    io::stdout().lock().write_all(&generate(SEED))
}
