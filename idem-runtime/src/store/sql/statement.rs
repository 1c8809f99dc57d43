//! The statements of the store. All dialects share them, except the few that a [`Backend`](super::Backend) has itself.
//!
//! `{t}` is the table, `{now}` the database's clock, `?1` the first argument. Times are microseconds.

#![allow(
    unnameable_types,
    reason = "parts of the backends, which nobody else implements"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::backend::{SqlDriver, SqlText};
use super::listing;
use super::read_batch::queue::WIDEST;
#[cfg(feature = "sqlite")]
use super::sqlite::group_commit::multi_row::{self, MultiRowStatement};

/// A statement before its table is known.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct StatementTemplate {
    pub(crate) text: &'static str,
    pub(crate) kind: StatementKind,
}

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Prepared once a connection; returns at most one row.
    Fetch,
    /// Prepared once a connection; returns a row for each existing record of its places.
    Several,
    /// Planned anew each time, by its arguments; returns a block of a listing.
    Block,
    /// Prepared once a connection; returns the number of changed rows.
    Execute,
    /// As `Execute`, and returns the time at which it changed a row, if it did.
    Grant,
    /// Several statements in one message, with the arguments written into the text.
    #[cfg(feature = "mysql")]
    Script,
}

/// A statement for a table.
#[derive(Debug)]
#[doc(hidden)]
pub struct Statement {
    pub(crate) text: SqlText,
    /// The argument of each parameter, for dialects without numbered parameters.
    pub(crate) order: Arc<[usize]>,
    pub(crate) kind: StatementKind,
    /// Whether its columns are known to have the expected types.
    pub(crate) is_known: AtomicBool,
    /// The statement that does the same for several calls.
    #[cfg(feature = "sqlite")]
    pub(crate) multi_row: Option<Arc<MultiRowStatement>>,
}

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
        }
    }

    /// Whether it changes nothing.
    #[cfg(feature = "sqlite")]
    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self.kind,
            StatementKind::Fetch | StatementKind::Several | StatementKind::Block
        )
    }
}

/// A write without consequence.
const TOUCH: &str = "UPDATE {t} SET version = version + 1 WHERE record_key = ?1";

/// A text with the table, the clock and the columns filled in. Of an answer of more bytes than `most` only the length
/// is sent, and nothing of it is read if the server can determine the length without.
pub(super) fn filled<B: SqlDriver>(text: &str, table: &str, most: usize) -> String {
    let text = text.replace("{columns}", COLUMNS);
    let text = text
        .replace("{answer}", ANSWER)
        .replace("{answer_bytes}", B::BODY_BYTES);
    let text = text.replace("{most}", &most.to_string());
    text.replace("{t}", table).replace("{now}", B::NOW)
}

/// The columns of [`Row`](super::row::Row), in its order.
pub(super) const COLUMNS: &str = "layout, state, owner, fence, attempts, detail, retain_ms, fingerprint, {answer} AS body, \
                       expires_us - {now} AS left_us, {now} AS now_us, version, {answer_bytes} AS body_bytes";

const ANSWER: &str = "CASE WHEN length(body) <= {most} THEN body END";

const READ: &str = "SELECT {columns} FROM {t} WHERE record_key = ?1";

/// Replaces a record, unless it has changed since it was read.
const REPLACE: &str = "UPDATE {t} SET layout = ?2, state = ?3, owner = ?4, fence = ?5, attempts = ?6, \
     detail = ?7, retain_ms = ?8, fingerprint = ?9, body = ?10, \
     expires_us = CASE WHEN ?11 < 0 THEN expires_us ELSE {now} + ?11 END, version = version + 1 \
     WHERE record_key = ?1 AND version = ?12 AND owner = ?13 AND fence = ?14{bounded}";

/// Completes the claim of an owner. All other cases are decided after a read.
const COMPLETE: &str = "UPDATE {t} SET state = ?2, detail = ?3, retain_ms = ?4, body = ?5, \
     expires_us = {now} + ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?7 AND fence = ?8 AND attempts = ?9 AND fingerprint = ?10 \
     AND layout = 50 AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// As `COMPLETE`, in the transaction of the claim, whose record no other transaction sees.
const COMPLETE_WITHIN: &str = "UPDATE {t} SET state = ?2, detail = ?3, retain_ms = ?4, body = ?5, \
     expires_us = {now} + ?6, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?7 AND fence = ?8{during}";

