//! A change is made only after a yes.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Asks on a terminal; refuses without one.
pub(crate) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing was changed: stdin is no terminal, so that the change cannot be confirmed; repeat with --yes",
        ));
    }
    let mut out = io::stderr();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::refused("nothing was changed")),
    }
}
