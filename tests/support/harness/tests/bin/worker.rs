//! The worker of the harness's own tests.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::{env, thread};

use idem_harness::{DatabaseServer, MariaDbServer, PostgresServer, RedisServer};

fn main() -> ExitCode {
    let mut out = io::stdout();
    let mut say = |line: &str| writeln!(out, "{line}").expect("stdout is read");
    match env::args().nth(1).as_deref() {
        Some("echo") => {
            say(&format!(
                "hello {}",
                env::var("WORKER_NAME").unwrap_or_default()
            ));
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                say(&format!("echo {line}"));
            }
            ExitCode::from(7)
        }
        Some("fail") => panic!("the reason\n  left: 1\n right: 2"),
        Some("server") => {
            let server = RedisServer::start();
            if env::args().nth(2).as_deref() == Some("paused") {
                server.pause();
            }
            say(&format!("addr {}", server.addr()));
            say(&format!("dir {}", server.dir().display()));
            loop {
                thread::park();
            }
        }
        Some(name @ ("postgres" | "mariadb")) => {
            let (postgres, mariadb);
            let server: &DatabaseServer = if name == "postgres" {
                postgres = PostgresServer::start();
                &postgres
            } else {
                mariadb = MariaDbServer::start();
                &mariadb
            };
            say(&format!("addr {}", server.addr()));
            say(&format!("dir {}", server.dir().display()));
            // Blocks until the test sends the command to pause the server.
            let mut line = String::new();
            io::stdin().read_line(&mut line).expect("stdin is text");
            server.pause();
            say("paused");
            loop {
                thread::park();
            }
        }
        _ => ExitCode::FAILURE,
    }
}
