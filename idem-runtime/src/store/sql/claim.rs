//! A claim: one statement without a record or with an answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::SqlStoreState;
use super::backend::{SqlDriver, SqlErrorKind};
use super::compare_and_write::{HeaderWrite, RecordAccess, TRIES, overtaken};
use super::permits::Priority;
use super::row::{HeaderColumns, Row, shown};
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{Fence, Header, State};
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
    /// There was one; this is it, if the statement saw it.
    Exists(Option<Row>),
}

impl<B: SqlDriver> SqlStoreState<B> {
    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
        admission: &Admission,
    ) -> Result<ClaimReply, StoreError> {
        let access = RecordAccess::new(
            &self.pool,
            ("a claim", Priority::Claim(admission)),
            key,
            &[],
        );
        let begins = request.needs == Needs::Nothing;
        let decide = |current: Option<Current<'_>>, now_us| {
            // Without a row the database's time is unknown, which a new record needs.
            if now_us == 0 && begins {
                return (None, None);
            }
            let (reply, write) = transition::claim(current, request, now_us);
            let life = Some(request.retain);
            let write = write.map(|header| HeaderWrite {
                header,
                life,
                told: false,
            });
            (Some(reply), write)
        };
        for _ in 0..TRIES {
            let mut found = None;
            // A claim that needs a record must not create one.
            if begins {
                let reads = self.hit_rate.at_least(B::READS_FIRST);
                if reads {
                    found = self.look(&access).await?;
                }
                if found.is_none() {
                    match self.put(&access, request, reads).await? {
                        FirstClaim::Granted(fence) => return Ok(granted(fence)),
                        FirstClaim::Exists(row) => found = row,
                    }
                }
            }
            if let Some(row) = &found
                && row.is_fresh(&request.owner)
            {
                self.hit_rate.record(false);
                return Ok(granted(row.written_by().1));
            }
            if begins {
                self.hit_rate.record(true);
            }
            // No row: the record of a faster claim, which the statement could not see.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self.operate(&access, found, decide, unreadable).await?;
            match &reply {
                Some(ClaimReply::Done { record, left }) => {
                    self.ascertain(&access, record, *left).await?;
                }
                // A record that is absent on a read-only server may exist on the one that writes.
                Some(ClaimReply::Absent) => self.writes(&access).await?,
                _ => {}
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(overtaken(access.what))
    }

    /// Inserts the record of a first claim, if there is none. `reads`: a read has just found none.
    async fn put(
        &self,
        access: &RecordAccess<'_, B>,
        request: &ClaimRequest,
        reads: bool,
    ) -> Result<FirstClaim, StoreError> {
        let columns = HeaderColumns::new(&fresh(request));
        let shown = shown(access.key);
        let arguments = columns.claim(&access.primary_key, &shown);
        let mut told = pin!(
            self.pool
                .tell(access.purpose(), &self.statements.claim, &arguments)
        );
        let mut outcome = None;
        // There, a statement that changes nothing waits for other writers as well.
        if B::WAITS && !reads {
            match timeout(HELD_UP, told.as_mut()).await {
                Ok(done) => outcome = Some(done),
                // A row of its own owner was written meanwhile by this claim.
                Err(_) => match Box::pin(self.look(access)).await? {
                    Some(row) if !row.is_of(&request.owner) => {
                        return Ok(FirstClaim::Exists(Some(row)));
                    }
                    _ => {}
                },
            }
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => told.await,
        };
        match outcome {
            Ok(answer) => match answer.granted {
                Some(fence) => {
                    self.hit_rate.record(false);
                    Ok(FirstClaim::Granted(fence))
                }
                None => Ok(FirstClaim::Exists(answer.row)),
            },
            // A done record can be replayed nevertheless.
            Err((Some(kind), error)) if !reads || kind == SqlErrorKind::ReadOnly => {
                let row = Box::pin(self.look(access)).await?;
                Ok(FirstClaim::Exists(Some(row.ok_or(error)?)))
            }
            Err((_, error)) => Err(error),
        }
    }
}

/// The reply to a first claim.
fn granted(fence: i64) -> ClaimReply {
    ClaimReply::Granted {
        fence: Fence::new(fence.unsigned_abs()),
        attempt: FIRST,
        fresh: true,
    }
}

/// The record of a first claim, except its fence.
pub(super) fn fresh(request: &ClaimRequest) -> Header {
    Header {
        state: State::Pending {
            lease: request.lease,
        },
        owner: request.owner,
        fence: Fence::default(),
        attempts: FIRST,
        retain: request.retain,
        fingerprint: request.fingerprint,
        types: request.types,
    }
}

/// The share of recent claims that met a record, of [`SCALE`](Self::SCALE).
#[derive(Debug)]
pub(super) struct HitRate(AtomicU32);

impl HitRate {
    pub(super) const SCALE: u32 = 1 << 16;
    /// The number of claims over which the share decays.
    const LATELY: u32 = 64;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Self::SCALE / Self::LATELY))
    }

    fn at_least(&self, share: u32) -> bool {
        self.0.load(Ordering::Relaxed) >= share
    }

    fn record(&self, met: bool) {
        let learn = |was: u32| {
            let is = if met {
                was + (Self::SCALE - was) / Self::LATELY
            } else {
                was - was.div_ceil(Self::LATELY)
            };
            (is != was).then_some(is)
        };
        // An unchanged share is no error.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, learn);
    }
}
