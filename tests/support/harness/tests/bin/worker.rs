//! The worker of the harness's own tests.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::{env, thread};

#[path = "../kinds.rs"]
mod kinds;

fn main() -> ExitCode {
    let mut out = io::stdout();
    let mut say = |line: &str| writeln!(out, "{line}").expect("stdout is read");
    match env::args().nth(1).as_deref() {
        Some("echo") => {
            let name = env::var("WORKER_NAME").unwrap_or_default();
            say(&format!("hello {name}"));
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                say(&format!("echo {line}"));
            }
            ExitCode::from(7)
        }
        Some("fail") => panic!("the reason\n  left: 1\n right: 2"),
        Some(name) => {
            let mut kinds = kinds::KINDS.iter();
            let kind = kinds.find(|kind| kind.name == name);
            let kind = kind.expect("a kind of server");
            let server = (kind.start)();
            assert!(server.log().contains(kind.ready), "{}", server.log());
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
        None => ExitCode::FAILURE,
    }
}
