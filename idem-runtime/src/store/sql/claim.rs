//! A claim: one statement without a record or with an answer.

use std::future::{Future as _, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::columns::{HeaderColumns, displayed_operation};
use super::compare_and_write::{RecordAccess, RecordWrite, TRIES, overtaken};
use super::error_kind::SqlErrorKind;
use super::queue::Priority;
use super::row::Row;
use super::state::SqlStoreState;
use crate::identity::operation::RecordKey;
use crate::record::{Fence, Header, Journal, Record, State, transition};
use crate::store::{Admission, ClaimReply, ClaimRequest, Current, Needs, StoreError};

/// How long a claim waits for the file's writer before it reads.
///
/// It need not write if there is an answer.
const HELD_UP: Duration = Duration::from_millis(20);

/// The number of a first attempt.
const FIRST: u16 = 1;

/// The result of inserting a record.
enum FirstClaim {
    /// It was inserted, with this fence.
    Granted(i64),
    /// There is a record; its row, if the statement saw it.
    Exists(Option<Row>),
}

impl SqlStoreState {
    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
        admission: &Admission,
    ) -> Result<ClaimReply, StoreError> {
        let access = RecordAccess::new(&self.pool, ("a claim", Priority::Claim(admission)), key);
        let begins = request.needs == Needs::Nothing;
        let decide = |current: Option<Current<'_>>, now_us| {
            // Without a row the database's time is unknown, which a new record needs.
            if now_us == 0 && begins {
                return (None, None);
            }
            let (reply, write) = transition::claim(current, request, now_us);
            let too_large = |record: &Record| record.as_bytes().len() > self.reads_bytes;
            let (reply, write) =
                if request.records_attempts && write.as_ref().is_some_and(too_large) {
                    // A record beyond the read limit is not written.
                    let request = ClaimRequest {
                        records_attempts: false,
                        ..request.clone()
                    };
                    transition::claim(current, &request, now_us)
                } else {
                    (reply, write)
                };
            let write = write.map(RecordWrite::record);
            (Some(reply), write)
        };
        for _ in 0..TRIES {
            let mut found = None;
            // A claim that needs a record must not create one.
            if begins {
                let reads = self.hit_rate.at_least(self.dialect.reads_first);
                if reads {
                    found = self.read_row(&access).await?;
                }
                if found.is_none() {
                    match self.insert_first(&access, request, reads).await? {
                        FirstClaim::Granted(fence) => return Ok(granted(fence)),
                        FirstClaim::Exists(row) => found = row,
                    }
                }
            }
            if let Some(row) = &found
                && row.is_fresh(&request.owner)
            {
                self.hit_rate.record(false);
                return Ok(granted(row.fence()));
            }
            if begins {
                self.hit_rate.record(true);
            }
            // No row: the record of a faster claim, which the statement could not see.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self
                .compare_and_write(&access, found, decide, unreadable)
                .await?;
            match &reply {
                Some(ClaimReply::Done { record, left }) => {
                    self.ensure_logged(&access, record, *left).await?;
                }
                // A record that is absent on a read-only server may exist on the primary.
                Some(ClaimReply::Absent) => {
                    self.touch(&access).await.map_err(|(_, error)| error)?;
                }
                _ => {}
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(overtaken(access.what, TRIES))
    }

    /// Inserts the record of a first claim, if there is none. `reads`: a read has just found none.
    async fn insert_first(
        &self,
        access: &RecordAccess<'_>,
        request: &ClaimRequest,
        reads: bool,
    ) -> Result<FirstClaim, StoreError> {
        let columns = HeaderColumns::new(&fresh(request));
        let shown = displayed_operation(access.key);
        let arguments = columns.claim(&access.primary_key, &shown);
        let mut sent = pin!(
            self.pool
                .send(access.purpose(), &self.statements.claim, &arguments)
        );
        let mut outcome = None;
        // There a statement that changes nothing waits for other writers as well.
        if self.dialect.has_one_writer && !reads {
            outcome = timeout(HELD_UP, sent.as_mut()).await.ok();
            if outcome.is_none() {
                let mut read = Box::pin(self.read_row(access));
                // Both are polled: the claim may hold the only connection.
                let first = poll_fn(|cx| match sent.as_mut().poll(cx) {
                    Poll::Ready(done) => Poll::Ready(ControlFlow::Break(done)),
                    Poll::Pending => read.as_mut().poll(cx).map(ControlFlow::Continue),
                });
                match first.await {
                    ControlFlow::Break(done) => outcome = Some(done),
                    // A row of its own owner was written meanwhile by this claim.
                    ControlFlow::Continue(row) => {
                        if let Some(row) = row?
                            && !row.is_of(&request.owner)
                        {
                            return Ok(FirstClaim::Exists(Some(row)));
                        }
                    }
                }
            }
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => sent.await,
        };
        match outcome {
            Ok(reply) => match reply.granted {
                Some(fence) => {
                    self.hit_rate.record(false);
                    Ok(FirstClaim::Granted(fence))
                }
                None => Ok(FirstClaim::Exists(reply.row)),
            },
            // A done record can be replayed nevertheless.
            Err((Some(kind), error)) if !reads || kind == SqlErrorKind::ReadOnly => {
                let row = Box::pin(self.read_row(access)).await?;
                Ok(FirstClaim::Exists(Some(row.ok_or(error)?)))
            }
            Err((_, error)) => Err(error),
        }
    }
}

/// The reply to a first claim.
pub(super) fn granted(fence: i64) -> ClaimReply {
    ClaimReply::Granted {
        fence: Fence::new(fence.unsigned_abs()),
        attempt: FIRST,
        fresh: true,
        journal: Journal::default(),
    }
}

/// The record of a first claim, except its fence.
pub(super) fn fresh(request: &ClaimRequest) -> Header {
    let lease = request.lease;
    request.granted(State::Pending { lease }, Fence::default(), FIRST)
}
