//! A table of text.

use std::io::{self, Write};

use crate::text::{printed, shortened};

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

    /// Makes the table as narrow as `columns`, if it can: it leaves out expendable columns, the first one first, as long
    /// as the names in the column `name.0` would be cut to fewer than `name.1` characters, and then cuts the names.
    pub(crate) fn fit(&mut self, columns: usize, name: (&str, usize), expendable: &[&str]) {
        let (name, least) = name;
        let mut expendable = expendable.iter();
        let (place, room) = loop {
            // The place changes with each column that is left out before it.
            let Some(place) = self.columns.iter().position(|(head, _)| *head == name) else {
                return;
            };
            let widths = self.widths();
            let others: usize =
                widths.iter().map(|width| width + GAP).sum::<usize>() - widths[place] - GAP;
            let room = columns.saturating_sub(others);
            if room >= widths[place].min(least) {
                break (place, room);
            }
            let Some(head) = expendable.next() else {
                break (place, room);
            };
            if let Some(place) = self.columns.iter().position(|(known, _)| known == head) {
                self.remove(place);
            }
        };
        for row in &mut self.rows {
            row[place] = shortened(&row[place], room);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_cuts_the_names_and_nothing_else() {
        let mut table = Table::new(&[
            ("STATE", Align::Left),
            ("OPERATION", Align::Left),
            ("DIGEST", Align::Left),
        ]);
        let digest = "d".repeat(43);
        let name = "com.example.payments.charge".to_owned();
        table.row(vec!["unknown".to_owned(), name, digest.clone()]);
        table.fit(60, ("OPERATION", 15), &["STATE"]);
        let lines = table.lines();
        assert_eq!(lines[1], format!("com.exa….charge  {digest}"));
    }
}
