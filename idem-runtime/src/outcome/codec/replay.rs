//! The trait of values that can be stored.

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
/// Answers are stored as JSON, or in the engine's [`AnswerFormat`](crate::codec::AnswerFormat). A value that the format cannot represent is not
/// stored, and duplicates get [`ErrorKind::NotStored`](crate::ErrorKind::NotStored): `Some` of nothing (`Some(None)`,
/// `Some(())`), and in JSON a number that is not finite and a map whose keys are no text. Numbers come back bit for
/// bit. A value that its own type does not read back is [`ErrorKind::Undecodable`](crate::ErrorKind::Undecodable) for
/// duplicates: a field that is skipped when written and required when read, a 128-bit integer in an enum that is
/// untagged or tagged within. An untagged enum whose variants look alike is read as the first that fits, which cannot
/// be detected.
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
    #[doc(hidden)]
    #[must_use]
    fn schema() -> u32
    where
        Self: Sized,
    {
        schema_of(std::any::type_name::<Self>())
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
        body.take()
    }
}
