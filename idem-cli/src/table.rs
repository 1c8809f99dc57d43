//! A table of text.

use std::io::{self, Write};

use crate::text::printed;

/// A column, as wide as its widest cell. The first cell is its head.
pub(crate) struct Column {
    is_right: bool,
    cells: Vec<String>,
}

impl Column {
    pub(crate) fn left(head: &str, cells: impl Iterator<Item = String>) -> Self {
        let cells = [head.to_owned()].into_iter().chain(cells);
        Self {
            is_right: false,
            cells: cells.map(|cell| printed(&cell)).collect(),
        }
    }

    pub(crate) fn right(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            is_right: true,
            ..Self::left(head, cells)
        }
    }

    /// Whether each cell has this text.
    pub(crate) fn is_all(&self, text: &str) -> bool {
        self.cells[1..].iter().all(|cell| cell == text)
    }
}

/// Writes columns of equally many cells side by side.
pub(crate) fn write(out: &mut dyn Write, columns: &[Column]) -> io::Result<()> {
    let widths = columns.iter().map(|column| {
        let widths = column.cells.iter().map(|cell| cell.chars().count());
        widths.max().unwrap_or_default()
    });
    let widths: Vec<_> = widths.collect();
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        let cells = columns.iter().zip(&widths).map(|(column, width)| {
            let cell = &column.cells[row];
            let padding = " ".repeat(width - cell.chars().count());
            if column.is_right {
                padding + cell
            } else {
                cell.to_owned() + &padding
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
