//! The worker of the harness's own tests: a process with one server, to be killed.

use std::io::{self, Write};
use std::{env, thread};

use idem_harness::{PostgresServer, Server, until};

#[path = "../kinds.rs"]
mod kinds;

/// Keeps the process of a connection busy: it reacts only to signals.
const BUSY: &str = "DO $$ BEGIN LOOP END LOOP; END $$";
const PID: &str =
    "SELECT pid::text FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'";

fn say(line: &str) {
    writeln!(io::stdout(), "{line}").expect("stdout is read");
}

fn main() {
    let name = env::args().nth(1).expect("a kind of server, or `busy`");
    if name == "busy" {
        let server = PostgresServer::start();
        thread::scope(|scope| {
            scope.spawn(|| server.try_execute(BUSY));
            let pid = until("a connection is busy", || {
                Some(server.execute(PID))
                    .filter(|pid| !pid.is_empty())
                    .ok_or("none is")
            });
            say(&format!("busy {pid}"));
            serve(&server);
        });
    }
    let mut kinds = kinds::KINDS.iter();
    let (_, start) = kinds
        .find(|(kind, _)| *kind == name)
        .expect("a kind of server");
    serve(&start());
}

/// Prints the server's address and directory, and pauses it at first input.
fn serve(server: &Server) -> ! {
    say(&format!("addr {}", server.addr()));
    say(&format!("dir {}", server.dir().display()));
    let mut line = String::new();
    io::stdin().read_line(&mut line).expect("stdin is text");
    server.pause();
    say("paused");
    loop {
        thread::park();
    }
}
