//! The statements of the store.
//!
//! All dialects share them, except those of a [`Backend`](super::Backend): the claim is `const CLAIM` of `postgres.rs`,
//! `mysql.rs` and `sqlite.rs`, as are `INSERT` and `PURGE`. [`Statements::new`] fills in the table, the clock and the
//! columns of all of them.
//!
//! `{t}` is the table, `{now}` the database's clock, `?1` the first argument. Times are microseconds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::backend::SqlDriver;
use super::read_batch::queue::MAX_READS;
#[cfg(feature = "sqlite")]
use super::sqlite::group_commit::multi_row::{self, MultiRowStatement};
use super::statement::{BatchStatement, Statement, StatementKind};
use crate::record::{LAYOUT, LAYOUT_ATTEMPTS, LAYOUT_STEPS};

impl Statement {
    pub(crate) fn new<B: SqlDriver>(
        kind: StatementKind,
        text: &str,
        table: &str,
        most: usize,
    ) -> Self {
        let text = filled::<B>(text, table, most);
        let (text, order) = match kind {
            #[cfg(feature = "mysql")]
            StatementKind::Script => (text, Vec::new()),
            _ => B::parameters(&text),
        };
        Self {
            text: text.into(),
            order: order.into(),
            kind,
            is_known: AtomicBool::new(false),
            #[cfg(feature = "sqlite")]
            multi_row: None,
            batch: None,
        }
    }
}

/// How long a batch waits for a row, in milliseconds.
///
/// Longer than a commit of another batch takes, and shorter than a server waits until it looks for a deadlock.
const BATCH_PATIENCE: &str = "50";

/// A write without consequence.
const TOUCH: &str = "UPDATE {t} SET version = version + 1 WHERE record_key = ?1";

/// A text with the table, the clock and the columns filled in.
///
/// Of an answer of more bytes than `most` only the length is sent, and nothing of it is read if the server can
/// determine the length without.
pub(super) fn filled<B: SqlDriver>(text: &str, table: &str, most: usize) -> String {
    let text = text.replace("{columns}", COLUMNS);
    let text = text
        .replace("{answer}", ANSWER)
        .replace("{answer_bytes}", B::BODY_BYTES);
    let text = text.replace("{most}", &most.to_string());
    text.replace("{t}", table).replace("{now}", B::NOW)
}

/// The columns of [`Row`](super::row::Row), in its order.
const COLUMNS: &str = "layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, {answer} AS body, \
     expires_us - {now} AS left_us, {now} AS now_us, version, {answer_bytes} AS body_bytes";

const ANSWER: &str = "CASE WHEN length(body) <= {most} THEN body END";

const READ: &str = "SELECT {columns} FROM {t} WHERE record_key = ?1";

/// Replaces a record, unless it has changed since it was read.
const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, body = ?10, \
     expires_us = CASE WHEN ?11 < 0 THEN expires_us ELSE {now} + ?11 END, version = version + 1 \
     WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14{bounded}";

/// Completes the claim of an owner. All other cases are decided after a read.
///
/// An answer replaces a journal; a record that keeps one is none of its cases.
const COMPLETE: &str = "UPDATE {t} SET layout = 50, state = ?2, detail = ?3, retain_ms = ?4, body = ?5, \
     expires_us = {now} + ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?7 AND fence = ?8 AND attempts = ?9 AND fingerprint = ?10 \
     AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// As `COMPLETE`, in the transaction of the claim, whose record no other transaction sees.
const COMPLETE_WITHIN: &str = "UPDATE {t} SET layout = 50, state = ?2, detail = ?3, retain_ms = ?4, body = ?5, \
     expires_us = {now} + ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?7 AND fence = ?8{during}";

/// `{date}` is the time, which is returned.
const RENEW: &str = "UPDATE {t} SET expires_us = {date} + ?2, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?3 AND fence = ?4 AND retain_ms = ?5 \
     AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// Writes a journal, unless the record has a longer one: that of a later append.
const APPEND: &str = "UPDATE {t} SET expires_us = {date} + ?2, layout = 51, body = ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?3 AND fence = ?4 AND retain_ms = ?5 \
     AND (layout = 50 OR layout IN (51, 52) AND length(body) <= ?7) \
     AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// Each column is read before it is written.
///
/// MySQL assigns from left to right, and a later expression sees an earlier assignment.
const RELEASE: &str = "UPDATE {t} SET state = 'R', version = version + 1, \
     fingerprint = CASE WHEN attempts <= ?4 AND layout <> 51 THEN ?5 ELSE fingerprint END, \
     retain_ms = CASE WHEN attempts > ?4 OR layout = 51 THEN retain_ms WHEN detail < ?6 THEN ?6 ELSE detail END, \
     expires_us = CASE WHEN attempts > ?4 OR layout = 51 THEN expires_us ELSE {now} + \
     CASE WHEN detail < ?6 THEN ?6 ELSE detail END * 1000 END, \
     detail = 0, \
     attempts = CASE WHEN attempts > ?3 THEN attempts - ?3 ELSE 0 END \
     WHERE record_key = ?1 AND owner = ?2 AND layout IN (50, 51, 52) AND state = 'P' AND expires_us > {now}{bounded}";

/// As `RELEASE`, with a journal of attempts alone, of a record without steps.
const RELEASE_WITH_ATTEMPTS: &str = "UPDATE {t} SET state = 'R', version = version + 1, layout = 52, body = ?7, \
     fingerprint = CASE WHEN attempts <= ?4 THEN ?5 ELSE fingerprint END, \
     retain_ms = CASE WHEN attempts > ?4 THEN retain_ms WHEN detail < ?6 THEN ?6 ELSE detail END, \
     expires_us = CASE WHEN attempts > ?4 THEN expires_us ELSE {now} + \
     CASE WHEN detail < ?6 THEN ?6 ELSE detail END * 1000 END, \
     detail = 0, \
     attempts = CASE WHEN attempts > ?3 THEN attempts - ?3 ELSE 0 END \
     WHERE record_key = ?1 AND owner = ?2 AND layout IN (50, 52) AND state = 'P' AND expires_us > {now}{bounded}";

