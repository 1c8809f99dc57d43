//! An answer with its provenance.

use std::ops::Deref;
use std::time::Duration;

use super::codec::{Body, Replay, Sink, Undecodable, Unencodable};
use super::provenance::AnswerSource;

/// The answer of an idempotent function and its provenance.
///
/// It is the `T` of a `Result<T, E>`, for a caller that needs to know whether the body ran.
///
/// It is stored exactly as a `T` is: a function that returned `T` may return `Answer<T>` from now on, and back again,
/// and reads its earlier answers.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use idem_runtime::{Answer, Engine, Error, AnswerSource, store::memory::MemoryStore};
///
/// let engine = Engine::new(MemoryStore::new());
/// let pay = || engine.operation("payments.pay").key(&7).run(|_| async { Ok::<_, Error>(Answer::from(1_250)) });
///
/// let first = pay().await?;
/// assert!(first.was_executed());
///
/// let again = pay().await?;
/// assert_eq!((*again, again.how(), again.attempt()), (1_250, AnswerSource::Replayed, 1));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    value: T,
    how: AnswerSource,
    attempt: u16,
    age: Duration,
}

impl<T> Answer<T> {
    /// The value that the body returned.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The value that the body returned.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The provenance of the answer.
    pub fn how(&self) -> AnswerSource {
        self.how
    }

    /// The attempt that produced it, starting at 1; 0 if it ran without protection.
    pub fn attempt(&self) -> u16 {
        self.attempt
    }

    /// The age of the stored answer, in milliseconds by the store's clock; zero if it was executed.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Whether this call's own body gave the answer that counts.
    pub fn was_executed(&self) -> bool {
        self.how == AnswerSource::Executed
    }
}

/// The answer of a body that has just run.
///
/// A body returns it; the call fills in the attempt.
impl<T> From<T> for Answer<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            how: AnswerSource::Executed,
            attempt: 1,
            age: Duration::ZERO,
        }
    }
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[diagnostic::do_not_recommend]
impl<T: Replay> Replay for Answer<T> {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        self.value.write(out)
    }

    fn read(body: &Body<'_>) -> Result<Self, Undecodable> {
        T::read(body).map(Self::from)
    }

    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable> {
        self.value.read_back(body)
    }

    fn schema() -> u32 {
        T::schema()
    }

    fn set_provenance(&mut self, how: AnswerSource, attempt: u16, age: Duration) {
        self.value.set_provenance(how, attempt, age);
        (self.how, self.attempt, self.age) = (how, attempt, age);
    }

    fn tells_age() -> bool {
        true
    }
}
