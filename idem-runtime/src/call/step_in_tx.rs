//! A step that is kept in the caller's transaction.

use std::ops::AsyncFnOnce;
use std::pin::pin;
use std::sync::Arc;

use super::description::Call;
use super::step::{Step, StepName, admitted, read};
use super::within::{InTx, begin_or_replay, failure, transactional_store};
use crate::engine::Engine;
use crate::env::observer::EventKind;
use crate::error::Error;
use crate::identity::operation::Operation;
use crate::lifecycle::context::StepsOf;
use crate::lifecycle::step_log::StepStop;
use crate::lifecycle::steps::{StepIdentity, StepStart, Steps, Unfinished};
use crate::outcome::on_error::ClassifiedStep;
use crate::outcome::stored::StoredAnswer;
use crate::outcome::{Outcome, Output};
use crate::policy::{OnDuplicate, OnOtherType};
use crate::record::{Header, Journal};
use crate::store::sql::{SqlTransaction, TransactionalStore};

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
/// its result. An attempt that has lost its lease does not begin, and one that loses it before the end of `part` writes
/// nothing.
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
    let mut output = Output::new(ClassifiedStep);
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
            let mut output = Output::new(ClassifiedStep);
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
    /// An earlier version of the function had it outside of a transaction, and recorded this.
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
            let appended = store.append_within(tx.connection(), &record, &claim, &journal);
            appended.await.map_err(|error| failure(&record, error))
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
    store.is_ok_and(TransactionalStore::has_one_writer)
}
