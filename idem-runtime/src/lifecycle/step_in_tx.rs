//! Steps that are kept in the caller's transaction.
//!
//! Such a step has a record of its own in the database, which the transaction writes together with the rows. Its name
//! follows from that of the step and from the origin: random bytes in the journal of the call, so that a reset of the
//! call forgets these steps as well, and so that a later call with the same key does not find them.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::env::clock::deadline;
use crate::error::Error;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::RecordKey;
use crate::lifecycle::steps::{StepIdentity, Steps, Unsent};
use crate::outcome::codec::Encoded;
use crate::policy::LONG;
use crate::record::journal::{EntryKind, JournalEntry};
use crate::record::{FOREVER, Header, Journal, State};
use crate::store::ReadReply;

/// What becomes of a step that is refused before its part.
const NOT_STARTED: &str = "it was not started";

impl Steps {
    /// The key of the record of a step in a transaction.
    pub(crate) fn key_in_tx(&self, step: &StepIdentity) -> KeyDigest {
        let origin = self.lease.steps.origin(&JournalEntry {
            kind: EntryKind::Origin,
            step: *self.lease.claim().owner.as_bytes(),
            at: self.core.clock.calendar(),
            schema: 0,
            input: Fingerprint::NONE,
            label: String::new(),
            body: Bytes::new(),
        });
        let hash = Sha256::new_with_prefix(b"idem step in tx 1\0")
            .chain_update(origin)
            .chain_update(step.digest.as_bytes());
        KeyDigest::from_bytes(hash.finalize().into())
    }

    /// Records the origin, or renews the lease. Fails if the claim is lost.
    pub(crate) async fn begin_in_tx(&self, step: &StepIdentity) -> Result<(), Error> {
        if self.lease.steps.is_unsent() {
            let end = self.lease.steps.len();
            self.send(step, end, NOT_STARTED).await
        } else {
            self.renew(step, NOT_STARTED).await
        }
    }

    /// The same where the transaction may have the only lock: `append` sends through it.
    pub(crate) async fn begin_alone<F>(
        &self,
        step: &StepIdentity,
        append: impl FnOnce(Header, Journal) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<bool, Error>>,
    {
        if !self.lease.steps.is_unsent() {
            return self.check(step, true, NOT_STARTED).await;
        }
        // Not confirmed: the transaction may be rolled back.
        let (journal, _) = self.lease.steps.journal();
        if append(self.lease.claim(), journal).await? {
            return Ok(());
        }
        self.lease.lose();
        Err(self.lost(step, NOT_STARTED))
    }

    /// How long the record of a step in a transaction is kept: longer than that of its call without another attempt.
    pub(crate) fn life_in_tx(&self) -> Duration {
        let policy = &self.lease.policy;
        if policy.retain() == FOREVER {
            return FOREVER;
        }
        let life = policy.retain().saturating_add(policy.max_run());
        life.saturating_add(policy.lease()).min(LONG)
    }

    /// Adds the result of a step that an earlier attempt has committed to the journal of the call, which lives for as
    /// long as it is retried. `record` is that of the step. Fails if the claim is lost.
    pub(crate) async fn keep_committed(
        &self,
        step: &StepIdentity,
        record: &RecordKey,
        encoded: Encoded,
        alone: bool,
    ) -> Result<(), Error> {
        /// The caller's transaction may have the only lock.
        const MOMENT: Duration = Duration::from_millis(100);
        let (core, now) = (&self.core, self.core.clock.now());
        let end = now + core.limits.complete_deadline;
        // The caller's transaction sees its own writes, which are not committed yet.
        let read = deadline(&*core.clock, end, pin!(core.store.read(record))).await;
        if !matches!(read, Ok(Ok(ReadReply::Found { record, .. })) if matches!(record.header.state, State::Done { .. }))
        {
            return Ok(());
        }
        let Some(end) = self.add_result(step, encoded) else {
            return Ok(());
        };
        let moment = now
            + if alone {
                MOMENT
            } else {
                core.limits.complete_deadline
            };
        match self.append_until(moment, end).await {
            Err(Unsent::Lost) => Err(self.lost(step, "its result was not returned")),
            // It is sent with the next step, or with the end of the call.
            _ => Ok(()),
        }
    }

    /// Fails if the claim is lost. Otherwise no other attempt is granted the key before the lease is over, which
    /// leaves the time to commit.
    ///
    /// `alone`: the transaction is the only writer of the database, so that no take-over can be written, and no renewal.
    pub(crate) async fn check_in_tx(&self, step: &StepIdentity, alone: bool) -> Result<(), Error> {
        self.check(step, alone, "what it has written is undone")
            .await
    }

    async fn check(&self, step: &StepIdentity, alone: bool, what: &str) -> Result<(), Error> {
        if !alone {
            return self.renew(step, what).await;
        }
        let (core, lease) = (&self.core, &self.lease);
        let moment = core.clock.now() + core.limits.complete_deadline;
        let read = deadline(&*core.clock, moment, pin!(core.store.read(&lease.key))).await;
        match read {
            Ok(Ok(ReadReply::Found { record, .. }))
                if record.header.owner == lease.claim().owner
                    && matches!(
                        record.header.state,
                        State::Pending { .. } | State::Reconciling { .. }
                    ) =>
            {
                Ok(())
            }
            Ok(Ok(_)) => {
                lease.lose();
                Err(self.lost(step, what))
            }
            Ok(Err(error)) => Err(self.unanswered(step, &format!("{what}: {error}"))),
            Err(_) => Err(self.unanswered(step, &format!("{what}: no reply in time"))),
        }
    }
}
