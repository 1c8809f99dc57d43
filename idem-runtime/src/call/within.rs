//! Execution of a body inside the caller's transaction.
//!
//! There is no lease and no renewal: the claim is a row that the transaction locks, and a second call waits for that
//! lock. The body's writes and its record are committed together or not at all.

mod ending;
mod file_lock;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use self::file_lock::{AGAIN, ClaimedKey, Queued};
use super::description::{Call, describe};
use crate::call::acquire::expired_token;
use crate::call::admission::{CallRequest, Entered, Unleased};
use crate::call::answer::{answer, replay};
use crate::call::call_watch::{CallWatch, call_span};
use crate::call::context::Context;
use crate::call::core::Core;
use crate::call::engine::Engine;
use crate::call::refusal::{refusal, unavailable};
use crate::call::settlement::REPLY;
use crate::env::call_end::CallOutcome;
use crate::env::call_span::CallSpan;
use crate::env::catch_unwind::{self, Panic};
use crate::env::clock::deadline;
use crate::env::observer::EventKind;
use crate::error::{Error, ErrorKind};
use crate::identity::digest_key::CallName;
use crate::identity::operation::RecordKey;
use crate::local::cache::Found as Local;
use crate::outcome::Output;
use crate::outcome::stored::StoredAnswer;
use crate::policy::EffectivePolicy;
use crate::record::transition::{self, ClaimReply, ClaimRequest, Current, Needs};
use crate::record::{Header, JournalKind, Owner, State};
use crate::store::sql::{SqlError, SqlStoreState, SqlTransaction, TxError};
use crate::store::{ReadReply, StoreError};

/// The result of a claim in a transaction.
#[derive(Debug)]
pub enum InTx<'t, O, P, T: SqlTransaction + ?Sized> {
    /// The call has its answer, and its body does not run.
    Answered(O),
    /// The body is to run.
    Run(TxRun<'t, O, P, T>),
}

/// A granted call in a transaction, whose body is to run.
pub struct TxRun<'t, O, P, T: SqlTransaction + ?Sized> {
    engine: Engine,
    output: Output<O, P>,
    policy: EffectivePolicy,
    part: Part<'t, T>,
    running: Unleased,
    context: Context,
    /// `None`: it runs without protection.
    claim: Option<Header>,
    /// Registers a claim that the database does not show to repeats.
    claimed: Option<ClaimedKey>,
    /// Reports the end of the call.
    watch: CallWatch,
}

/// This call's part of the transaction.
struct Part<'t, T: SqlTransaction + ?Sized> {
    tx: &'t mut T,
    /// It was begun for this call, which also commits it.
    own: bool,
    /// The number of transactions that the client counts while the body runs.
    depth: usize,
    /// A `BEGIN` is in progress. If dropped now, sqlx does not know of the transaction.
    begins: bool,
}

impl<T: SqlTransaction + ?Sized> Part<'_, T> {
    /// Refuses a connection whose client counts a lost transaction.
    async fn check(&mut self, key: &RecordKey) -> Result<(), Error> {
        let most = self.tx.most();
        self.begins = true;
        let in_step = self.tx.session().in_step(most).await;
        self.begins = false;
        if matches!(in_step, Ok(true)) {
            return Ok(());
        }
        self.close().await;
        let error = key.error(ErrorKind::TransactionAborted);
        if let Err(cause) = in_step {
            return Err(error.because(cause));
        }
        Err(error.detail(
            "the SQL client counts a transaction on this connection that the database may have rolled back by \
             itself, as SQLite does after some errors; the connection is closed. Do not begin a transaction of the \
             client within another around a call: use the outer one, and `SAVEPOINT`",
        ))
    }

    /// Refuses the answer of a body that left a transaction open.
    ///
    /// Otherwise the commit that follows would release a savepoint and nothing else.
    fn is_even(&mut self, key: &RecordKey) -> Result<(), Error> {
        if self.tx.session().depth() == self.depth {
            return Ok(());
        }
        let error = key.error(ErrorKind::TransactionAborted);
        Err(error
            .detail("the body has left a transaction open that it began, or has ended another"))
    }

    /// Closes a connection whose transaction does not exist.
    async fn close(&mut self) {
        self.tx.give_up();
        // A connection that cannot be closed fails at its next use anyway.
        let _ = self.tx.session().close().await;
    }

    /// Cleans up after an error that may have ended the transaction.
    async fn leave(&mut self, core: &Core) {
        if self.own {
            self.roll_back(core).await;
            return;
        }
        let moment = core.clock.now() + REPLY;
        let most = self.tx.most();
        let in_step = self.tx.session().in_step(most);
        let in_step = deadline(&*core.clock, moment, pin!(in_step)).await;
        if matches!(in_step, Ok(Ok(false) | Err(_))) {
            self.close().await;
        }
    }

    /// Rolls back a transaction that was begun for this call. Immediately, because a rollback at the next use of the
    /// connection would keep its locks for as long as the caller leaves the connection idle.
    async fn roll_back(&mut self, core: &Core) {
        if self.own {
            let moment = core.clock.now() + REPLY;
            let rolled_back = async {
                // Savepoints of the client that the body has left open are counted as well.
                let mut depth = self.tx.session().depth();
                while depth > 0 {
                    self.tx.session().rollback().await?;
                    let left = self.tx.session().depth();
                    if left >= depth {
                        return Err(SqlError::lost("a rollback that changes no count"));
                    }
                    depth = left;
                }
                Ok::<_, SqlError>(())
            };
            let done = deadline(&*core.clock, moment, pin!(rolled_back)).await;
            self.own = !matches!(done, Ok(Ok(())));
        }
    }
}

