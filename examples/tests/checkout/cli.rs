//! The command line.

use std::process::Command;

use super::server::program;

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    for (args, reason) in [
        (&["--redsi"][..], "unexpected argument '--redsi'"),
        (&["--port", "x"], "invalid digit"),
        (&["--file", "no/such/place"], "cannot open no/such/place"),
        (&["--life", "0"], "`life` of `TokenIssuer`"),
        (&["--by-hand", "--slow", "1"], "cannot be used with"),
    ] {
        let run = Command::new(program()).args(args).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    let help = Command::new(program()).arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("--slow"));
}
