//! `idem watch`: a live view of the records, by sweeps of a bounded pace.
//!
//! A sweep examines every record once. A store with fewer records than the pace allows in an interval is counted anew
//! for each frame; a larger one takes several, and the frame shows the last complete sweep and how far the present one
//! is.
//!
//! A frame is drawn over the one before, with nothing of the terminal changed: what ends the command by a signal leaves
//! nothing to restore.

mod frame;
mod sweep;

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Instant;

use idem_runtime::Engine;
use terminal_size::{Height, Width, terminal_size};
use tokio::time::sleep_until;

use self::frame::{Frame, Screen};
use self::sweep::Sweeper;
use crate::arguments::Watch;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(
    engine: &Engine,
    store: &str,
    verb: &Watch,
    max_attempts: u16,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let mut sweeper = Sweeper::new(engine, verb, max_attempts);
    let draws = !output.json && !verb.once && io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        let until = Instant::now() + verb.interval;
        let advanced = sweeper.advance(until).await;
        if verb.once {
            advanced?;
            // A frame without any reply has nothing to show. The request ends at its own deadline.
            while sweeper.has_nothing() {
                sweeper.advance(Instant::now() + verb.interval).await?;
            }
        }
        let frame = Frame {
            store,
            verb,
            sweeper: &sweeper,
        };
        if output.json {
            Output::line(&frame.json())?;
        } else if draws {
            // Of each frame, because a window changes its size.
            let screen = screen();
            let text = drawn(&frame.lines(screen), screen.filter(|_| is_first));
            Output::text(|out| out.write_all(text.as_bytes()))?;
            is_first = false;
        } else {
            Output::text(|out| {
                let lines = frame.lines(None);
                lines.iter().try_for_each(|line| writeln!(out, "{line}"))
            })?;
        }
        if verb.once {
            return Ok(ExitCode::SUCCESS);
        }
        sleep_until(until.into()).await;
    }
}

/// The size of the terminal, if it has one.
fn screen() -> Option<Screen> {
    let (Width(columns), Height(rows)) = terminal_size()?;
    (columns > 0 && rows > 0).then(|| Screen {
        columns: columns.into(),
        rows: rows.into(),
    })
}

/// A frame over the one before: each line is cleared before it is written, because after a character in the last column
/// the rest of the line is that character; and below the last line the rest of the screen is cleared.
///
/// Before the first frame, what the screen shows is scrolled away.
fn drawn(lines: &[String], scrolled: Option<Screen>) -> String {
    let mut text = "\n".repeat(scrolled.map_or(0, |screen| screen.rows));
    text.push_str("\x1b[H");
    for line in lines {
        let _ = writeln!(text, "\x1b[K{line}");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a character in the last column the cursor stays on it, and a terminal told to clear the rest of the line
    /// clears that character.
    #[test]
    fn a_line_is_cleared_before_it_is_written() {
        let lines = ["wide".to_owned(), String::new()];
        assert_eq!(drawn(&lines, None), "\x1b[H\x1b[Kwide\n\x1b[K\n\x1b[J");
    }
}
