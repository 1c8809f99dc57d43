//! The table of a run.

use std::fmt;

use super::result::RowResult;
use super::row::Row;
use super::specification::Specification;

/// The table of a run: each row of a specification, and what its test found.
#[derive(Clone, Debug)]
#[must_use = "a report is to be read"]
pub struct Report {
    specification: Specification,
    results: Vec<RowResult>,
}

impl Report {
    pub(super) fn new(specification: Specification, results: Vec<RowResult>) -> Self {
        Self {
            specification,
            results,
        }
    }

    /// The specification.
    #[must_use]
    pub fn specification(&self) -> Specification {
        self.specification
    }

    /// The rows with their results.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Row, &RowResult)> {
        self.specification.rows().iter().zip(&self.results)
    }

    /// The names of the rows that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self
            .rows()
            .filter(|(_, result)| matches!(result, RowResult::Failed { .. }));
        failed.map(|(row, _)| row.name).collect()
    }

    /// The table in Markdown, for a page.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut page =
            String::from("| section | force | sentence | test | result |\n|---|---|---|---|---|\n");
        for (row, result) in self.rows() {
            let cells = [
                row.section.to_owned(),
                row.level.to_string(),
                row.sentence.to_owned(),
                row.test(),
                result.to_string(),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
            page.extend(["| ", &cells.join(" | "), " |\n"]);
        }
        page
    }
}

/// The table in plain text: a line for each row, and one more for each result that needs words.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let specification = self.specification;
        writeln!(f, "{specification}: {}", specification.title())?;
        let width = |of: fn(&Row) -> usize| specification.rows().iter().map(of).max();
        let sections = width(|row| row.section.chars().count()).unwrap_or(0);
        let names = width(|row| row.name.len()).unwrap_or(0);
        let mut counts = [0; 4];
        for (row, result) in self.rows() {
            let (count, word, more) = match result {
                RowResult::Passed => (0, "passed", vec![]),
                RowResult::Failed { expected, got } => (
                    1,
                    "FAILED",
                    vec![
                        format!("test:     {}", row.test()),
                        format!("expected: {expected}"),
                        format!("got:      {got}"),
                    ],
                ),
                RowResult::NotChecked(why) if row.has_test() => {
                    (2, "not checked", vec![format!("needs {why}")])
                }
                RowResult::NotChecked(why) => (2, "not checked", vec![why.to_string()]),
                RowResult::CannotBeMet(why) => (3, "cannot be met", vec![(*why).to_owned()]),
            };
            counts[count] += 1;
            let (section, level, name, sentence) = (row.section, row.level, row.name, row.sentence);
            writeln!(
                f,
                "{word:<13}  {section:<sections$}  {level:<6}  {name:<names$}  {sentence}"
            )?;
            for line in more {
                writeln!(f, "{:15}{line}", "")?;
            }
        }
        let [passed, failed, unchecked, cannot] = counts;
        write!(
            f,
            "{passed} passed, {failed} failed, {unchecked} not checked, {cannot} cannot be met"
        )
    }
}