/// `{date}` is the time, which is returned.
const RENEW: &str = "UPDATE {t} SET expires_us = {date} + ?2, version = version + 1 \
     WHERE record_key = ?1 AND owner = ?3 AND fence = ?4 AND retain_ms = ?5 \
     AND layout = 50 AND state IN ('P', 'Q') AND expires_us > {now}{bounded}";

/// Each column is read before it is written.
///
/// MySQL assigns from left to right, and a later expression sees an earlier assignment.
const RELEASE: &str = "UPDATE {t} SET state = 'R', version = version + 1, \
     fingerprint = CASE WHEN attempts <= ?4 THEN ?5 ELSE fingerprint END, \
     retain_ms = CASE WHEN attempts > ?4 THEN retain_ms WHEN detail < ?6 THEN ?6 ELSE detail END, \
     expires_us = CASE WHEN attempts > ?4 THEN expires_us ELSE {now} + \
     CASE WHEN detail < ?6 THEN ?6 ELSE detail END * 1000 END, \
     detail = 0, \
     attempts = CASE WHEN attempts > ?3 THEN attempts - ?3 ELSE 0 END \
     WHERE record_key = ?1 AND owner = ?2 AND layout = 50 AND state = 'P' AND expires_us > {now}{bounded}";

/// `?6` is the fence. An existing record stays.
#[cfg(feature = "sqlite")]
pub(super) const INSERT: &str = "INSERT INTO {t} (record_key, op, layout, state, owner, fence, \
     attempts, detail, retain_ms, fingerprint, body, expires_us, version) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, {now} + ?12, 1) \
     ON CONFLICT (record_key) DO NOTHING";

/// All statements, for one table.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) claim: Statement,
    pub(crate) read: Statement,
    /// The same for several places: each for twice as multi_row, unless they are one parameter.
    several: Vec<Statement>,
    pub(crate) insert: Statement,
    pub(crate) replace: Statement,
    pub(crate) complete: Statement,
    pub(crate) complete_within: Statement,
    pub(crate) renew: Statement,
    pub(crate) release: Statement,
    pub(crate) purge: Statement,
    pub(crate) touch: Statement,
    pub(crate) list: Statement,
    /// [`insert`](Self::insert) and [`replace`](Self::replace) that notify waiting calls.
    pub(crate) insert_told: Statement,
    pub(crate) replace_told: Statement,
}

impl Statements {
    /// `told` is the suffix of a statement that notifies; empty without notifications. No statement waits for a row for
    /// longer than `patience`, if the database supports such a limit, and none reads an answer of more than `most`
    /// bytes.
    pub(crate) fn new<B: SqlDriver>(
        table: &str,
        told: &str,
        patience: Duration,
        most: usize,
    ) -> Self {
        #[allow(unused_mut, reason = "it is changed where one database is a feature")]
        let mut all = Self::each::<B>(table, told, patience, most);
        #[cfg(feature = "sqlite")]
        if B::GROUPS {
            all.claim.multi_row = Some(MultiRowStatement::new::<B>(multi_row::CLAIM, table));
            all.complete.multi_row = Some(MultiRowStatement::new::<B>(multi_row::COMPLETE, table));
        }
        all
    }

    fn each<B: SqlDriver>(table: &str, told: &str, patience: Duration, most: usize) -> Self {
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
        let telling = |text: &str| execute(&format!("{text}{told}"));
        Self {
            claim: of(B::CLAIM.kind, B::CLAIM.text),
            read: fetch(READ),
            several: several::<B>(table, most),
            insert: execute(B::INSERT),
            replace: execute(REPLACE),
            complete: telling(COMPLETE),
            complete_within: telling(&COMPLETE_WITHIN.replace("{during}", B::DURING)),
            renew: dated(RENEW),
            release: telling(RELEASE),
            purge: execute(B::PURGE),
            touch: execute(TOUCH),
            list: of(StatementKind::Block, &listing::statement()),
            insert_told: telling(B::INSERT),
            replace_told: telling(REPLACE),
        }
    }
}

impl Statements {
    /// The statement that reads this number of places at once.
    pub(crate) fn several(&self, primary_keys: usize) -> &Statement {
        let index = primary_keys.max(1).next_power_of_two().ilog2() as usize;
        &self.several[index.min(self.several.len() - 1)]
    }
}

/// The statements for several places.
///
/// If each place is a parameter, there is a statement for each power of two; surplus parameters repeat a place.
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
        }
    };
    let most = if B::ARRAYS { 0 } else { WIDEST.ilog2() };
    (0..=most).map(|power| of(1 << power)).collect()
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
