//! The examples as programs, built together with the tests.

use std::path::PathBuf;

/// The file of an example.
pub(crate) fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(example);
    assert!(
        program.is_file(),
        "build the examples first: `cargo test -p idem-examples` and `cargo build -p idem-examples --examples` do, \
         `--test` alone does not"
    );
    program
}
