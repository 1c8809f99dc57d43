//! No password is printed, whatever goes wrong.

use idem_harness::{PostgresServer, RedisServer};

use crate::command::idem_with;

const PASSWORD: &str = "s3cr3t-of-the-store";

#[test]
fn no_password_is_printed() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let (addr, database) = (server.addr(), PostgresServer::start());
    let by = |password: &str| format!("redis://:{password}@{addr}");
    let (with, wrong) = (by(PASSWORD), by(&format!("{PASSWORD}-wrong")));
    let without = format!("redis://{addr}");
    for (store, password, line, code, says) in [
        (&*with, None, "doctor", 0, ":***@"),
        (&with, None, "stats", 0, "no records"),
        (&with, None, "--help", 0, "--store"),
        (&wrong, None, "ls", 3, ""),
        (&with, None, "ls --rate 0", 2, "--rate"),
        (&without, None, "ls", 3, "requires a password"),
        (&without, Some(PASSWORD), "ls", 0, "no such records"),
        (&without, Some(PASSWORD), "--help", 0, "--store"),
        (&with, Some(PASSWORD), "ls", 2, "leave one of them out"),
        (
            &format!("redis://:{PASSWORD}@127.0.0.1:1"),
            None,
            "--timeout 200ms ls",
            3,
            "at 127.0.0.1:1:",
        ),
        (&format!("https://:{PASSWORD}@{addr}"), None, "ls", 2, ""),
        (&database.url_as("app", PASSWORD), None, "doctor", 3, ""),
        (
            &format!("postgres://app:{PASSWORD}@localhost:port/db"),
            None,
            "ls",
            3,
            "",
        ),
    ] {
        let password = password.map(|password| ("IDEM_PASSWORD", password));
        // As an option, which the list of processes shows, and as a variable.
        let variables = [("IDEM_STORE", store)].into_iter().chain(password);
        let by_variable = idem_with(&variables.collect::<Vec<_>>(), line);
        let by_option = idem_with(password.as_slice(), &format!("--store {store} {line}"));
        for ran in [by_variable, by_option] {
            let said = format!("{}{}", ran.out, ran.err);
            assert!(!said.contains(PASSWORD) && said.contains(says), "{said}");
            assert_eq!(ran.code, code, "{said}");
        }
    }
}
