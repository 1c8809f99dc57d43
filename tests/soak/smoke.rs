//! Short soaks, so that `scripts/test soak` does not rot, and what no fault may do is found in a run of `thorough`.

use std::process::Command;

/// Soaks a store without a fault whose effect depends on the speed of the machine.
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

/// Processes are killed, their claims lapse, replies of scripts are lost and connections cut, at random.
#[test]
fn no_fault_gives_a_key_two_answers_or_an_unexplained_run() {
    soak("redis", "5000", "60");
}
