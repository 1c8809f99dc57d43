//! Each single-file example prints the block in its first comment.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use idem_harness::{PostgresServer, RedisServer};

/// Runs the example with only this variable of its own.
fn run(example: &str, variable: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(support::built(example));
    command.env_remove("REDIS_URL").env_remove("DATABASE_URL");
    command.envs(variable).output().unwrap()
}

/// The first comment of an example.
fn comment(example: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{example}.rs"));
    let source = std::fs::read_to_string(file).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Fails unless the example ends well and prints what its comment says.
fn prints_its_comment(example: &str, variable: Option<(&str, &str)>) {
    let comment = comment(example);
    let command = format!("cargo run --example {example}`");
    assert!(comment.contains(&command), "no `{command} in {comment}");
    let (_, block) = comment.split_once("```text\n").unwrap();
    let (expected, _) = block.split_once("```\n").unwrap();
    let output = run(example, variable);
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{printed}{errors}");
    assert_eq!(printed, expected, "{printed}");
}

/// Fails unless the example names its variable and a command that starts a server, and exits with 2.
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
fn examples_without_a_server() {
    for example in [
        "axum_handler",
        "axum_layer",
        "custom_store",
        "quickstart",
        "reconcile",
        "steps",
    ] {
        prints_its_comment(example, None);
    }
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
    let here = include_str!("printed.rs");
    for entry in std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match name.strip_suffix(".rs") {
            None | Some("lib" | "kept" | "scenario") => {}
            Some(example) => assert!(here.contains(&format!("\"{example}\"")), "{example}"),
        }
    }
}
