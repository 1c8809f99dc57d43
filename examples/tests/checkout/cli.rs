//! The command line.

use std::process::Command;

use idem_examples::checkout::args::{Args, Store};

use super::server::program;

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    // Port 1 is reserved, and has no listener.
    for (args, reason) in [
        (&["--redsi"][..], "unknown argument \"--redsi\""),
        (
            &["--redis", "redis://127.0.0.1:1", "--port", "0"],
            "nothing listens at the address of Redis",
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
    let parse = |line: &str| Args::parse(line.split_whitespace().map(str::to_owned));
    let args = parse("--redis redis://r --port=0 --slow 5 --fresh --file /f").unwrap();
    assert_eq!(args.store, Store::Redis("redis://r".to_owned()));
    assert_eq!((args.port, args.slow.as_millis(), args.fresh), (0, 5, true));
    for (line, reason) in [
        ("--redis a --postgres b", "choose one"),
        ("--store redis", "needs an address"),
        ("--store memory --file f", "no use here"),
        ("--port x", "whole number"),
        ("--port", "needs a value"),
        ("--fresh=1", "takes no value"),
    ] {
        let refused = parse(line).unwrap_err();
        assert!(refused.contains(reason), "{line}: {refused}");
    }
}
