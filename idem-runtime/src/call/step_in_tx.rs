//! Steps that are kept in the caller's transaction.
//!
//! Such a step has a record of its own in the database, which the transaction writes together with the rows. Its name
//! follows from that of the step and from the origin: random bytes in the journal of the call, so that a reset of the
//! call forgets these steps as well, and so that a later call with the same key does not find them.

use std::ops::AsyncFnOnce;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::description::Call;
use super::step::{Step, StepName, admitted, read};
use super::within::{InTx, begin_or_replay, failure, transactional_store};
use crate::call::context::StepsOf;
use crate::call::engine::Engine;
use crate::call::lease::Unsent;
use crate::call::step_log::StepStop;
use crate::call::steps::{StepIdentity, StepStart, Steps, Unfinished};
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::Error;
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::{Operation, RecordKey};
use crate::outcome::chosen_life::OpenLife;
use crate::outcome::codec::Encoded;
use crate::outcome::on_error::ClassifiedStep;
use crate::outcome::stored::StoredAnswer;
use crate::outcome::{Outcome, Output};
use crate::policy::{LONG, OnDuplicate, OnOtherType};
use crate::record::journal::{EntryKind, JournalEntry};
use crate::record::{FOREVER, Header, Journal, State};
use crate::store::ReadReply;
use crate::store::sql::{SqlStoreState, SqlTransaction};

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
        self.core.background.refuse(&self.lease);
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

    /// Adds the committed result in `record` to the call's journal.
    ///
    /// Fails if the claim is lost.
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
        let read = deadline(&*core.clock, end, pin!(core.read(record))).await;
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
        let read = deadline(&*core.clock, moment, pin!(core.read(&lease.key))).await;
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
                core.background.refuse(lease);
                Err(self.lost(step, what))
            }
            Ok(Err(error)) => Err(self.unanswered(step, &format!("{what}: {error}"))),
            Err(_) => Err(self.unanswered(step, &format!("{what}: no reply in time"))),
        }
    }
}

/// A [step](crate::step()) that writes rows: they and its result are committed together, exactly once.
///
/// `tx` is a transaction of the caller, or its connection, of the database that holds the engine's records. `part` writes
/// through it. The step counts once the caller has committed; after a rollback the next attempt runs it. On a connection
/// without a transaction, one is begun and committed for the step.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use idem_runtime::{Engine, Error, step_in_tx, store::sql::SqliteStore};
/// use sqlx::{Connection, SqliteConnection};
///
/// # let dir = std::env::temp_dir().join(format!("idem-step-in-tx-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let url = format!("sqlite:{}", dir.join("shop.db").display());
/// # fn fault() -> Error {
/// #     Engine::builder(idem_runtime::store::memory::MemoryStore::new()).lease(std::time::Duration::ZERO).build().unwrap_err()
/// # }
/// let store = SqliteStore::connect(&url).await?;
/// store.migrate().await?;
/// let engine = Engine::new(store);
/// let mut shop = SqliteConnection::connect(&url).await?;
/// sqlx::query("CREATE TABLE bookings (cents INTEGER)").execute(&mut shop).await?;
///
/// for works in [false, true] {
///     let shop = &mut shop;
///     let placed = engine.operation("orders.place").key("order-7").run(move |_| async move {
///         let mut tx = shop.begin().await.unwrap();
///         let booked = step_in_tx("book", &mut *tx, async |conn: &mut SqliteConnection, _| {
///             sqlx::query("INSERT INTO bookings VALUES (1250)").execute(conn).await.unwrap();
///             Ok::<_, Error>(1_250)
///         })
///         .await?;
///         tx.commit().await.unwrap();
///         if works { Ok(booked) } else { Err(fault()) }
///     });
///     assert_eq!(placed.await.ok(), works.then_some(1_250));
/// }
/// let booked: i64 = sqlx::query_scalar("SELECT count(*) FROM bookings").fetch_one(&mut shop).await?;
/// assert_eq!(booked, 1);
/// # drop(shop);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// The caller commits whatever this returns, except after
/// [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted) and
/// [`ErrorKind::Running`](crate::ErrorKind::Running), after which it drops the transaction. As for a call
/// [in a transaction](crate::CallInTx), a business error is kept and the rows of `part` are undone, and a system error
/// undoes both.
///
/// Two attempts that overlap do not both write: the later one waits for the transaction of the earlier one, and gets
/// its result. An attempt that has lost its lease does not begin, and an attempt that loses it before the end of `part`
/// writes nothing.
///
/// The result is in a record of its own, under the operation `<operation>/<step>`, not in the journal of the call:
/// [`Entry::steps`](crate::admin::Entry::steps) does not show it. [`Entry::reset`](crate::admin::Entry::reset) of the
/// call keeps it; `reset_with_steps` forgets it. It is kept for the time that the record of the call is retained, and
/// `max_run` and a lease.
///
/// It takes a round trip for the renewal of the lease, and two in the transaction; with
/// [`on_running`](crate::CallBuilder::on_running) the engine's default says how long it waits for another transaction.
/// On SQLite, which has one writer at a time, a step without a transaction is not for the time between the first write of
/// the transaction and its commit: it would wait for the transaction, which waits for it.
///
/// After an error of class unknown its rows are undone, and its outcome stays unknown in every later attempt: an operator
/// resets the entry of the operation `<operation>/<step>`, which a [listing](crate::Engine::entries) finds.
///
/// # Errors
///
/// Those of `part`, of a [step](crate::step()), and of a call [in a transaction](crate::CallInTx::run);
/// [`ErrorKind::InvalidPolicy`](crate::ErrorKind::InvalidPolicy) if the engine's store is not in the database of the
/// transaction.
///
/// # Panics
///
/// With `part`.
///
/// # Cancel safety
///
/// As a call [in a transaction](crate::CallInTx::run): if dropped half-way, roll back.
#[allow(clippy::needless_pass_by_value, reason = "a name is written in place")]
pub async fn step_in_tx<N, T, F, V, E>(name: N, tx: &mut T, part: F) -> Result<V, E>
where
    N: StepName,
    T: SqlTransaction + ?Sized,
    F: AsyncFnOnce(&mut T, Step) -> Result<V, E>,
    Result<V, E>: Outcome<ClassifiedStep>,
{
    let mut output = Output::new(ClassifiedStep, OpenLife);
    let step = {
        let (label, digest) = name.__step();
        admitted(None, digest.map(|digest| (digest, label.to_owned())))
    };
    let begun = match step {
        Ok(step) => Box::pin(begin(step, tx)).await,
        Err(error) => Err(error),
    };
    let (step, kept, call) = match begun {
        Ok(Begun::Call(step, kept, call)) => (step, kept, call),
        Ok(Begun::Answered(steps, identity, stored)) => {
            if let Err(error) = read(output.any(), &steps, &identity, &stored) {
                output.any().refuse(error);
            }
            return output.take();
        }
        Err(error) => {
            output.any().refuse(error);
            return output.take();
        }
    };
    match begin_or_replay(call, output, tx).await {
        (InTx::Answered(answer), replayed) => {
            let (Some((steps, identity)), Some(record)) = (kept, replayed) else {
                return answer;
            };
            let mut output = Output::new(ClassifiedStep, OpenLife);
            output.value = Some(answer);
            let encoded = output.any().write(&steps.core.format);
            let kept = steps.keep_committed(&identity, &record, encoded, is_alone(&steps));
            if let Err(error) = Box::pin(kept).await {
                output.any().refuse(error);
            }
            output.take()
        }
        (InTx::Run(mut run), _) => {
            let end = {
                let (scope, tx) = run.split();
                scope.run(pin!(Some(part(tx, step)))).await
            };
            if end.has_output()
                && let Some((steps, identity)) = kept
                && let Err(error) = Box::pin(steps.check_in_tx(&identity, is_alone(&steps))).await
            {
                return Box::pin(run.give_up(error)).await;
            }
            run.finish(end).await
        }
    }
}

