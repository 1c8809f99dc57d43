//! Detection of values that a format writes but does not read back.
//!
//! JSON writes `None`, `()` and a unit struct as `null`, and `Some` as its content: `Some(None)` is read as `None`. It
//! also writes a number that is not finite as `null`. `MessagePack` writes `None` and `()` as `nil`.

use std::cell::Cell;
use std::fmt;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::layout::AnswerFormat;

/// What is checked while a value is written.
#[derive(Clone, Copy)]
struct Check<'a> {
    is_json: bool,
    /// The value is directly inside a `Some`, which the format does not write.
    in_some: bool,
    lost: &'a Cell<bool>,
}

impl<'a> Check<'a> {
    /// Records a value that is written as null: it is lost inside a `Some`.
    fn nothing(self) {
        if self.in_some {
            self.lost.set(true);
        }
    }

    /// The check of a value within this one.
    fn within<T: ?Sized>(self, value: &T, in_some: bool) -> Checked<'a, &T> {
        let check = Self { in_some, ..self };
        Checked {
            inner: value,
            check,
        }
    }
}

/// A serializer, a part of one, or a value, with the check of what it writes.
struct Checked<'a, I> {
    inner: I,
    check: Check<'a>,
}

/// Writes a value. Whether its format brings it back; the error is that of writing it.
pub(super) fn write<T, S>(value: &T, format: AnswerFormat, serializer: S) -> Result<bool, S::Error>
where
    T: Serialize,
    S: Serializer,
{
    let lost = Cell::new(false);
    let check = Check {
        is_json: matches!(format, AnswerFormat::Json),
        in_some: false,
        lost: &lost,
    };
    value.serialize(Checked {
        inner: serializer,
        check,
    })?;
    Ok(!lost.get())
}

impl<T: Serialize + ?Sized> Serialize for Checked<'_, &T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.inner.serialize(Checked {
            inner: serializer,
            check: self.check,
        })
    }
}

/// The values that every format brings back.
macro_rules! brought_back {
    ($($method:ident: $of:ty),+ $(,)?) => {
        $(
            fn $method(self, value: $of) -> Result<S::Ok, S::Error> {
                self.inner.$method(value)
            }
        )+
    };
}

/// The values whose content is checked.
macro_rules! compounds {
    ($($method:ident -> $Compound:ident: $($name:ident: $of:ty),+;)+) => {
        $(
            fn $method(self, $($name: $of),+) -> Result<Checked<'a, S::$Compound>, S::Error> {
                Ok(Checked {
                    inner: self.inner.$method($($name),+)?,
                    check: self.check,
                })
            }
        )+
    };
}

impl<'a, S: Serializer> Serializer for Checked<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Checked<'a, S::SerializeSeq>;
    type SerializeTuple = Checked<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Checked<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Checked<'a, S::SerializeTupleVariant>;
    type SerializeMap = Checked<'a, S::SerializeMap>;
    type SerializeStruct = Checked<'a, S::SerializeStruct>;
    type SerializeStructVariant = Checked<'a, S::SerializeStructVariant>;

    brought_back! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
        serialize_char: char,
        serialize_str: &str,
        serialize_bytes: &[u8],
    }

    fn serialize_f32(self, number: f32) -> Result<S::Ok, S::Error> {
        if self.check.is_json && !number.is_finite() {
            self.check.lost.set(true);
        }
        self.inner.serialize_f32(number)
    }

    fn serialize_f64(self, number: f64) -> Result<S::Ok, S::Error> {
        if self.check.is_json && !number.is_finite() {
            self.check.lost.set(true);
        }
        self.inner.serialize_f64(number)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.check.nothing();
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&self.check.within(value, true))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.check.nothing();
        self.inner.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        // An empty list in `MessagePack`.
        if self.check.is_json {
            self.check.nothing();
        }
        self.inner.serialize_unit_struct(name)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        // Written as its content.
        let content = self.check.within(value, self.check.in_some);
        self.inner.serialize_newtype_struct(name, &content)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let content = self.check.within(value, false);
        (self.inner).serialize_newtype_variant(name, index, variant, &content)
    }

    compounds! {
        serialize_seq -> SerializeSeq: len: Option<usize>;
        serialize_tuple -> SerializeTuple: len: usize;
        serialize_tuple_struct -> SerializeTupleStruct: name: &'static str, len: usize;
        serialize_tuple_variant -> SerializeTupleVariant:
            name: &'static str, index: u32, variant: &'static str, len: usize;
        serialize_map -> SerializeMap: len: Option<usize>;
        serialize_struct -> SerializeStruct: name: &'static str, len: usize;
        serialize_struct_variant -> SerializeStructVariant:
            name: &'static str, index: u32, variant: &'static str, len: usize;
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Implements a compound serializer, for elements or fields.
macro_rules! checks_content {
    ($($Compound:ident { $($method:ident($($name:ident)?))+ $(; $skip:ident)? })+) => {
        $(
            impl<C: $Compound> $Compound for Checked<'_, C> {
                type Ok = C::Ok;
                type Error = C::Error;

                $(
                    fn $method<T: Serialize + ?Sized>(
                        &mut self,
                        $($name: &'static str,)?
                        value: &T,
                    ) -> Result<(), C::Error> {
                        self.inner.$method($($name,)? &self.check.within(value, false))
                    }
                )+

                $(
                    fn $skip(&mut self, name: &'static str) -> Result<(), C::Error> {
                        self.inner.$skip(name)
                    }
                )?

                fn end(self) -> Result<C::Ok, C::Error> {
                    self.inner.end()
                }
            }
        )+
    };
}

checks_content! {
    SerializeSeq { serialize_element() }
    SerializeTuple { serialize_element() }
    SerializeTupleStruct { serialize_field() }
    SerializeTupleVariant { serialize_field() }
    SerializeMap { serialize_key() serialize_value() }
    SerializeStruct { serialize_field(name); skip_field }
    SerializeStructVariant { serialize_field(name); skip_field }
}
