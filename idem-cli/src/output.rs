//! Text for people on stdout, or JSON for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
use crate::text::{count, duration, printed};

pub(crate) fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Writes text beside the document: on stderr if there is one.
pub(crate) fn beside(
    json: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if json {
        return Ok(write(&mut io::stderr().lock())?);
    }
    text(write)
}

pub(crate) fn document(document: &Value) -> Result<(), Failure> {
    text(|out| writeln!(out, "{document:#}"))
}

/// A column of a table of documents: its head, the member that it shows, and whether it is left out where no document
/// has one.
pub(crate) type Column = (&'static str, &'static str, bool);

/// Writes documents as a table with columns of fitting width.
pub(crate) fn table(out: &mut dyn Write, columns: &[Column], rows: &[Value]) -> io::Result<()> {
    let columns = columns.iter().filter_map(|&(head, member, is_rare)| {
        let cells = rows.iter().map(|row| cell(member, &row[member]));
        let cells: Vec<_> = [head.to_owned()].into_iter().chain(cells).collect();
        let is_empty = cells[1..].iter().all(|cell| cell == "-" || cell == "0");
        let is_number = member.ends_with("_ms") || rows.iter().any(|row| row[member].is_number());
        let width = cells.iter().map(|cell| cell.chars().count()).max()?;
        (!(is_rare && is_empty)).then_some((is_number, width, cells))
    });
    let columns: Vec<_> = columns.collect();
    for row in 0..=rows.len() {
        let cells = columns.iter().map(|&(is_number, width, ref cells)| {
            let cell = &cells[row];
            if is_number {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cell(member: &str, value: &Value) -> String {
    match value {
        Value::String(text) => printed(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Null if member == "left_ms" => "for ever".to_owned(),
        value => match value.as_u64() {
            Some(millis) if member.ends_with("_ms") => duration(Duration::from_millis(millis)),
            Some(number) => count(number),
            None => "-".to_owned(),
        },
    }
}
