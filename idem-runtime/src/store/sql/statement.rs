//! A statement for a table, and the reply to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::argument::Arguments;
use super::dialect::StatementKind;
use super::error::SqlError;
use super::error_kind::SqlErrorKind;
use super::primary_key::{PRIMARY_KEY_LEN, PrimaryKey};
use super::row::Row;
use super::session::{SqlReply, SqlRow, SqlSession, SqlStatement};
use super::template::{with_calls, with_literals};
use crate::store::StoreError;

/// A cheap clone of the text of a statement.
pub(crate) type SqlText = Arc<str>;

/// A statement for a table.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: SqlText,
    /// The argument of each parameter, for dialects without numbered parameters.
    pub(crate) order: Arc<[usize]>,
    pub(crate) kind: StatementKind,
    /// Whether its columns are known to have the expected types.
    pub(super) is_known: AtomicBool,
    /// The statement that does the same for several queued calls.
    pub(crate) batch: Option<Arc<BatchStatement>>,
}

impl Statement {
    pub(crate) fn new(kind: StatementKind, text: impl Into<SqlText>, order: Vec<usize>) -> Self {
        Self {
            text: text.into(),
            order: order.into(),
            kind,
            is_known: AtomicBool::new(false),
            batch: None,
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(
            self.kind,
            StatementKind::Fetch | StatementKind::Several | StatementKind::Block
        )
    }

    /// Sends it on this session; `named`: by a name that the connection keeps.
    pub(crate) async fn send(
        &self,
        session: &mut dyn SqlSession,
        arguments: Arguments<'_>,
        named: bool,
    ) -> Result<StatementReply, SqlError> {
        let dialect = session.dialect();
        let mut reply = StatementReply::default();
        let mut is_read = true;
        let mut receive = |part: SqlReply<'_>| {
            let read = reply.receive(self.kind, part);
            is_read &= read.is_ok();
            read
        };
        // Of several calls.
        let all;
        let (order, arguments) = match arguments {
            Arguments::One(arguments) if self.kind == StatementKind::Script => {
                let script = with_literals(dialect, &self.text, arguments);
                session.script(script, &mut receive).await?;
                return read_reply(reply, is_read);
            }
            Arguments::One(arguments) => (&self.order[..], arguments),
            Arguments::Several(calls) if dialect.numbered => {
                all = Arguments::arrays(calls);
                (&[][..], &all[..])
            }
            Arguments::Several(calls) if self.kind == StatementKind::Several => {
                // Each call is a key, and surplus parameters repeat the last one.
                let key = |at: usize| calls[at.min(calls.len() - 1)][0];
                all = (0..self.order.len()).map(key).collect();
                (&[][..], &all[..])
            }
            Arguments::Several(calls) => {
                let script = with_calls(dialect, &self.text, calls);
                session.script(script, &mut receive).await?;
                return read_reply(reply, is_read);
            }
        };
        let named = named && self.kind != StatementKind::Block;
        let sent = (named, self.kind != StatementKind::Execute);
        let statement = SqlStatement::new(&self.text, sent, (order, arguments), &self.is_known);
        session.send(statement, &mut receive).await?;
        if self.kind == StatementKind::Execute && !dialect.dated.1.is_empty() {
            // The time is in a row; a client may give another number.
            reply.granted = None;
        }
        read_reply(reply, is_read)
    }
}

/// The reply, unless an unreadable part went unreported by the session.
fn read_reply(reply: StatementReply, is_read: bool) -> Result<StatementReply, SqlError> {
    if is_read {
        Ok(reply)
    } else {
        Err(SqlError::client("a row could not be read"))
    }
}

/// The maximum number of calls of one statement.
pub(crate) const MAX_CALLS: usize = 64;

/// The initial limit of reads, before the records' size is known.
const FIRST_READS: usize = 8;

/// The intended size of a reply to reads, by the last replies.
///
/// A reply that exceeds the response time-out is lost.
const REPLY_BYTES: usize = 1 << 20;

/// A statement for several calls.
#[derive(Debug)]
pub(crate) struct BatchStatement {
    /// Each for twice as many calls as before, or one for all.
    statements: Vec<Statement>,
    /// The maximum length of the arguments of a call.
    pub(crate) most_bytes: usize,
    /// The maximum number of calls.
    width: AtomicUsize,
}

impl BatchStatement {
    /// A statement for up to [`MAX_CALLS`] calls with `most_bytes` of arguments together.
    pub(crate) fn new(statement: Statement, most_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            statements: vec![statement],
            most_bytes: most_bytes / MAX_CALLS,
            width: MAX_CALLS.into(),
        })
    }

    /// The same, unless not all of its calls have an effect: then another, which shows the effect of each.
    pub(crate) fn or_each(statement: Statement, each: Statement) -> Arc<Self> {
        Arc::new(Self {
            statements: vec![statement, each],
            most_bytes: usize::MAX,
            width: MAX_CALLS.into(),
        })
    }

    /// Statements that read the records of several calls.
    pub(crate) fn of_reads(statements: Vec<Statement>) -> Arc<Self> {
        Arc::new(Self {
            statements,
            most_bytes: usize::MAX,
            width: FIRST_READS.into(),
        })
    }

    /// The statement for this number of calls.
    pub(crate) fn of(&self, calls: usize) -> &Statement {
        let index = calls.max(1).next_power_of_two().ilog2() as usize;
        &self.statements[index.min(self.statements.len() - 1)]
    }

    /// Whether it reads. Several of its calls may then be about one record.
    pub(crate) fn only_reads(&self) -> bool {
        self.statements[0].only_reads()
    }

    pub(crate) fn width(&self) -> usize {
        self.width.load(Ordering::Relaxed)
    }

    /// Adapts the number of reads to the bytes of a reply: doubles or halves it.
    pub(crate) fn adapt_width(&self, bytes: usize) {
        let width = self.width();
        let width = if bytes > REPLY_BYTES {
            // At least two, because a lone read does not adapt the width, which would never grow again.
            (width / 2).max(2)
        } else {
            (width * 2).min(MAX_CALLS)
        };
        self.width.store(width, Ordering::Relaxed);
    }
}

