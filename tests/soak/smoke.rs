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

#[test]
fn an_unknown_option_is_reported() {
    for arguments in [["--store", "nowhere"], ["--calls", "many"], ["--what", "1"]] {
        let mut soak = Command::new(env!("CARGO_BIN_EXE_idem-soak"));
        let output = soak.args(arguments).output().expect("the program is built");
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            told.contains(arguments[1]) || told.contains(arguments[0]),
            "{told}"
        );
    }
}