impl<T: SqlTransaction + ?Sized> Drop for Part<'_, T> {
    /// Rolls back a transaction of its own that is still open.
    fn drop(&mut self) {
        if self.begins {
            self.tx.give_up();
        }
        if self.own {
            self.tx.session().start_rollback();
        }
    }
}

/// The scope that a body runs in.
#[derive(Debug)]
pub struct TxScope(Context, CallSpan);

/// The end of a body.
pub struct TxEnd<O>(Result<O, Panic>);

debug_fields!([O, P, T: SqlTransaction + ?Sized] TxRun<'_, O, P, T> { context });

impl<O> TxEnd<O> {
    /// Whether the body has an output, and not a panic.
    pub(crate) fn has_output(&self) -> bool {
        self.0.is_ok()
    }
}

debug_fields!([O] TxEnd<O> {});

impl TxScope {
    /// Runs the body to its end, and drops it.
    ///
    /// # Panics
    ///
    /// Without a body.
    pub async fn run<F: Future>(self, mut body: Pin<&mut Option<F>>) -> TxEnd<F::Output> {
        let end = poll_fn(|cx| {
            let there = body.as_mut().as_pin_mut().expect("a body");
            self.1
                .in_scope(|| self.0.enter(|| catch_unwind::poll(there, cx)))
        });
        let end = end.await;
        self.1.in_scope(|| body.set(None));
        TxEnd(end)
    }
}

/// Claims the key inside the transaction, or finds the call's answer.
pub async fn begin_in_tx<O, P, T: SqlTransaction + ?Sized>(
    call: Call,
    output: Output<O, P>,
    tx: &mut T,
) -> InTx<'_, O, P, T> {
    begin_or_replay(call, output, tx).await.0
}

/// The same. The second part is the key of a record whose answer is replayed.
pub(super) async fn begin_or_replay<O, P, T: SqlTransaction + ?Sized>(
    call: Call,
    mut output: Output<O, P>,
    tx: &mut T,
) -> (InTx<'_, O, P, T>, Option<RecordKey>) {
    // An answer of the local cache involves no wait, see `Drive::poll_start`.
    tokio::task::consume_budget().await;
    let (engine, request) = match describe(call.answered_by(output.any())) {
        Ok(described) => described,
        Err(error) => {
            output.any().refuse(error);
            return (InTx::Answered(output.take()), None);
        }
    };
    let (policy, key) = (request.policy.clone(), request.name.key.clone());
    let core = &engine.core;
    let span = call_span(core, &key);
    let mut watch = CallWatch::begin(core, span.clone(), &key);
    let admitting = Box::pin(admit(&engine, request, tx));
    let admitted = span.clone().instrument(admitting).await;
    watch.note(|times| times.acquired(Duration::ZERO));
    match admitted {
        Ok(TxAdmission::Answer(stored)) => {
            let outcome = span
                .in_scope(|| replay(&engine.core, output.any(), &stored, CallOutcome::Replayed));
            watch.note(|times| times.set_answered(&stored, outcome));
            (InTx::Answered(output.take()), Some(key))
        }
        Ok(TxAdmission::Claim(claim, part, running)) => {
            let (claim, claimed) = claim.map_or((None, None), |claim| (Some(claim.0), claim.1));
            let context = running.context(claim);
            watch.body_started(claim.map_or(0, |claim| claim.attempts));
            let run = TxRun {
                engine,
                output,
                policy,
                part,
                running,
                context,
                claim,
                claimed,
                watch,
            };
            (InTx::Run(run), None)
        }
        Err(error) => {
            span.in_scope(|| engine.core.emit(&key, EventKind::Refused { error: &error }));
            watch.note(|times| times.set(CallOutcome::refused(&error)));
            output.any().refuse(error);
            (InTx::Answered(output.take()), None)
        }
    }
}

enum TxAdmission<'t, T: SqlTransaction + ?Sized> {
    /// Counted as running before it stops waiting: a shutdown sees it.
    Claim(Option<Grant>, Part<'t, T>, Unleased),
    Answer(StoredAnswer),
}