/// What becomes of a step.
enum Begun {
    /// It is the body of this call. Nothing is kept of it if the engine is disabled.
    Call(Step, Option<(Steps, StepIdentity)>, Call),
    /// An earlier version of the function ran the step without a transaction.
    Answered(Steps, StepIdentity, StoredAnswer),
}

async fn begin<T: SqlTransaction + ?Sized>(step: Step, tx: &mut T) -> Result<Begun, Error> {
    let steps = match step.context().steps() {
        StepsOf::Record(steps) => steps.clone(),
        StepsOf::Transaction => return Err(step.in_transaction()),
        StepsOf::Unprotected => return Err(step.unprotected()),
        StepsOf::Disabled(core) => {
            let core = Arc::clone(core);
            let operation = Operation::new(step.context().operation().as_str().to_owned());
            let mut call = Call::new(operation);
            call.engine(Engine { core });
            call.key("step");
            return Ok(Begun::Call(step, None, call));
        }
    };
    let identity = steps.identify((step.name().to_owned(), step.digest()), None);
    // The body may discard the error.
    transactional_store(&engine(&steps), &steps.lease.key)
        .inspect_err(|error| step.context().emit(EventKind::Refused { error }))?;
    match steps.start(&identity, Unfinished::Unknown)? {
        StepStart::Run(_) => {}
        StepStart::Replay(stored) => return Ok(Begun::Answered(steps, identity, stored)),
        StepStart::Unknown => return Err(steps.stop(&identity, StepStop::Unknown)),
    }
    let key = steps.key_in_tx(&identity);
    if is_alone(&steps) {
        let engine = engine(&steps);
        let record = steps.lease.key.clone();
        let append = async |claim: Header, journal: Journal| {
            let store = transactional_store(&engine, &record)?;
            let appended = store.append_within(tx.session(), &record, &claim, &journal);
            Box::pin(appended)
                .await
                .map_err(|error| failure(&record, error))
        };
        steps.begin_alone(&identity, append).await?;
    } else {
        steps.begin_in_tx(&identity).await?;
    }
    let operation = step.context().operation();
    let mut call = Call::new(Operation::new(format!("{operation}/{}", step.name())));
    call.engine(engine(&steps));
    call.key(&key.to_string());
    let life = steps.life_in_tx();
    call.ttl(life);
    call.error_ttl(life);
    call.on_duplicate(OnDuplicate::Replay);
    if steps.lease.policy.reads_any_type() {
        call.on_other_type(OnOtherType::Accept);
    }
    Ok(Begun::Call(step, Some((steps, identity)), call))
}

fn engine(steps: &Steps) -> Engine {
    Engine {
        core: steps.core.clone(),
    }
}

/// Whether the transaction is the only writer of its database.
fn is_alone(steps: &Steps) -> bool {
    let engine = engine(steps);
    let store = transactional_store(&engine, &steps.lease.key);
    store.is_ok_and(SqlStoreState::has_one_writer)
}
