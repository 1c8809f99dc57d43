//! The payments example as a person runs it: arguments, exit codes, what cannot start.

use super::payments;

#[test]
fn a_run_without_the_attribute_ends_with_1_and_the_damage() {
    let (code, printed, errors) = payments(&["--without"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("payments charged more than once"),
        "{printed}"
    );
    assert!(errors.contains("100 %"), "{errors}");
}

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    // Port 1 is reserved, and has no listener.
    for (args, reason) in [
        (&["--redsi"][..], "unexpected argument '--redsi'"),
        (&["--tasks", "0"], "0 is not in 1..=10000"),
        (&["--without", "--redis", "x"], "cannot be used with"),
        (&["--redis", "x", "--file", "f.db"], "cannot be used with"),
        (
            &["--redis", "redis://127.0.0.1:1"],
            "connecting to Redis at 127.0.0.1:1: nothing listens at this address",
        ),
    ] {
        let (code, _, errors) = payments(args);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
    let (code, help, _) = payments(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("--without"), "{help}");
}