/// The reply to a statement.
#[derive(Debug, Default)]
pub(crate) struct StatementReply {
    pub(crate) affected: u64,
    pub(crate) row: Option<Row>,
    /// The time of a row's change: the fence of an inserted record.
    pub(crate) granted: Option<i64>,
    /// The existing records of a read of several keys.
    pub(crate) rows: Vec<(PrimaryKey, Row)>,
    /// The keys and fences of the records that a batch inserted.
    pub(crate) grants: Vec<(PrimaryKey, i64)>,
    /// A block of a listing, with each record's operation in the table.
    pub(crate) block: Vec<(PrimaryKey, String, Row)>,
}

impl StatementReply {
    /// Adds a part of the reply to a statement of this kind.
    pub(super) fn receive(
        &mut self,
        kind: StatementKind,
        part: SqlReply<'_>,
    ) -> Result<(), SqlError> {
        let row = match part {
            SqlReply::Row(row) => row,
            SqlReply::Done {
                affected,
                last_insert_id,
            } => {
                if kind == StatementKind::Execute {
                    self.affected += affected;
                    let number = i64::try_from(last_insert_id).ok();
                    self.granted = number.filter(|number| *number > 0);
                }
                return Ok(());
            }
        };
        match kind {
            // Others of a script may return rows as well; those of the table have more columns.
            StatementKind::Fetch | StatementKind::Claim | StatementKind::Script => {
                if row.columns() > 3 {
                    self.row = Some(Row::read(row)?);
                }
                return Ok(());
            }
            StatementKind::Execute => return Ok(()),
            StatementKind::Grant => self.granted = Some(row.number(0)?),
            StatementKind::Grants => self.grants.push((key(row, 0)?, row.number(1)?)),
            StatementKind::Several => self.rows.push((key(row, 13)?, Row::read(row)?)),
            // The last two columns are behind those of a row.
            StatementKind::Block => {
                let at = row.columns() - 2;
                self.block
                    .push((key(row, at)?, row.string(at + 1)?, Row::read(row)?));
            }
        }
        self.affected += 1;
        Ok(())
    }

    /// The database's time, in microseconds, if the reply has it.
    pub(crate) fn now_us(&self) -> Option<u64> {
        let row = self.row.as_ref().or(self.rows.first().map(|(_, row)| row));
        let granted = self
            .granted
            .or(self.grants.first().map(|(_, fence)| *fence));
        let granted = granted.and_then(|micros| u64::try_from(micros).ok());
        row.map(|row| row.now_us).or(granted)
    }
}

/// The primary key in a column. An invalid one matches no record and no call.
fn key(row: &dyn SqlRow, column: usize) -> Result<PrimaryKey, SqlError> {
    let key = row.bytes(column)?.unwrap_or_default();
    Ok((&*key).try_into().unwrap_or([0; PRIMARY_KEY_LEN]))
}

/// Sends a script, and reads the table's row in its reply.
pub(super) async fn fetch_row(
    session: &mut dyn SqlSession,
    script: String,
) -> Result<Option<Row>, SqlError> {
    let mut reply = StatementReply::default();
    let mut receive = |part: SqlReply<'_>| reply.receive(StatementKind::Fetch, part);
    session.script(script, &mut receive).await?;
    Ok(reply.row)
}

/// The outcome of a statement, with the kind of a server's error.
pub(crate) type StatementOutcome = Result<StatementReply, (Option<SqlErrorKind>, StoreError)>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql::dialect::Dialect;
    use crate::store::sql::statement_texts::Statements;

    fn is_told_apart(dialect: &Dialect) {
        let all = Statements::new(dialect, "records", std::time::Duration::ZERO, 0);
        let name = dialect.name;
        assert!(all.read.only_reads() && all.list.only_reads(), "{name}");
        for write in [&all.claim, &all.insert, &all.complete, &all.renew] {
            assert!(!write.only_reads(), "{name}: {}", write.text);
        }
    }

    #[test]
    fn a_claim_is_no_read() {
        #[cfg(feature = "_postgres")]
        is_told_apart(Dialect::POSTGRES);
        #[cfg(feature = "_mysql")]
        is_told_apart(Dialect::MYSQL);
        #[cfg(feature = "_sqlite")]
        is_told_apart(Dialect::SQLITE);
    }

    #[test]
    fn large_records_go_in_small_crowds() {
        let batch =
            BatchStatement::of_reads(vec![Statement::new(StatementKind::Several, "", Vec::new())]);
        let (small, large) = (REPLY_BYTES, REPLY_BYTES + 1);
        let mut widths = Vec::new();
        for bytes in [
            small, small, small, small, large, large, large, large, large, large, small,
        ] {
            widths.push(batch.width());
            batch.adapt_width(bytes);
        }
        assert_eq!(widths, [8, 16, 32, 64, 64, 32, 16, 8, 4, 2, 2]);
        assert_eq!(batch.width(), 4);
    }
}
