//! A call's error, with idem's refusal apart from the body's.

use super::class::{Class, Classify};
use super::codec::{Body, Replay, Sink, Undecodable, Unencodable};
use crate::error::Error;

/// The error of a body, or idem's refusal to run it.
///
/// For code that is generic over the error `E` of a body, which has no room for a refusal. Stored as `E` itself, so that
/// both types read the same records.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use idem_runtime::codec::Replay;
/// use idem_runtime::{CallError, Classify, Engine, store::memory::MemoryStore};
///
/// /// Runs a job once. Its error needs no variant for a refusal.
/// async fn once<E: Classify + Replay>(
///     engine: &Engine,
///     id: &str,
///     job: impl AsyncFnOnce() -> Result<u64, E>,
/// ) -> Result<u64, CallError<E>> {
///     let call = engine.operation("jobs.run").key(id);
///     call.run(|_| async { job().await.map_err(CallError::Body) }).await
/// }
///
/// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// # struct Failed;
/// # impl Classify for Failed { fn class(&self) -> idem_runtime::Class { idem_runtime::Class::Business } }
/// let engine = Engine::new(MemoryStore::new());
/// let first = once(&engine, "job-7", async || Err(Failed)).await;
/// assert!(matches!(first, Err(CallError::Body(Failed))));
/// let again = once(&engine, "job-7", async || -> Result<u64, Failed> { unreachable!("it is replayed") }).await;
/// assert!(matches!(again, Err(CallError::Body(Failed))));
/// # });
/// ```
#[derive(Clone, Debug)]
pub enum CallError<E> {
    /// The error of the body.
    Body(E),
    /// The call was refused.
    Refused(Error),
}

impl<E> From<Error> for CallError<E> {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

#[diagnostic::do_not_recommend]
impl<E: Classify> Classify for CallError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Body(error) => error.class(),
            // Of a call inside the body: nothing of it is stored.
            Self::Refused(_) => Class::System,
        }
    }
}

// Of no help to a type that cannot be stored.
#[diagnostic::do_not_recommend]
impl<E: Replay> Replay for CallError<E> {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        match self {
            Self::Body(error) => error.write(out),
            Self::Refused(_) => Err(Unencodable::NotSerializable),
        }
    }

    fn read(body: &Body<'_>) -> Result<Self, Undecodable> {
        E::read(body).map(Self::Body)
    }

    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable> {
        match self {
            Self::Body(error) => error.read_back(body),
            Self::Refused(_) => Ok(()),
        }
    }

    fn schema() -> u32 {
        E::schema()
    }
}
