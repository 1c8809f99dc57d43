//! The statements of the store.
//!
//! All databases share them, except those of a [`Dialect`]. [`Statements::new`] fills in the table, the clock and the
//! columns of all of them.
//!
//! `{t}` is the table, `{record}` the table with its columns, `{now}` the database's clock, `?1` the first argument.
//! Times are microseconds.

use std::time::Duration;

use super::dialect::{Dialect, StatementKind};
use super::statement::{BatchStatement, MAX_CALLS, Statement};
use super::template::positional;
use crate::record::{LAYOUT, LAYOUT_ATTEMPTS, LAYOUT_STEPS};

/// How long a batch waits for a row, in milliseconds.
///
/// Longer than a commit of another batch takes, and shorter than a server waits until it looks for a deadlock.
const BATCH_PATIENCE: &str = "50";

/// A write without consequence.
const TOUCH: &str = "UPDATE {t} SET version = version + 1 WHERE record_key = ?1";

impl Dialect {
    /// A text with the table, the clock and the columns filled in.
    ///
    /// Of an answer of more bytes than `most` only the length is sent, and nothing of it is read if the server can
    /// determine the length without.
    pub(super) fn filled(&self, text: &str, table: &str, most: usize) -> String {
        text.replace("{columns}", COLUMNS)
            .replace("{record}", RECORD)
            .replace("{answer}", ANSWER)
            .replace("{answer_bytes}", self.body_bytes)
            .replace("{most}", &most.to_string())
            .replace("{stored}", self.answer_column)
            .replace("{t}", table)
            .replace("{now}", self.now)
    }

    /// Converts the parameters of a template to the dialect's.
    ///
    /// Returns the text, and the argument of each parameter unless they are numbered.
    fn parameters(&self, template: &str) -> (String, Vec<usize>) {
        if self.numbered {
            (template.replace('?', "$"), Vec::new())
        } else {
            positional(template)
        }
    }

    fn statement(&self, kind: StatementKind, text: &str, table: &str, most: usize) -> Statement {
        let text = self.filled(text, table, most);
        let (text, order) = match kind {
            StatementKind::Script => (text, Vec::new()),
            _ => self.parameters(&text),
        };
        Statement::new(kind, text, order)
    }
}

/// The table and the columns of an inserted record.
const RECORD: &str = "{t} (record_key, op, layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, \
     {stored}, expires_us, version)";

/// The columns of [`Row`](super::row::Row), in its order.
const COLUMNS: &str = "layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, {answer} AS {stored}, \
     expires_us - {now} AS left_us, {now} AS now_us, version, {answer_bytes} AS body_bytes";

const ANSWER: &str = "CASE WHEN length({stored}) <= {most} THEN {stored} END";

pub(super) const READ: &str = "SELECT {columns} FROM {t} WHERE record_key = ?1";

/// Replaces a record, unless it has changed since it was read.
const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, {stored} = ?10, \
     expires_us = CASE WHEN ?11 < 0 THEN expires_us ELSE {now} + ?11 END, version = version + 1 \
     WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14{bounded}";

/// The rest of a condition: the record is claimed, and its lease may be over, but not its life.
const CLAIMED: &str =
    " AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// Completes the claim of an owner. All other cases are decided after a read.
///
/// An answer replaces a journal; a record that keeps one is none of its cases.
const COMPLETE: &str = "UPDATE {t} SET layout = 50, state = ?2, detail = ?3, retain_ms = ?4, {stored} = ?5, \
     expires_us = {now} + ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?7 AND fence = ?8{held}";

const HELD: &str = " AND attempts = ?9 AND fingerprint = ?10{claimed}";

/// `{date}` is the time, which is returned.
const RENEW: &str = "UPDATE {t} SET expires_us = {date} + ?2, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?3 AND fence = ?4 AND retain_ms = ?5{claimed}";

/// Writes a journal, unless the record has a longer one: that of a later append.
const APPEND: &str = "UPDATE {t} SET expires_us = {date} + ?2, layout = 51, {stored} = ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?3 AND fence = ?4 AND retain_ms = ?5 \
     AND (layout = 50 OR length({stored}) <= ?7){claimed}";

