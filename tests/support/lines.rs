//! The lines by which a worker and its test talk.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};
use std::{process, thread};

use idem_runtime::store::author::Owner;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Prints a line. A worker whose test is gone ends.
pub fn say(line: &str) {
    if writeln!(io::stdout().lock(), "{line}").is_err() {
        process::exit(1);
    }
}

/// The lines of the standard input.
pub fn heard() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    lines
}

/// A text that no other body can have answered.
pub fn random() -> String {
    let mut text = String::new();
    for byte in Owner::random().as_bytes() {
        write!(text, "{byte:02x}").expect("a string takes anything");
    }
    text
}
