//! Short soaks: `scripts/test soak` still works, and no fault breaks a promise.

use std::process::Command;

/// Soaks a store without the faults that depend on speed.
fn soak(store: &str, calls: &str, faults: &str) {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_idem-soak"));
    let sizes = ["--store", store, "--calls", calls, "--faults", faults];
    let status = soak.args(sizes).arg("--gentle").status();
    assert!(status.expect("the program is built").success());
}

#[test]
fn a_short_soak_finds_nothing() {
    soak("sqlite", "1500", "6");
}

/// Random kills, lapsed claims, lost replies of scripts and cut connections.
#[test]
fn no_fault_gives_a_key_two_answers_or_an_unexplained_run() {
    soak("redis", "5000", "60");
}
