//! Reads a record, decides, and writes unless the record has changed since.

use std::time::Duration;

use super::Inner;
use super::backend::{Answer, Argument, Sealed, Trouble};
use super::permits::Rank;
use super::pool::Lane;
use super::row::{Columns, Place, Row, life_us, place, shown};
use super::statement::Statement;
use crate::identity::operation::RecordKey;
use crate::record::{Header, Record, State, Unreadable};
use crate::store::{Current, StoreError, StoreErrorKind};

/// How often an operation begins again because another write came first, before it gives up. Each time another caller
/// made progress.
pub(super) const TRIES: usize = 1_000;

/// Longer than a server takes to write its log.
const YOUNG: Duration = Duration::from_secs(3);

/// The write of an operation.
pub(super) struct Write {
    pub(super) header: Header,
    /// The life of the record; `None`: its remaining life.
    pub(super) life: Option<Duration>,
    /// Whether it notifies waiting calls.
    pub(super) told: bool,
}

/// The lane, the purpose and the record of an operation.
pub(super) struct Site<'a, B: Sealed> {
    pub(super) lane: &'a Lane<B>,
    /// Its name, for errors.
    pub(super) what: &'static str,
    rank: Rank<'a>,
    pub(super) key: &'a RecordKey,
    pub(super) place: Place,
    /// The answer of a record that it writes.
    pub(super) body: &'a [u8],
}

impl<'a, B: Sealed> Site<'a, B> {
    pub(super) fn new(
        lane: &'a Lane<B>,
        (what, rank): (&'static str, Rank<'a>),
        key: &'a RecordKey,
        body: &'a [u8],
    ) -> Self {
        Self {
            lane,
            what,
            rank,
            key,
            place: place(key),
            body,
        }
    }

    /// The purpose of its next statement. A claim that has sent one continues with the rank of an ending.
    pub(super) fn purpose(&self) -> (&'static str, Rank<'a>) {
        match self.rank {
            Rank::Claim(admission) if admission.was_sent() => (self.what, Rank::Ending),
            rank => (self.what, rank),
        }
    }

    pub(super) async fn run(
        &self,
        statement: &Statement,
        arguments: &[Argument<'_>],
    ) -> Result<Answer, StoreError> {
        self.lane.run(self.purpose(), statement, arguments).await
    }
}

/// A decision on the record that was read.
pub(super) type Decision<T> = (T, Option<Write>);

impl<B: Sealed> Inner<B> {
    /// Ensures that a done record is in the server's log.
    ///
    /// Called before it is replayed, because otherwise a server that loses it would have shown an answer that never
    /// existed.
    pub(super) async fn ascertain(
        &self,
        site: &Site<'_, B>,
        record: &Record,
        left: Duration,
    ) -> Result<(), StoreError> {
        let done = matches!(record.header.state, State::Done { .. });
        if B::SHOWS_EARLY && done && record.header.age(left) < YOUNG {
            // A later commit reaches the log later.
            let here = [Argument::Bytes(&site.place)];
            let touched = site
                .lane
                .tell(site.purpose(), &self.statements.touch, &here);
            match touched.await {
                // A read-only server has the answer from the log of another.
                Ok(_) | Err((Some(Trouble::ReadOnly), _)) => {}
                Err((_, error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fails on a read-only server, by a write to a record that does not exist.
    pub(super) async fn writes(&self, site: &Site<'_, B>) -> Result<(), StoreError> {
        let here = [Argument::Bytes(&site.place)];
        let touched = site
            .lane
            .tell(site.purpose(), &self.statements.touch, &here);
        touched.await.map(|_| ()).map_err(|(_, error)| error)
    }

    /// Reads the row at the place.
    pub(super) async fn look(&self, site: &Site<'_, B>) -> Result<Option<Row>, StoreError> {
        (site.lane)
            .read(site.purpose(), &self.statements, &site.place)
            .await
    }

    /// Reads, lets `decide` choose the header to write in front of `body`, and writes.
    pub(super) async fn operate<T>(
        &self,
        site: &Site<'_, B>,
        mut found: Option<Row>,
        decide: impl Fn(Option<Current<'_>>, u64) -> Decision<T>,
        unreadable: impl Fn(Unreadable) -> T,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            let row = match found.take() {
                Some(row) => Some(row),
                None => self.look(site).await?,
            };
            if let Some(row) = &row {
                row.readable(self.reads_bytes)?;
            }
            let record = match row.as_ref().map(Row::record).transpose() {
                Ok(record) => record.flatten(),
                Err(error) => return Ok(unreadable(error)),
            };
            let current = record.as_ref().map(|(record, left)| Current {
                record,
                left: *left,
            });
            let now_us = row.as_ref().map_or(0, |row| row.now_us);
            let (reply, write) = decide(current, now_us);
            let Some(write) = write else {
                return Ok(reply);
            };
            // Boxed, because it is rare: most decisions write nothing.
            let done = match &row {
                Some(row) => Box::pin(self.replace(site, row, &write)).await?,
                None => Box::pin(self.insert(site, &write)).await?,
            };
            if done {
                return Ok(reply);
            }
        }
        Err(overtaken(site.what))
    }

    async fn replace(
        &self,
        site: &Site<'_, B>,
        row: &Row,
        write: &Write,
    ) -> Result<bool, StoreError> {
        let columns = Columns::new(&write.header);
        let (owner, fence) = row.written_by();
        let arguments = [
            Argument::Bytes(&site.place),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            kept(&write.header, site.body),
            Argument::Int(write.life.map_or(-1, life_us)),
            Argument::Int(row.version),
            Argument::Bytes(owner),
            Argument::Int(fence),
        ];
        let statement = if write.told {
            &self.statements.replace_told
        } else {
            &self.statements.replace
        };
        let answer = site.run(statement, &arguments).await?;
        Ok(answer.affected > 0)
    }

    async fn insert(&self, site: &Site<'_, B>, write: &Write) -> Result<bool, StoreError> {
        let columns = Columns::new(&write.header);
        let arguments = [
            Argument::Bytes(&site.place),
            Argument::Text(&shown(site.key)),
            columns.layout(),
            columns.state(),
            columns.owner(),
            columns.fence(),
            columns.attempts(),
            columns.detail(),
            columns.retain_ms(),
            columns.fingerprint(),
            kept(&write.header, site.body),
            Argument::Int(life_us(write.life.unwrap_or_default())),
        ];
        let statement = if write.told {
            &self.statements.insert_told
        } else {
            &self.statements.insert
        };
        let answer = site.run(statement, &arguments).await?;
        Ok(answer.affected > 0)
    }
}

pub(super) fn overtaken(what: &str) -> StoreError {
    let message = format!("{what}: others were quicker {TRIES} times; it may be sent again");
    StoreError::new(StoreErrorKind::Unavailable, message)
}

/// The answer, for records that have one.
pub(super) fn kept<'a>(header: &Header, body: &'a [u8]) -> Argument<'a> {
    let done = matches!(header.state, State::Done { .. });
    Argument::Body(done.then_some(body))
}
