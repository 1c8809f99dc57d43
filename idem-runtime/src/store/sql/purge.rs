//! Deletes expired records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::argument::SqlArgument;
use super::backend::Backend;
use super::claim::fresh;
use super::queue::Priority;
use super::state::{SqlStore, SqlStoreState};
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::record::{Header, OutcomeKind, Owner, State};
use crate::store::{Admission, ClaimReply, ClaimRequest, RenewReply, StoreError};

const WHAT: &str = "the purge";

/// How long the purging process counts as alive between two batches.
const LEASE: Duration = Duration::from_secs(30);

/// Settings of a purge of expired records.
///
/// It deletes in batches with pauses, so that calls are not disturbed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Purge {
    batch: u32,
    pause: Duration,
    every: Duration,
}

impl Default for Purge {
    fn default() -> Self {
        Self {
            batch: 1_000,
            pause: Duration::from_millis(100),
            every: Duration::from_secs(60),
        }
    }
}

impl Purge {
    /// The maximum number of records that a statement deletes. Default: 1,000; at least 1.
    #[must_use]
    pub fn batch(mut self, records: u32) -> Self {
        self.batch = records.max(1);
        self
    }

    /// The pause between two batches. Default: 100 milliseconds; at most 10 seconds.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause.min(LEASE / 3);
        self
    }

    /// The pause of [`SqlStore::spawn_purge`] between two purges, in any process.
    ///
    /// Default: one minute; at least 1 second.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_secs(1));
        self
    }
}

/// A purge in the background, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the purge ends when this is dropped"]
pub struct PurgeTask {
    task: JoinHandle<()>,
    progress: Arc<PurgeProgress>,
}

/// The results of the task.
#[derive(Debug, Default)]
struct PurgeProgress {
    deleted: AtomicU64,
    error: Mutex<Option<StoreError>>,
}

impl PurgeProgress {
    fn error(&self, error: Option<StoreError>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

impl PurgeTask {
    /// The number of records that this process has deleted so far.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.progress.deleted.load(Ordering::Relaxed)
    }

    /// The error of this process's last purge, if it failed. It is tried again.
    #[must_use]
    pub fn error(&self) -> Option<StoreError> {
        let error = self.progress.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for PurgeTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<B: Backend> SqlStore<B> {
    /// Deletes expired records until there are none, and returns their number.
    ///
    /// It does not coordinate with other processes; concurrent purges do not disturb each other.
    ///
    /// # Errors
    ///
    /// As the store's operations. Deleted records stay deleted.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn purge(&self, purge: Purge) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let batch = self.0.purge_batch(purge).await?;
            deleted += batch;
            if batch < u64::from(purge.batch) {
                return Ok(deleted);
            }
            sleep(purge.pause).await;
        }
    }

    /// Purges periodically, in this runtime, until the task is dropped.
    ///
    /// Of all processes that do so on a table one at a time does the work, and none sooner than [`every`](Purge::every)
    /// after the last: they coordinate by a claim in the table itself.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn spawn_purge(&self, purge: Purge) -> PurgeTask {
        let progress = Arc::new(PurgeProgress::default());
        let (state, reported) = (Arc::clone(&self.0), Arc::clone(&progress));
        let task = tokio::spawn(async move {
            loop {
                let pause = match state.purge_if_due(purge, &reported).await {
                    Ok(pause) => {
                        reported.error(None);
                        pause
                    }
                    Err(error) => {
                        reported.error(Some(error));
                        purge.every.min(LEASE)
                    }
                };
                // A minimum, whatever the clocks report.
                sleep(pause.max(Duration::from_millis(100))).await;
            }
        });
        PurgeTask { task, progress }
    }
}

impl SqlStoreState {
    async fn purge_batch(&self, purge: Purge) -> Result<u64, StoreError> {
        let limit = [SqlArgument::Int(purge.batch.into())];
        let statement = &self.statements.purge;
        Ok(self
            .pool
            .run((WHAT, Priority::Other), statement, &limit)
            .await?
            .affected)
    }

    /// Purges if that is due, and returns the pause before the next.
    async fn purge_if_due(
        &self,
        purge: Purge,
        progress: &PurgeProgress,
    ) -> Result<Duration, StoreError> {
        let key = claim_key();
        let admission = Admission::new(self.pool.patience());
        let request = ClaimRequest::new(Owner::random(), LEASE, LEASE * 2);
        let (fence, attempts) = match self.claim(&key, &request, &admission).await? {
            ClaimReply::Granted { fence, attempt, .. } => (fence, attempt),
            ClaimReply::Running { lease_left } => return Ok(lease_left),
            ClaimReply::Done { left, .. } => return Ok(left),
            _ => return Ok(purge.every),
        };
        let claim = Header {
            fence,
            attempts,
            ..fresh(&request)
        };
        loop {
            let batch = self.purge_batch(purge).await?;
            progress.deleted.fetch_add(batch, Ordering::Relaxed);
            if batch < u64::from(purge.batch) {
                break;
            }
            sleep(purge.pause).await;
            if self.renew_on(&self.pool, &key, &claim).await? == RenewReply::Lost {
                return Ok(purge.every);
            }
        }
        let done = Header {
            state: State::Done {
                outcome: OutcomeKind::Tombstone,
                schema: 0,
            },
            retain: purge.every,
            ..claim
        };
        self.complete(&key, &Bytes::copy_from_slice(&done.encode()))
            .await?;
        Ok(purge.every)
    }
}

/// The key of the purge's claim.
///
/// No application has its operation.
fn claim_key() -> RecordKey {
    let operation = Operation::new("idem: the purge of this table");
    RecordKey::new("".into(), operation, KeyDigest::from_bytes([0; 32]))
}
