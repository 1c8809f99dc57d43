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

/// Whether the format writes this value as another one. Determined by a serializer that writes nothing, and that is
/// optimized away for types without options and floats.
pub(super) fn loses<T: Serialize>(value: &T, format: AnswerFormat) -> bool {
    let lost = Cell::new(false);
    let check = LossCheck {
        is_json: matches!(format, AnswerFormat::Json),
        in_some: false,
        lost: &lost,
    };
    // An error that occurs here and did not occur during encoding is ignored: `lost` alone decides.
    let _ = value.serialize(check);
    lost.get()
}

#[derive(Clone, Copy)]
struct LossCheck<'a> {
    is_json: bool,
    /// Directly inside a `Some`, which the format does not write.
    in_some: bool,
    lost: &'a Cell<bool>,
}

#[derive(Clone, Copy)]
struct ContentLossCheck<'a>(LossCheck<'a>);

impl<'a> LossCheck<'a> {
    /// Records a value that is written as null: it is lost inside a `Some`.
    fn nothing(self) {
        if self.in_some {
            self.lost.set(true);
        }
    }

    fn within(self) -> ContentLossCheck<'a> {
        ContentLossCheck(LossCheck {
            in_some: false,
            ..self
        })
    }
}

/// The values that every format brings back.
macro_rules! brought_back {
    ($($method:ident: $of:ty),+ $(,)?) => {
        $(
            fn $method(self, _: $of) -> fmt::Result {
                Ok(())
            }
        )+
    };
}

/// The values whose content is checked.
macro_rules! compounds {
    ($($method:ident: $($of:ty),+;)+) => {
        $(
            fn $method(self, $(_: $of),+) -> Result<ContentLossCheck<'a>, fmt::Error> {
                Ok(self.within())
            }
        )+
    };
}

impl<'a> Serializer for LossCheck<'a> {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = ContentLossCheck<'a>;
    type SerializeTuple = ContentLossCheck<'a>;
    type SerializeTupleStruct = ContentLossCheck<'a>;
    type SerializeTupleVariant = ContentLossCheck<'a>;
    type SerializeMap = ContentLossCheck<'a>;
    type SerializeStruct = ContentLossCheck<'a>;
    type SerializeStructVariant = ContentLossCheck<'a>;

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

    fn serialize_f32(self, number: f32) -> fmt::Result {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> fmt::Result {
        if self.is_json && !number.is_finite() {
            self.lost.set(true);
        }
        Ok(())
    }

    fn serialize_none(self) -> fmt::Result {
        self.nothing();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> fmt::Result {
        value.serialize(LossCheck {
            in_some: true,
            ..self
        })
    }

    fn serialize_unit(self) -> fmt::Result {
        self.nothing();
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> fmt::Result {
        // An empty list in `MessagePack`.
        if self.is_json {
            self.nothing();
        }
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> fmt::Result {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        // Written as its content.
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        value.serialize(self.within().0)
    }

    compounds! {
        serialize_seq: Option<usize>;
        serialize_tuple: usize;
        serialize_tuple_struct: &'static str, usize;
        serialize_tuple_variant: &'static str, u32, &'static str, usize;
        serialize_map: Option<usize>;
        serialize_struct: &'static str, usize;
        serialize_struct_variant: &'static str, u32, &'static str, usize;
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> fmt::Result {
        Ok(())
    }

    fn is_human_readable(&self) -> bool {
        self.is_json
    }
}

/// Implements a compound serializer, for elements or fields.
macro_rules! checks_content {
    ($($compound:ident: $method:ident($($name:ident)?)),+ $(,)?) => {
        $(
            impl $compound for ContentLossCheck<'_> {
                type Ok = ();
                type Error = fmt::Error;

                fn $method<T: Serialize + ?Sized>(
                    &mut self,
                    $($name: &'static str,)?
                    value: &T,
                ) -> fmt::Result {
                    $(let _ = $name;)?
                    value.serialize(self.0)
                }

                fn end(self) -> fmt::Result {
                    Ok(())
                }
            }
        )+
    };
}

checks_content! {
    SerializeSeq: serialize_element(),
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(name),
    SerializeStructVariant: serialize_field(name),
}

impl SerializeMap for ContentLossCheck<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> fmt::Result {
        key.serialize(self.0)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        value.serialize(self.0)
    }

    fn end(self) -> fmt::Result {
        Ok(())
    }
}
