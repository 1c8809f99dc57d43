//! Text for people on stdout, or JSON for programs.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;

/// Time between two lines of progress.
const APART: Duration = Duration::from_millis(250);

/// Writes text.
pub(crate) fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Writes a document.
pub(crate) fn document(document: &Value) -> Result<(), Failure> {
    text(|out| writeln!(out, "{document:#}"))
}

/// A line of progress on a terminal, a few times in a second; cleared when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            // The first line comes after a while: a short scan shows none.
            shown: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let is_due = self.shown.elapsed() >= APART;
        if self.is_terminal && is_due {
            self.shown = Instant::now();
            let mut out = io::stderr();
            let _ = write!(out, "\r\x1b[2K{}", text());
            let _ = out.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
