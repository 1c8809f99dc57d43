//! No password is printed, whatever goes wrong.

use idem_harness::{PostgresServer, RedisServer};

use crate::command::idem_with;

const PASSWORD: &str = "s3cr3t-of-the-store";

/// Runs the command in each of these ways, and asserts that nothing of the password is printed.
fn assert_silent(variables: &[(&str, &str)], line: &str, code: i32) -> String {
    let ran = idem_with(variables, line);
    assert_eq!(ran.code, code, "{ran:?}");
    let said = format!("{}{}", ran.out, ran.err);
    assert!(!said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn no_password_is_printed() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let addr = server.addr();
    let with = format!("redis://:{PASSWORD}@{addr}");
    let wrong = format!("redis://:{PASSWORD}-wrong@{addr}");
    let without = format!("redis://{addr}");
    let said = assert_silent(&[], &format!("--store {with} doctor"), 0);
    assert!(said.contains(":***@"), "{said}");
    assert_silent(&[], &format!("--store {with} stats"), 0);
    assert_silent(&[("IDEM_STORE", &with)], "--help", 0);
    assert_silent(&[("IDEM_STORE", &wrong)], "ls", 3);
    assert_silent(&[("IDEM_STORE", &with)], "ls --rate 0", 2);
    let said = assert_silent(&[("IDEM_STORE", &without)], "ls", 3);
    assert!(said.contains("requires a password"), "{said}");
    let by_variable = [("IDEM_STORE", &*without), ("IDEM_PASSWORD", PASSWORD)];
    assert_silent(&by_variable, "ls", 0);
    assert_silent(&by_variable, "--help", 0);
    let twice = [("IDEM_STORE", &*with), ("IDEM_PASSWORD", PASSWORD)];
    assert_silent(&twice, "ls", 2);
    let nowhere = format!("redis://:{PASSWORD}@127.0.0.1:1");
    let said = assert_silent(&[("IDEM_STORE", &nowhere)], "--timeout 200ms ls", 3);
    assert!(said.contains("at 127.0.0.1:1:"), "{said}");
    let no_url = format!("https://:{PASSWORD}@{addr}");
    assert_silent(&[("IDEM_STORE", &no_url)], "ls", 2);
}

#[test]
fn no_password_of_a_database_is_printed() {
    let server = PostgresServer::start();
    let wrong = server.url_as("app", PASSWORD);
    assert_silent(&[("IDEM_STORE", &wrong)], "doctor", 3);
    let no_number = format!("postgres://app:{PASSWORD}@localhost:port/db");
    assert_silent(&[("IDEM_STORE", &no_number)], "ls", 3);
}