async fn admit<'t, T: SqlTransaction + ?Sized>(
    engine: &Engine,
    request: CallRequest,
    tx: &'t mut T,
) -> Result<TxAdmission<'t, T>, Error> {
    let (core, CallRequest { name, policy, .. }) = (&engine.core, &request);
    let _entered = Entered::new(core);
    let protected = request.lets_in(core)?;
    transactional_store(engine, &name.key)?;
    if protected && let Some(stored) = answer_outside(core, &request).await? {
        return Ok(TxAdmission::Answer(stored));
    }
    let mut part = Part {
        tx,
        own: false,
        depth: 0,
        begins: false,
    };
    part.check(&name.key).await?;
    if part.tx.session().depth() == 0 {
        part.begins = true;
        let begun = part.tx.session().begin().await;
        part.begins = false;
        begun.map_err(|error| unreachable_database(&name.key, error))?;
        if part.tx.session().depth() == 0 {
            // It could not be rolled back, because it would not be known to exist.
            part.tx.session().start_rollback();
            part.tx.give_up();
            let error = name.key.error(ErrorKind::TransactionAborted);
            return Err(
                error.detail("its session does not count the transaction that it has begun")
            );
        }
        part.own = true;
    }
    part.depth = part.tx.session().depth();
    let running = || Unleased::new(core, name.clone(), policy.max_run());
    if !protected {
        return Ok(TxAdmission::Claim(None, part, running()));
    }
    match claim(engine, &request, &mut part).await {
        Ok(Claimed::Granted(claim)) => Ok(TxAdmission::Claim(Some(claim), part, running())),
        Ok(Claimed::Done(stored)) => {
            part.roll_back(core).await;
            Ok(TxAdmission::Answer(stored))
        }
        Err(error) => {
            part.leave(core).await;
            Err(error)
        }
    }
}

/// The answer of a call that is known without its transaction: in this process, or under its former name.
async fn answer_outside(
    core: &Arc<Core>,
    request: &CallRequest,
) -> Result<Option<StoredAnswer>, Error> {
    let CallRequest { name, policy, .. } = request;
    let (key, fingerprint) = (&name.key, name.fingerprint);
    let cached = core.cached_answer(key, fingerprint, policy, core.clock.now());
    if let Local::Answer { record, left } = cached {
        return answer(core, key, record, left, policy, false, true).map(Some);
    }
    if let Ok(Some((record, left))) = core.store.recall(key, fingerprint).await {
        return answer(core, key, record, left, policy, false, false).map(Some);
    }
    match &request.former {
        Some(former) => answer_under_former_name(core, former, policy, request.expired).await,
        None => Ok(None),
    }
}

/// The stored answer under the former name of the call. A call in a transaction neither begins nor continues a record
/// under that name, because a record that it holds could expire for all others while the transaction is open.
async fn answer_under_former_name(
    core: &Arc<Core>,
    name: &CallName,
    policy: &EffectivePolicy,
    expired: bool,
) -> Result<Option<StoredAnswer>, Error> {
    let (key, operation) = (&name.key, name.key.operation());
    let read = core.patiently(operation, || core.read(key)).await?;
    let (record, left) = match read {
        ReadReply::Absent => return Ok(None),
        ReadReply::Found { record, left } => (record, left),
        ReadReply::Unreadable(error) => {
            return Err(operation.error(ErrorKind::UnknownRecord).because(error));
        }
    };
    core.emit(key, EventKind::FormerDigestKey);
    let former_request = ClaimRequest {
        // No claim is granted: the owner holds none.
        needs: Needs::Verdict,
        ..policy.claim_request(Owner::random(), name.fingerprint)
    };
    match transition::claim(Some(Current::new(&record, left)), &former_request, 0).0 {
        ClaimReply::Done { record, left } => {
            answer(core, key, record, left, policy, false, false).map(Some)
        }
        ref reply @ ClaimReply::Running { lease_left } if expired && lease_left.is_zero() => {
            let error = expired_token(core, key).await;
            Err(error.unwrap_or_else(|| refusal(operation, reply)))
        }
        ClaimReply::Running { lease_left } if lease_left.is_zero() => {
            let retry_after = AGAIN;
            let error = operation.error(ErrorKind::Running { retry_after });
            Err(error.detail(
                "its record is unfinished and is stored under the name of the former digest key: a call outside of a \
                 transaction continues it, `Entry::resolve` resolves it, or it expires",
            ))
        }
        reply => Err(refusal(operation, &reply)),
    }
}

/// A granted claim, and its entry in the engine's list.
type Grant = (Header, Option<ClaimedKey>);

enum Claimed {
    Granted(Grant),
    Done(StoredAnswer),
}

