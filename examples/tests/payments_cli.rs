//! The payments example as a person runs it: arguments, exit codes, and a real Redis.

#![cfg(unix)]

use std::process::{Command, Output};

use idem_harness::RedisServer;

/// Runs the example that was built together with this test.
fn payments(args: &[&str]) -> Output {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.ancestors().nth(2).expect("tests are built in `deps`");
    let program = built.join("examples/payments");
    assert!(
        program.is_file(),
        "build the examples first: `cargo test -p idem-examples` does, `--test` alone does not"
    );
    let mut command = Command::new(program);
    command.args(args).output().expect("the example starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the example prints UTF-8")
}

#[test]
fn redis_keeps_the_answers_for_the_next_run() {
    let server = RedisServer::start();
    let args = ["--redis", &server.url(), "--prefix", "nightly"];
    let first = payments(&args);
    let printed = text(&first.stdout);
    assert_eq!(first.status.code(), Some(0), "{printed}");
    assert!(printed.contains("payments     640 = "), "{printed}");
    assert!(printed.ends_with("ok: everything that was asked for happened, and once\n"));
    assert!(
        server
            .cli(&["DBSIZE"])
            .parse()
            .is_ok_and(|keys: u32| keys > 900)
    );

    let second = payments(&args);
    let printed = text(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{printed}");
    assert!(
        printed.ends_with(
            "ok: everything was answered from the earlier run, and nothing moved again\n"
        )
    );
    assert!(
        printed.contains("0 movements there, 0 rows in the books"),
        "{printed}"
    );
}

#[test]
fn a_run_without_the_attribute_ends_with_1_and_the_damage() {
    let run = payments(&["--without"]);
    let printed = text(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("payments charged more than once"),
        "{printed}"
    );
    assert!(text(&run.stderr).contains("100 %"));
}

#[test]
fn what_cannot_start_ends_with_2_and_a_reason() {
    // Port 1 is reserved, and has no listener.
    for (args, reason) in [
        (&["--redsi"][..], "unexpected argument '--redsi'"),
        (
            &["--deliveries", "no/such/file"],
            "cannot read the log no/such/file",
        ),
        (
            &["--redis", "redis://127.0.0.1:1"],
            "nothing listens at the address of Redis",
        ),
        (&["--redis", "not a url"], "cannot use Redis"),
    ] {
        let run = payments(args);
        let printed = text(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{printed}");
        assert!(printed.contains(reason), "{printed}");
    }
    let help = payments(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("--without"));
}
