//! The worker of the harness's own tests.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::{env, thread};

use idem_harness::RedisServer;

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
        _ => ExitCode::FAILURE,
    }
}
