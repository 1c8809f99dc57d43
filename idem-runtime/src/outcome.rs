//! From a function's result to a stored answer, and back.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::answer::{Encoded, Replay, Undecodable, Unencodable};
use crate::error::Error;
use crate::on_error::OnError;
use crate::record::{OutcomeKind, Record, State};

/// Takes idem's own refusals. Implemented for every `E: From<idem_runtime::Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no room for idem's own refusals",
    label = "a duplicate may be refused, and `{Self}` must be able to say so",
    note = "implement `From<idem_runtime::Error>` for `{Self}`, for example with a variant `Idempotency(idem_runtime::Error)`"
)]
pub trait FromError {
    #[doc(hidden)]
    fn from_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> FromError for E {
    fn from_error(error: Error) -> Self {
        Self::from(error)
    }
}

/// The result of an idempotent function, under an `on_error` policy `P`. Sealed: implemented for
/// `Result<T, E>`.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns a `Result`, not `{Self}`",
    label = "not a `Result`",
    note = "a call can be refused (still running, other arguments, store down), and an `Err` says so: return `Result<T, E>`"
)]
pub trait Outcome<P>: Sized + Sealed {
    #[doc(hidden)]
    fn encode(&self, on_error: &P, max_bytes: usize) -> Encoded;
    #[doc(hidden)]
    fn decode(record: &Record) -> Result<Self, Undecodable>;
    #[doc(hidden)]
    fn refuse(error: Error) -> Self;
    #[doc(hidden)]
    #[must_use]
    fn schemas() -> [u32; 2] {
        Self::type_tags()
    }
}

pub use sealed::Sealed;

mod sealed {
    /// Keeps [`Outcome`](super::Outcome) to `Result`.
    pub trait Sealed {
        /// The schema tags of value and error.
        #[must_use]
        fn type_tags() -> [u32; 2];
    }

    impl<T, E> Sealed for Result<T, E> {
        fn type_tags() -> [u32; 2] {
            use std::any::type_name;
            [type_name::<T>(), type_name::<E>()].map(crate::answer::schema_of)
        }
    }
}

impl<T: Replay, E: FromError, P: OnError<E>> Outcome<P> for Result<T, E> {
    fn encode(&self, on_error: &P, max_bytes: usize) -> Encoded {
        match self {
            Ok(value) => Encoded::value(value, max_bytes),
            Err(error) => on_error.encode(error, max_bytes),
        }
    }

    fn decode(record: &Record) -> Result<Self, Undecodable> {
        match record.header.state {
            State::Done {
                outcome: OutcomeKind::Value,
                ..
            } => T::read(record.body()).map(Ok),
            State::Done {
                outcome: OutcomeKind::Error,
                ..
            } => P::decode(record.body()).map(Err),
            _ => Err(Undecodable { at: 0 }),
        }
    }

    fn refuse(error: Error) -> Self {
        Err(E::from_error(error))
    }
}

/// How a result is written and read: function pointers, so that the bounds of the return type are
/// asked for once, where the codec is made.
pub struct Codec<O, P> {
    on_error: P,
    encode: fn(&O, &P, usize) -> Encoded,
    decode: fn(&Record) -> Result<O, Undecodable>,
    refuse: fn(Error) -> O,
    schema: fn() -> [u32; 2],
}

impl<O: Outcome<P>, P> Codec<O, P> {
    pub(crate) fn new(on_error: P) -> Self {
        Self {
            on_error,
            encode: O::encode,
            decode: O::decode,
            refuse: O::refuse,
            schema: O::schemas,
        }
    }
}

impl<O, P> Codec<O, P> {
    pub(crate) fn encode(&self, output: &O, max_bytes: usize) -> Encoded {
        let encode = || (self.encode)(output, &self.on_error, max_bytes);
        // As in `Encoded::store`; here only a classification can have panicked.
        catch_unwind(AssertUnwindSafe(encode)).unwrap_or_else(|_| {
            Encoded::empty(OutcomeKind::Unknown, Some(Unencodable::Unclassified))
        })
    }

    pub(crate) fn decode(&self, record: &Record) -> Result<O, Undecodable> {
        (self.decode)(record)
    }

    pub(crate) fn refuse(&self, error: Error) -> O {
        (self.refuse)(error)
    }

    /// What [`refuse`](Self::refuse) calls, for where the codec has gone elsewhere.
    pub(crate) fn refusal(&self) -> fn(Error) -> O {
        self.refuse
    }

    /// The tags of the types that this codec writes.
    pub(crate) fn schemas(&self) -> [u32; 2] {
        (self.schema)()
    }
}

impl<O, P> fmt::Debug for Codec<O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}
