//! A table of text.

use std::io::{self, Write};

use crate::text::printed;

/// Spaces between two columns.
const GAP: usize = 2;

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

    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        for cell in &mut cells {
            *cell = printed(cell);
        }
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
            self.remove(place);
        }
    }

    fn remove(&mut self, place: usize) {
        self.columns.remove(place);
        for row in &mut self.rows {
            row.remove(place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = self.lines();
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// The head and the rows.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let heads: Vec<_> = self.columns.iter().map(|(head, _)| *head).collect();
        let mut lines = vec![self.line(&widths, &heads)];
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(String::as_str).collect();
            lines.push(self.line(&widths, &cells));
        }
        lines
    }

    fn widths(&self) -> Vec<usize> {
        (self.columns.iter().enumerate())
            .map(|(place, (head, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(place));
                let widest = cells.map(|cell| cell.chars().count()).max();
                widest.unwrap_or(0).max(head.chars().count())
            })
            .collect()
    }

    fn line(&self, widths: &[usize], cells: &[&str]) -> String {
        let mut line = String::new();
        for ((&cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let padding = " ".repeat(width - cell.chars().count());
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            match align {
                Align::Left => line.extend([cell, &padding]),
                Align::Right => line.extend([&*padding, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}
