//! The crates of `benches/peers`, on the same server.

use std::path::Path;
use std::process::Command;

use super::options::words;

/// Where its README says that they are built.
const PEERS: &str = "benches/peers/target/release/idem-peers";

/// Runs them, or says how to build them. They print their rows themselves.
pub(crate) fn compare(url: &str) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let program = workspace.unwrap_or(Path::new("")).join(PEERS);
    if !program.is_file() {
        eprintln!(
            "not compared: no `{PEERS}`; build it with `cargo build --release \
             --ignore-rust-version --manifest-path benches/peers/Cargo.toml`"
        );
        return;
    }
    let mut command = Command::new(program);
    command.args(words().skip(1));
    command.args(["--url", url, "--impl", "raw,idempotent,cached"]);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("not compared: `{PEERS}` ended with {status}"),
        Err(error) => eprintln!("not compared: `{PEERS}` cannot be run: {error}"),
    }
}