/// Each column is read before its write, unless both values decide alike.
///
/// MySQL assigns from left to right, and a later expression sees an earlier assignment.
const RELEASE: &str = "UPDATE {t} SET state = 'R', version = version + 1{written}, \
     fingerprint = CASE WHEN attempts <= ?4 AND layout <> 51 THEN ?5 ELSE fingerprint END, \
     retain_ms = CASE WHEN attempts > ?4 OR layout = 51 THEN retain_ms WHEN detail < ?6 THEN ?6 ELSE detail END, \
     expires_us = CASE WHEN attempts > ?4 OR layout = 51 THEN expires_us ELSE {now} + \
     CASE WHEN detail < ?6 THEN ?6 ELSE detail END * 1000 END, \
     detail = 0, \
     attempts = CASE WHEN attempts > ?3 THEN attempts - ?3 ELSE 0 END \
     WHERE record_key = ?1 AND owner = ?2 AND layout IN (50, 51, 52) AND state = 'P' AND expires_us > {now}{bounded}";

/// As `RELEASE`, with a journal of attempts and no steps.
fn release_with_attempts() -> String {
    RELEASE
        .replace("{written}", ", layout = 52, {stored} = ?7")
        .replace("(50, 51, 52)", "(50, 52)")
}

/// All statements, for one table.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) claim: Statement,
    pub(crate) read: Statement,
    pub(crate) insert: Statement,
    pub(crate) replace: Statement,
    pub(crate) complete: Statement,
    pub(crate) complete_within: Statement,
    pub(crate) renew: Statement,
    pub(crate) append: Statement,
    /// The same, of an answer behind which the attempts are remembered.
    pub(crate) complete_with_attempts: Statement,
    pub(crate) release: Statement,
    pub(crate) release_with_attempts: Statement,
    pub(crate) purge: Statement,
    pub(crate) touch: Statement,
    pub(crate) list: Statement,
}

impl Statements {
    /// The statements for one table.
    ///
    /// No statement waits for a row for longer than `patience`, if the database supports such a limit, and none reads
    /// an answer of more than `most` bytes.
    pub(crate) fn new(dialect: &Dialect, table: &str, patience: Duration, most: usize) -> Self {
        let patience = patience.as_millis().clamp(1, 3_600_000).to_string();
        let bounded = dialect.bounded.replace("{patience}", &patience);
        let of = |kind, text: &str| {
            let text = text.replace("{claimed}", CLAIMED);
            let mut one =
                dialect.statement(kind, &text.replace("{bounded}", &bounded), table, most);
            if dialect.has_one_writer && !one.only_reads() {
                one.batch = Some(BatchStatement::new(for_each(&one), usize::MAX));
            }
            one
        };
        let execute = |text: &str| of(StatementKind::Execute, text);
        let dated = |text: &str| {
            let (date, end) = dialect.dated;
            let kind = if end.is_empty() {
                StatementKind::Execute
            } else {
                StatementKind::Grant
            };
            of(kind, &format!("{text}{end}").replace("{date}", date))
        };
        let complete = COMPLETE.replace("{held}", HELD);
        Self {
            claim: of(dialect.claim.0, dialect.claim.1),
            read: Statement {
                batch: Some(BatchStatement::of_reads(several(dialect, table, most))),
                ..of(StatementKind::Fetch, READ)
            },
            insert: execute(dialect.insert),
            replace: execute(REPLACE),
            complete: execute(&complete),
            // In the transaction of the claim, whose record no other transaction sees.
            complete_within: execute(&COMPLETE.replace("{held}", dialect.during)),
            renew: dated(RENEW),
            append: dated(APPEND),
            complete_with_attempts: execute(&complete.replace("layout = 50", "layout = 52")),
            release: execute(&RELEASE.replace("{written}", "")),
            release_with_attempts: execute(&release_with_attempts()),
            purge: execute(dialect.purge),
            touch: execute(TOUCH),
            list: of(StatementKind::Block, &list()),
        }
    }

