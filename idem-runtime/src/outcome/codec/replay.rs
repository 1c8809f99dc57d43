//! The trait of values that can be stored.

use std::any::type_name;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::Body;
use super::failure::{Undecodable, Unencodable};
use super::schema::schema_of;
use super::sink::Sink;
use crate::outcome::provenance::AnswerSource;

/// A value that can be stored as an answer and read back.
///
/// Implemented for every type that serializes and deserializes without borrowing, and for an [`Answer`](crate::Answer) of one.
///
/// Answers are stored as JSON, or in the engine's [`AnswerFormat`](crate::codec::AnswerFormat). Each caller, the first
/// one too, gets the value that is read back from its stored form: a field that is skipped has its default, a form that
/// rounds has rounded, and an untagged enum is the first variant that fits. Numbers come back bit for bit.
///
/// A value that cannot be stored goes to the first caller alone, and duplicates get
/// [`ErrorKind::NotStored`](crate::ErrorKind::NotStored): a value that the format does not represent (`Some` of nothing, as
/// `Some(None)` and `Some(())`; in JSON a number that is not finite and a map whose keys are no text), and a value that its
/// own type does not read back (a field that is skipped when written and required when read, or renamed one way; a
/// 128-bit integer under `flatten` or in an enum that is untagged or tagged within, and a float there in JSON, if a crate
/// of the build enables the feature `arbitrary_precision` of `serde_json`).
///
/// # The name of a type
///
/// A record holds the type name of its value or error: without modules and lifetimes, with type arguments
/// (`Vec<Receipt>`). So a type may be moved to another module or crate, and may get new fields that its `Deserialize`
/// does not need. A type of another name is refused as [`ErrorKind::WrongType`](crate::ErrorKind::WrongType), even if
/// it could read the stored value (`u32` and `u64`, `String` and a newtype around it, `Box<str>`): see
/// [`OnOtherType`](crate::OnOtherType). An [`Answer`](crate::Answer), and a `Reply` of the feature `http`, have the name of the type
/// that they hold.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored as an answer",
    label = "duplicates get a stored copy of what is returned",
    note = "if the type is yours: derive `serde::Serialize` and `serde::Deserialize` for it, without borrowed fields",
    note = "an array of more than 32 elements, an `Arc` and an `Rc` cannot be stored: return a `Vec`, a `String` or a `Box`",
    note = "in an `Answer<T>` it is `T` that derives them",
    note = "if it is the error: `on_error = release` or `on_error = unknown` keeps none"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "an axum handler returns `Result<Reply<T>, E>`: status, headers and a value, where `Json<T>` and other responses cannot be read back"
    )
)]
pub trait Replay {
    #[doc(hidden)]
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable>;
    #[doc(hidden)]
    fn read(body: &Body<'_>) -> Result<Self, Undecodable>
    where
        Self: Sized;
    /// Takes the value that a replay of its `body` reads.
    #[doc(hidden)]
    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable>;
    #[doc(hidden)]
    #[must_use]
    fn schema() -> u32
    where
        Self: Sized,
    {
        schema_of(type_name::<Self>())
    }
    #[doc(hidden)]
    fn set_provenance(&mut self, _how: AnswerSource, _attempt: u16, _age: Duration) {}
    #[doc(hidden)]
    #[must_use]
    fn tells_age() -> bool
    where
        Self: Sized,
    {
        false
    }
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Replay for T {
    fn write(&self, out: &mut Sink) -> Result<(), Unencodable> {
        out.put(self)
    }

    fn read(body: &Body<'_>) -> Result<Self, Undecodable> {
        if body.is_reply() {
            return Err(Undecodable::Mistyped { at: 0 });
        }
        body.take()
    }

    fn read_back(&mut self, body: &Body<'_>) -> Result<(), Unencodable> {
        match Self::read(body) {
            Ok(value) => *self = value,
            Err(error) => return Err(error.in_own_form(type_name::<T>())),
        }
        Ok(())
    }
}
