//! Text for people on stdout, or JSON for programs.

use std::io::{self, IsTerminal as _, Write};

use serde_json::Value;

use crate::failure::Failure;

/// Where the command writes.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Writes text.
    pub(crate) fn text(
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        write(&mut out)?;
        Ok(out.flush()?)
    }

    /// Writes a document.
    pub(crate) fn document(document: &Value) -> Result<(), Failure> {
        Self::text(|out| writeln!(out, "{document:#}"))
    }

    /// Writes a document on a line.
    pub(crate) fn line(document: &Value) -> Result<(), Failure> {
        Self::text(|out| writeln!(out, "{document}"))
    }

    /// Shows progress on a terminal, over the last one.
    pub(crate) fn progress(text: &str) {
        let mut out = io::stderr();
        if out.is_terminal() {
            let _ = write!(out, "\r\x1b[2K{text}");
            let _ = out.flush();
        }
    }
}
