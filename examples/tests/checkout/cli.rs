//! The command line.

use std::process::Command;

use clap::CommandFactory as _;
use idem_examples::checkout::args::{Args, Store};

use super::server::program;

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    // Port 1 is reserved, and has no listener.
    for (args, reason) in [
        (&["--redsi"][..], "unexpected argument '--redsi'"),
        (
            &["--redis", "redis://127.0.0.1:1", "--port", "0"],
            "connecting to Redis at 127.0.0.1:1: nothing listens at this address",
        ),
        (
            &["--store", "memory", "--life", "0"],
            "`life` of `TokenIssuer`",
        ),
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

#[test]
fn arguments_are_read_and_contradictions_are_named() {
    Args::command().debug_assert();
    let read =
        |line: &str| Args::read([&["checkout"], &*line.split(' ').collect::<Vec<_>>()].concat());
    let args = read("--redis redis://r --port=0 --slow 5 --fresh --file /f").unwrap();
    assert_eq!(args.store(), Store::Redis("redis://r"));
    assert_eq!((args.port, args.slow.as_millis(), args.fresh), (0, 5, true));
    for (line, reason) in [
        ("--redis a --store memory", "cannot be used with"),
        ("--store memory --file f", "books that survive"),
        ("--port x", "invalid digit"),
    ] {
        let refused = read(line).unwrap_err().to_string();
        assert!(refused.contains(reason), "{line}: {refused}");
    }
}
