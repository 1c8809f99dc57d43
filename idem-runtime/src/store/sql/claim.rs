//! A claim: one statement without a record or with an answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::Inner;
use super::backend::{Sealed, Trouble};
use super::compare_and_write::{Site, TRIES, Write, overtaken};
use super::permits::Rank;
use super::row::{Columns, Row, shown};
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
enum Put {
    /// It was inserted, with this fence.
    Granted(i64),
    /// There was one; this is it, if the statement saw it.
    Met(Option<Row>),
}

impl<B: Sealed> Inner<B> {
    pub(super) async fn claim(
        &self,
        key: &RecordKey,
        request: &ClaimRequest,
        admission: &Admission,
    ) -> Result<ClaimReply, StoreError> {
        let site = Site::new(&self.lane, ("a claim", Rank::Claim(admission)), key, &[]);
        let begins = request.needs == Needs::Nothing;
        let decide = |current: Option<Current<'_>>, now_us| {
            // Without a row the database's time is unknown, which a new record needs.
            if now_us == 0 && begins {
                return (None, None);
            }
            let (reply, write) = transition::claim(current, request, now_us);
            let life = Some(request.retain);
            let write = write.map(|header| Write {
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
                let reads = self.met.at_least(B::READS_FIRST);
                if reads {
                    found = self.look(&site).await?;
                }
                if found.is_none() {
                    match self.put(&site, request, reads).await? {
                        Put::Granted(fence) => return Ok(granted(fence)),
                        Put::Met(row) => found = row,
                    }
                }
            }
            if let Some(row) = &found
                && row.is_fresh(&request.owner)
            {
                self.met.learn(false);
                return Ok(granted(row.written_by().1));
            }
            if begins {
                self.met.learn(true);
            }
            // No row: the record of a faster claim, which the statement could not see.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self.operate(&site, found, decide, unreadable).await?;
            match &reply {
                Some(ClaimReply::Done { record, left }) => {
                    self.ascertain(&site, record, *left).await?;
                }
                // A record that is absent on a read-only server may exist on the one that writes.
                Some(ClaimReply::Absent) => self.writes(&site).await?,
                _ => {}
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(overtaken(site.what))
    }

    /// Inserts the record of a first claim, if there is none. `reads`: a read has just found none.
    async fn put(
        &self,
        site: &Site<'_, B>,
        request: &ClaimRequest,
        reads: bool,
    ) -> Result<Put, StoreError> {
        let columns = Columns::new(&fresh(request));
        let shown = shown(site.key);
        let arguments = columns.claim(&site.place, &shown);
        let mut told = pin!(
            self.lane
                .tell(site.purpose(), &self.statements.claim, &arguments)
        );
        let mut outcome = None;
        // There, a statement that changes nothing waits for other writers as well.
        if B::WAITS && !reads {
            match timeout(HELD_UP, told.as_mut()).await {
                Ok(done) => outcome = Some(done),
                // A row of its own owner was written meanwhile by this claim.
                Err(_) => match Box::pin(self.look(site)).await? {
                    Some(row) if !row.is_of(&request.owner) => return Ok(Put::Met(Some(row))),
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
                    self.met.learn(false);
                    Ok(Put::Granted(fence))
                }
                None => Ok(Put::Met(answer.row)),
            },
            // A done record can be replayed nevertheless.
            Err((Some(trouble), error)) if !reads || trouble == Trouble::ReadOnly => {
                let row = Box::pin(self.look(site)).await?;
                Ok(Put::Met(Some(row.ok_or(error)?)))
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

/// The share of recent claims that met a record, of [`ALL`](Self::ALL).
#[derive(Debug)]
pub(super) struct Met(AtomicU32);

impl Met {
    pub(super) const ALL: u32 = 1 << 16;
    /// The number of claims over which the share decays.
    const LATELY: u32 = 64;

    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(Self::ALL / Self::LATELY))
    }

    fn at_least(&self, share: u32) -> bool {
        self.0.load(Ordering::Relaxed) >= share
    }

    fn learn(&self, met: bool) {
        let learn = |was: u32| {
            let is = if met {
                was + (Self::ALL - was) / Self::LATELY
            } else {
                was - was.div_ceil(Self::LATELY)
            };
            (is != was).then_some(is)
        };
        // An unchanged share is no error.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, learn);
    }
}