/// All statements, for one table.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) claim: Statement,
    pub(crate) read: Statement,
    /// The same for several keys: each for twice as many, unless they are one parameter.
    several: Vec<Statement>,
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
    pub(crate) fn new<B: SqlDriver>(table: &str, patience: Duration, most: usize) -> Self {
        #[allow(unused_mut, reason = "it is changed where one database is a feature")]
        let mut all = Self::each::<B>(table, patience, most);
        #[cfg(feature = "sqlite")]
        if B::GROUPS {
            let fill = |text: &str| filled::<B>(text, table, 0);
            all.claim.multi_row = Some(MultiRowStatement::new(multi_row::CLAIM, fill));
            all.complete.multi_row = Some(MultiRowStatement::new(multi_row::COMPLETE, fill));
        }
        all
    }

    /// Adds the statements for several calls, each with arguments of `most_bytes` at most.
    pub(crate) fn add_batches<B: SqlDriver>(&mut self, table: &str, most_bytes: usize) {
        let bounded = B::BOUNDED.replace("{patience}", BATCH_PATIENCE);
        let of = |kind, text: &str| {
            let text = filled::<B>(&text.replace("{bounded}", &bounded), table, 0);
            // With arrays it is one statement for any number of calls, and otherwise a template.
            let text = if B::ARRAYS {
                B::parameters(&text).0
            } else {
                text
            };
            let statement = Statement {
                text: text.into(),
                order: Arc::default(),
                kind,
                is_known: AtomicBool::new(false),
                #[cfg(feature = "sqlite")]
                multi_row: None,
                batch: None,
            };
            Some(Arc::new(BatchStatement {
                statement,
                most_bytes,
            }))
        };
        if let Some((claim, complete)) = B::BATCHES {
            self.claim.batch = of(StatementKind::Grants, claim);
            self.complete.batch = of(StatementKind::Execute, complete);
        }
    }

    fn each<B: SqlDriver>(table: &str, patience: Duration, most: usize) -> Self {
        let patience = patience.as_millis().clamp(1, 3_600_000).to_string();
        let bounded = B::BOUNDED.replace("{patience}", &patience);
        let of = |kind, text: &str| {
            Statement::new::<B>(kind, &text.replace("{bounded}", &bounded), table, most)
        };
        let fetch = |text: &str| of(StatementKind::Fetch, text);
        let execute = |text: &str| of(StatementKind::Execute, text);
        let dated = |text: &str| {
            let (date, end) = B::DATED;
            let text = format!("{text}{end}").replace("{date}", date);
            of(
                if end.is_empty() {
                    StatementKind::Execute
                } else {
                    StatementKind::Grant
                },
                &text,
            )
        };
        Self {
            claim: of(B::CLAIM.kind, B::CLAIM.text),
            read: fetch(READ),
            several: several::<B>(table, most),
            insert: execute(B::INSERT),
            replace: execute(REPLACE),
            complete: execute(COMPLETE),
            complete_within: execute(&COMPLETE_WITHIN.replace("{during}", B::DURING)),
            renew: dated(RENEW),
            append: dated(APPEND),
            complete_with_attempts: execute(&COMPLETE.replace("layout = 50", "layout = 52")),
            release: execute(RELEASE),
            release_with_attempts: execute(RELEASE_WITH_ATTEMPTS),
            purge: execute(B::PURGE),
            touch: execute(TOUCH),
            list: of(StatementKind::Block, &list()),
        }
    }
}

impl Statements {
    /// The statement that reads this number of records at once.
    pub(crate) fn several(&self, primary_keys: usize) -> &Statement {
        let index = primary_keys.max(1).next_power_of_two().ilog2() as usize;
        &self.several[index.min(self.several.len() - 1)]
    }
}

/// The statements for several keys.
///
/// If each key is a parameter, there is a statement for each power of two; surplus parameters repeat a key.
fn several<B: SqlDriver>(table: &str, most: usize) -> Vec<Statement> {
    let of = |width: usize| {
        let primary_keys = vec!["?"; width].join(", ");
        let text = B::SEVERAL.replace("{places}", &primary_keys);
        Statement {
            text: filled::<B>(&text, table, most).into(),
            order: vec![0; width].into(),
            kind: StatementKind::Several,
            is_known: AtomicBool::new(false),
            #[cfg(feature = "sqlite")]
            multi_row: None,
            batch: None,
        }
    };
    let most = if B::ARRAYS { 0 } else { MAX_READS.ilog2() };
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
pub(super) fn probe<B: SqlDriver>(table: &str) -> Statement {
    let text = "SELECT {columns}, op FROM {t} WHERE record_key = ?1";
    Statement::new::<B>(StatementKind::Fetch, text, table, 0)
}

/// Makes every record older by `?1`.
#[cfg(any(test, feature = "testing"))]
pub(super) fn age<B: SqlDriver>(table: &str) -> Statement {
    let text = "UPDATE {t} SET expires_us = expires_us - ?1, version = version + 1";
    Statement::new::<B>(StatementKind::Execute, text, table, 0)
}

/// Deletes a record.
#[cfg(any(test, feature = "testing"))]
pub(super) fn forget<B: SqlDriver>(table: &str) -> Statement {
    let text = "DELETE FROM {t} WHERE record_key = ?1";
    Statement::new::<B>(StatementKind::Execute, text, table, 0)
}