async fn claim<T: SqlTransaction + ?Sized>(
    engine: &Engine,
    request: &CallRequest,
    part: &mut Part<'_, T>,
) -> Result<Claimed, Error> {
    let CallRequest { name, policy, .. } = request;
    let (key, expired) = (&name.key, request.expired);
    let (core, store) = (&engine.core, transactional_store(engine, key)?);
    // Attempts that are not committed are not counted.
    let mut claim_request = policy.claim_request(core.new_owner(key), name.fingerprint);
    if expired {
        claim_request.needs = Needs::Verdict;
    }
    let clock = &*core.clock;
    let mut queued = None;
    let reply = loop {
        let moment = clock.now() + policy.wait() + core.limits.claim_deadline;
        let session = part.tx.session();
        // Boxed: it is larger than the rest.
        let mut claim = Box::pin(store.claim_within(session, key, &claim_request, policy.wait()));
        let reply = match deadline(clock, moment, claim.as_mut()).await {
            Ok(Err(TxError::Busy)) => {
                let queued = queued
                    .get_or_insert_with(|| Queued::new(core, key, &claim_request, policy.wait()));
                queued.pause().await?
            }
            Ok(reply) => Some(reply.map_err(|failed| failure(key, failed))?),
            Err(_) => {
                let error = key.error(ErrorKind::TransactionAborted);
                return Err(error.detail("no reply to the claim within its deadline"));
            }
        };
        if let Some(reply) = reply {
            break reply;
        }
    };
    match reply {
        // There was no record; the claim inserted a row that no other transaction has seen.
        ClaimReply::Granted { .. } if expired => {
            let undone = Box::pin(store.undo_within(part.tx.session(), key));
            ending::before_deadline(engine, key, undone).await?;
            Err(key.error(ErrorKind::TokenExpired))
        }
        ClaimReply::Absent => Err(key.error(ErrorKind::TokenExpired)),
        ClaimReply::Running { lease_left } if expired && lease_left.is_zero() => {
            let error = expired_token(core, key).await;
            Err(error.unwrap_or_else(|| refusal(key.operation(), &reply)))
        }
        // The body has no steps, and would run them again.
        ClaimReply::Granted { journal, .. } if journal.kind() == JournalKind::Steps => {
            let undone = Box::pin(store.undo_within(part.tx.session(), key));
            ending::before_deadline(engine, key, undone).await?;
            let error = key.error(ErrorKind::InvalidStep);
            Err(error.detail(
                "an earlier attempt, which was not in a transaction, has recorded steps, and this one would run them \
                 again: call it without a transaction once more, or reset its entry",
            ))
        }
        ClaimReply::Granted { fence, attempt, .. } => {
            core.emit(key, EventKind::Claimed { attempt, fence });
            let lease = policy.lease();
            let claim = claim_request.granted(State::Pending { lease }, fence, attempt);
            let listed = (store.has_one_writer()).then(|| ClaimedKey::new(core, key, part.own));
            Ok(Claimed::Granted((claim, listed)))
        }
        ClaimReply::Done { record, left } => {
            let stored = answer(core, key, record, left, policy, false, false)?;
            Ok(Claimed::Done(stored))
        }
        reply => Err(refusal(key.operation(), &reply)),
    }
}

pub(crate) fn transactional_store<'e>(
    engine: &'e Engine,
    key: &RecordKey,
) -> Result<&'e SqlStoreState, Error> {
    let sql = engine.core.store.sql().ok_or_else(|| {
        let error = key.error(ErrorKind::InvalidPolicy);
        error.detail(
            "a call in a transaction needs an engine whose store is in the same database: SQLite, \
             PostgreSQL or MySQL",
        )
    })?;
    Ok(sql.0)
}

fn unreachable_database(key: &RecordKey, error: SqlError) -> Error {
    let message = "the transaction could not be begun";
    let store = StoreError::new(crate::store::StoreErrorKind::Unavailable, message);
    unavailable(key.operation(), store.because(error))
}

pub(super) fn failure(key: &RecordKey, failed: TxError) -> Error {
    let operation = key.operation();
    match failed {
        TxError::Elsewhere { store } => {
            let error = operation.error(ErrorKind::InvalidPolicy);
            error.detail(format!(
                "the transaction is of another database than the engine's store, which is {store}"
            ))
        }
        TxError::Locked => {
            let error = operation.error(ErrorKind::Running { retry_after: AGAIN });
            error.detail("another transaction holds its record")
        }
        TxError::Busy => operation
            .error(ErrorKind::StoreUnavailable)
            .worth_repeating(Some(AGAIN))
            .detail("another transaction holds the file's lock for writing"),
        TxError::Aborted(error) => operation
            .error(ErrorKind::TransactionAborted)
            .because(error),
        TxError::Store(error) => unavailable(operation, error),
    }
}
