//! A table of text.

use std::io::{self, Write};

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a head, in columns as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Leaves out a column that has this text in each row.
    pub(crate) fn hide(&mut self, head: &str, text: &str) {
        let Some(place) = self.columns.iter().position(|(known, _)| *known == head) else {
            return;
        };
        if self
            .rows
            .iter()
            .all(|row| row.get(place).is_some_and(|cell| cell == text))
        {
            self.columns.remove(place);
            for row in &mut self.rows {
                row.remove(place);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths: Vec<_> = (self.columns.iter().enumerate())
            .map(|(place, (head, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(place));
                let widest = cells.map(|cell| cell.chars().count()).max();
                widest.unwrap_or(0).max(head.chars().count())
            })
            .collect();
        let heads = self.columns.iter().map(|(head, _)| *head);
        self.line(out, &widths, heads)?;
        for row in &self.rows {
            self.line(out, &widths, row.iter().map(String::as_str))?;
        }
        Ok(())
    }

    fn line(
        &self,
        out: &mut dyn Write,
        widths: &[usize],
        cells: impl Iterator<Item = impl AsRef<str>>,
    ) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.zip(widths).zip(&self.columns) {
            let cell = cell.as_ref();
            let padding = " ".repeat(width - cell.chars().count());
            if !line.is_empty() {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.extend([cell, &padding]),
                Align::Right => line.extend([&*padding, cell]),
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}
