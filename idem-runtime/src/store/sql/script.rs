//! The last statement of a script, for clients that send it alone.

/// Splits a script before its last statement.
pub(super) fn split_last(script: &str) -> (&str, &str) {
    let script = script.trim_end().trim_end_matches(';');
    let (mut begins, mut quote) = (0, None);
    for (at, character) in script.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            None if matches!(character, '\'' | '"' | '`') => quote = Some(character),
            None if character == ';' => begins = at + 1,
            Some(_) | None => {}
        }
    }
    (&script[..begins], script[begins..].trim_start())
}

/// The result of a statement of a script.
#[derive(Debug, PartialEq)]
pub(super) enum Returns {
    Rows,
    Count,
    Nothing,
}

impl Returns {
    /// By its first word.
    ///
    /// A script has texts in hexadecimal digits only.
    pub(super) fn of(statement: &str) -> Self {
        let word = statement
            .split_ascii_whitespace()
            .next()
            .unwrap_or_default();
        match word.to_ascii_uppercase().as_str() {
            "PRAGMA" | "SELECT" | "SHOW" | "WITH" => Self::Rows,
            "DELETE" | "INSERT" | "SET" | "UPDATE" if statement.contains(" RETURNING ") => {
                Self::Rows
            }
            "DELETE" | "INSERT" | "UPDATE" => Self::Count,
            // MariaDB's `SET STATEMENT … FOR UPDATE …`.
            "SET" if statement.contains(" FOR UPDATE ") => Self::Count,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_statement_is_split_off() {
        for (script, others, last) in [
            ("SELECT 1", "", "SELECT 1"),
            ("BEGIN; SELECT 1;\n", "BEGIN;", "SELECT 1"),
            ("A; B; C", "A; B;", "C"),
            (
                "A; SELECT x'3b', `a;b`, \"c;d\"",
                "A;",
                "SELECT x'3b', `a;b`, \"c;d\"",
            ),
            ("SELECT 'it''s; here'", "", "SELECT 'it''s; here'"),
        ] {
            assert_eq!(split_last(script), (others, last), "{script}");
        }
    }

    #[test]
    fn a_statement_returns_rows_or_a_number_or_nothing() {
        for (statement, returns) in [
            ("SELECT 1 FOR UPDATE", Returns::Rows),
            ("\n  select 1", Returns::Rows),
            ("PRAGMA busy_timeout = 5", Returns::Rows),
            ("INSERT INTO t VALUES (1) RETURNING a", Returns::Rows),
            (
                "SET STATEMENT a = 0 FOR INSERT INTO t VALUES (1) RETURNING a",
                Returns::Rows,
            ),
            ("SET STATEMENT a = 0 FOR UPDATE t SET a = 1", Returns::Count),
            ("UPDATE t SET a = 1", Returns::Count),
            ("SET a = 1", Returns::Nothing),
            ("SAVEPOINT a", Returns::Nothing),
            ("", Returns::Nothing),
        ] {
            assert_eq!(Returns::of(statement), returns, "{statement}");
        }
    }
}
