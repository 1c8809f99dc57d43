//! Each single-file example prints the block in its first comment.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "support/printing.rs"]
mod printing;
mod support;

use idem_harness::{PostgresServer, RedisServer};

use printing::run;

fn prints_its_comment(example: &str, variable: Option<(&str, &str)>) {
    printing::prints_its_comment("cargo run", example, variable);
}

/// Fails unless the example names variable and server, and exits with 2.
fn names_its_server(example: &str, variable: &str, server: &str) {
    let output = run(example, None);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains(&format!("{variable} is not set")),
        "{errors}"
    );
    assert!(errors.contains(server), "{errors}");
}

#[test]
fn redis() {
    names_its_server("redis", "REDIS_URL", "redis-server");
    let server = RedisServer::start();
    // The second run meets the records of the first.
    for _ in 0..2 {
        prints_its_comment("redis", Some(("REDIS_URL", &server.url())));
    }
}

#[test]
fn postgres_transaction() {
    names_its_server("postgres_transaction", "DATABASE_URL", "docker run");
    let server = PostgresServer::start();
    for _ in 0..2 {
        prints_its_comment(
            "postgres_transaction",
            Some(("DATABASE_URL", &server.url())),
        );
    }
}

#[test]
fn every_single_file_example_is_tested() {
    let others = ["lib", "kept", "scenario"];
    printing::every_example_is_named(include_str!("printed.rs"), &others);
}