    /// Adds the statements for several calls, of `most_bytes` of arguments together.
    ///
    /// A group commit has no such limit: a write that is not part of one competes with it for the file.
    pub(crate) fn add_batches(&mut self, dialect: &Dialect, table: &str, most_bytes: usize) {
        let is_grouped = dialect.has_one_writer;
        let most_bytes = if is_grouped { usize::MAX } else { most_bytes };
        let bounded = dialect.bounded.replace("{patience}", BATCH_PATIENCE);
        let of = |kind, text: &str| {
            let text = dialect.filled(&text.replace("{bounded}", &bounded), table, 0);
            // With arrays it is one statement for any number of calls, and otherwise a template.
            let (text, order) = if dialect.numbered || is_grouped {
                dialect.parameters(&text)
            } else {
                (text, Vec::new())
            };
            Statement::new(kind, text, order)
        };
        if let Some((claim, complete)) = dialect.batches {
            self.claim.batch = Some(if is_grouped {
                // Faster than a statement that returns a row for each call.
                let all = of(StatementKind::Execute, claim);
                BatchStatement::or_each(all, for_each(&self.claim))
            } else {
                BatchStatement::new(of(StatementKind::Grants, claim), most_bytes)
            });
            // A caller that finds its own answer in the record has stored it.
            let complete = of(StatementKind::Execute, complete);
            self.complete.batch = Some(BatchStatement::new(complete, most_bytes));
        }
    }
}

/// In a group commit, a statement for each of several calls.
fn for_each(one: &Statement) -> Statement {
    Statement::new(one.kind, format!("[;|{}]", one.text), one.order.to_vec())
}

/// The statements for several keys.
///
/// If each key is a parameter, there is a statement for each power of two; surplus parameters repeat a key.
fn several(dialect: &Dialect, table: &str, most: usize) -> Vec<Statement> {
    let of = |width: usize| {
        let places = vec!["?1"; width].join(", ");
        let text = dialect.several.replace("{places}", &places);
        dialect.statement(StatementKind::Several, &text, table, most)
    };
    let most = if dialect.numbered {
        0
    } else {
        MAX_CALLS.ilog2()
    };
    (0..=most).map(|power| of(1 << power)).collect()
}

/// The states that this version knows. Every row in another state is read, to be counted.
const KNOWN: &str = "PWRQDEUT";

/// Reads a block of a listing.
///
/// `?1` the first primary key, `?2` the last one, `?3` the number of rows, `?4` the states, all if it is empty, `?5`
/// the least attempts.
fn list() -> String {
    // The answer is left out, because it may be large. The column in its place is one of bytes, and not of the answer's
    // type, because a server keeps no intermediate result of that type in memory.
    let columns = COLUMNS
        .replace("{answer} AS", "CASE WHEN 1 = 0 THEN fingerprint END AS")
        .replace("{answer_bytes} AS", "CASE WHEN 1 = 0 THEN version END AS");
    format!(
        "WITH block AS (SELECT {columns}, record_key, op FROM {{t}} \
         WHERE record_key >= ?1 AND record_key <= ?2 ORDER BY record_key LIMIT ?3) \
         SELECT * FROM block WHERE layout NOT IN ({LAYOUT}, {LAYOUT_STEPS}, {LAYOUT_ATTEMPTS}) OR REPLACE('{KNOWN}', state, '') = '{KNOWN}' \
         OR ((?4 = '' OR REPLACE(?4, state, '') <> ?4) AND attempts >= ?5) \
         OR record_key = (SELECT record_key FROM block ORDER BY record_key DESC LIMIT 1) \
         ORDER BY record_key"
    )
}

/// Succeeds if all columns exist.
pub(super) fn probe(dialect: &Dialect, table: &str) -> Statement {
    let text = "SELECT {columns}, op FROM {t} WHERE record_key = ?1";
    dialect.statement(StatementKind::Fetch, text, table, 0)
}

/// Makes every record older by `?1`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn age(dialect: &Dialect, table: &str) -> Statement {
    let text = "UPDATE {t} SET expires_us = expires_us - ?1, version = version + 1";
    dialect.statement(StatementKind::Execute, text, table, 0)
}

/// Deletes a record.
#[cfg(any(test, feature = "testing"))]
pub(super) fn forget(dialect: &Dialect, table: &str) -> Statement {
    let text = "DELETE FROM {t} WHERE record_key = ?1";
    dialect.statement(StatementKind::Execute, text, table, 0)
}
