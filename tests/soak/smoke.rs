//! A short soak, so that `scripts/test soak` does not rot.

use std::process::Command;

#[test]
fn a_short_soak_finds_nothing() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_idem-soak"));
    let stores = ["--store", "sqlite", "--store", "redis"];
    let sizes = ["--calls", "1500", "--faults", "6"];
    let status = soak.args(stores).args(sizes).arg("--gentle").status();
    assert!(status.expect("the program is built").success());
}
