//! A claim: one statement where nothing is there, and one where an answer is.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::Inner;
use super::backend::{Sealed, Trouble};
use super::row::{Columns, Row, shown};
use super::seats::Rank;
use super::site::{Site, TRIES, Write, overtaken};
use crate::identity::operation::RecordKey;
use crate::record::transition;
use crate::record::{Fence, Header, State};
use crate::store::{Admission, ClaimReply, ClaimRequest, Current, Needs, StoreError};

/// How long a claim waits for whoever holds a file before it looks whether it need not write at all.
const HELD_UP: Duration = Duration::from_millis(20);

/// The number of a first attempt.
const FIRST: u16 = 1;

/// What came of putting a record where none is.
enum Put {
    /// It is there, with this fence.
    Granted(i64),
    /// One was there; this is it, if the statement saw it.
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
            // Nobody has a record to write there, unless the database says when that is.
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
            // A claim that needs a record is not to make one.
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
            // Not found: somebody whom the statement could not see was quicker.
            let unreadable = |error| Some(ClaimReply::Unreadable(error));
            let reply = self.operate(&site, found, decide, unreadable).await?;
            match &reply {
                Some(ClaimReply::Done { record, left }) => {
                    self.ascertain(&site, record, *left).await?;
                }
                // What is absent from a server that only reads may be on the one that writes.
                Some(ClaimReply::Absent) => self.writes(&site).await?,
                _ => {}
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(overtaken(site.what))
    }

    /// Puts the record of a first claim there, if none is. `reads`: none was, a moment ago.
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
        // There, a statement that changes nothing waits for others as well.
        if B::WAITS && !reads {
            match timeout(HELD_UP, told.as_mut()).await {
                Ok(done) => outcome = Some(done),
                // Its own is there: it was written meanwhile.
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
            // What is done can be replayed all the same.
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

/// The record of a first claim, but for its fence.
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

/// How many of the latest claims met a record that was there, in shares of [`ALL`](Self::ALL).
#[derive(Debug)]
pub(super) struct Met(AtomicU32);

impl Met {
    pub(super) const ALL: u32 = 1 << 16;
    /// So many claims ago counts for little.
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
        // Nothing to learn is no error.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, learn);
    }
}
