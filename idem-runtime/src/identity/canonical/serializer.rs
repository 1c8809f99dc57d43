use std::fmt::{self, Write as _};

use serde::{Serialize, Serializer};

use super::compound::{Elements, MapEntries};
use super::encoder::{Encoder, Major, NULL};
use super::error::{CanonicalError, CanonicalErrorKind};
use super::float::{to_half, to_single};

const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const HALF: u8 = 0xf9;
const SINGLE: u8 = 0xfa;
const DOUBLE: u8 = 0xfb;
const POSITIVE_BIGNUM: u8 = 0xc2;
const NEGATIVE_BIGNUM: u8 = 0xc3;

impl Encoder {
    #[inline]
    fn number(&mut self, major: Major, number: u64) {
        self.fill(true);
        self.head(major, number);
    }

    #[inline]
    fn signed(&mut self, number: i64) {
        if number < 0 {
            // CBOR writes −1 − n, which is the complement.
            self.number(Major::Negative, (!number).cast_unsigned());
        } else {
            self.number(Major::Unsigned, number.cast_unsigned());
        }
    }

    /// A number of more than 64 bits: a tag and the bytes without leading zeros.
    fn bignum(&mut self, tag: u8, number: u128) {
        self.fill(true);
        let number = number.to_be_bytes();
        let leading = number.iter().take_while(|byte| **byte == 0).count();
        let significant = &number[leading..];
        self.bytes.push(tag);
        self.head(Major::Bytes, significant.len() as u64);
        self.bytes.extend_from_slice(significant);
    }

    fn single(&mut self, number: f32) {
        self.fill(true);
        if let Some(half) = to_half(number) {
            self.bytes.push(HALF);
            self.bytes.extend_from_slice(&half.to_be_bytes());
        } else {
            self.bytes.push(SINGLE);
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Begins `{name: content}`, for an enum variant with content. A single entry is always in order, so the map needs
    /// no buffering.
    fn variant(&mut self, name: &'static str) -> Result<(), CanonicalError> {
        self.enter()?;
        self.room(name.len())?;
        self.head(Major::Map, 1);
        self.name(name);
        Ok(())
    }
}

/// Integers of up to 64 bits.
macro_rules! integers {
    ($($method:ident($of:ty): |$encoder:ident, $value:ident| $write:expr;)+) => {$(
        #[inline]
        fn $method(self, $value: $of) -> Result<(), CanonicalError> {
            let $encoder = self;
            $write;
            Ok(())
        }
    )+};
}

impl<'a> Serializer for &'a mut Encoder {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Elements<'a>;
    type SerializeTupleStruct = Elements<'a>;
    type SerializeTupleVariant = Elements<'a>;
    type SerializeMap = MapEntries<'a>;
    type SerializeStruct = MapEntries<'a>;
    type SerializeStructVariant = MapEntries<'a>;

    fn is_human_readable(&self) -> bool {
        true
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), CanonicalError> {
        self.fill(true);
        self.bytes.push(if value { TRUE } else { FALSE });
        Ok(())
    }

    integers! {
        serialize_i8(i8): |encoder, value| encoder.signed(value.into());
        serialize_i16(i16): |encoder, value| encoder.signed(value.into());
        serialize_i32(i32): |encoder, value| encoder.signed(value.into());
        serialize_i64(i64): |encoder, value| encoder.signed(value);
        serialize_u8(u8): |encoder, value| encoder.number(Major::Unsigned, value.into());
        serialize_u16(u16): |encoder, value| encoder.number(Major::Unsigned, value.into());
        serialize_u32(u32): |encoder, value| encoder.number(Major::Unsigned, value.into());
        serialize_u64(u64): |encoder, value| encoder.number(Major::Unsigned, value);
    }

    fn serialize_i128(self, value: i128) -> Result<(), CanonicalError> {
        if let Ok(value) = u128::try_from(value) {
            return self.serialize_u128(value);
        }
        let complement = (!value).cast_unsigned();
        match u64::try_from(complement) {
            Ok(number) => self.number(Major::Negative, number),
            Err(_) => self.bignum(NEGATIVE_BIGNUM, complement),
        }
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Result<(), CanonicalError> {
        match u64::try_from(value) {
            Ok(number) => self.number(Major::Unsigned, number),
            Err(_) => self.bignum(POSITIVE_BIGNUM, value),
        }
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), CanonicalError> {
        self.single(value);
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), CanonicalError> {
        if let Some(single) = to_single(value) {
            self.single(single);
        } else {
            self.fill(true);
            self.bytes.push(DOUBLE);
            self.bytes.extend_from_slice(&value.to_be_bytes());
        }
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), CanonicalError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), CanonicalError> {
        self.string(Major::Text, value.as_bytes())
    }

    fn collect_str<T>(self, value: &T) -> Result<(), CanonicalError>
    where
        T: fmt::Display + ?Sized,
    {
        let at = self.bytes.len();
        self.bytes.push(0);
        let written = write!(Text(self), "{value}");
        if written.is_err() {
            return Err(self.fail(CanonicalErrorKind::SerializeFailed));
        }
        let length = self.bytes.len() - at - 1;
        self.fill(length > 0);
        self.head_at(at, Major::Text, length as u64);
        Ok(())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<(), CanonicalError> {
        self.string(Major::Bytes, value)
    }

    #[inline]
    fn serialize_none(self) -> Result<(), CanonicalError> {
        self.bytes.push(NULL);
        Ok(())
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        self.enter()?;
        let start = self.position();
        self.put(value)?;
        if self.is_wrapped_null_since(start) {
            self.bytes.pop();
            self.head(Major::Array, 1);
            self.bytes.push(NULL);
        }
        self.leave();
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), CanonicalError> {
        self.head(Major::Array, 0);
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), CanonicalError> {
        self.fill(true);
        self.room(variant.len())?;
        self.name(variant);
        Ok(())
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.enter()?;
        self.note_newtype(name);
        self.put(value)?;
        self.leave();
        Ok(())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.variant(variant)?;
        self.put(value)?;
        self.leave();
        Ok(())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Elements<'a>, CanonicalError> {
        Elements::new(self, len)
    }

    fn serialize_tuple(self, len: usize) -> Result<Elements<'a>, CanonicalError> {
        Elements::new(self, Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        len: usize,
    ) -> Result<Elements<'a>, CanonicalError> {
        Elements::new(self, Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Elements<'a>, CanonicalError> {
        self.variant(variant)?;
        // An empty variant has as much content as a unit variant.
        self.fill(len == 0);
        Elements::of_variant(self, len)
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<MapEntries<'a>, CanonicalError> {
        MapEntries::new(self)
    }

    fn serialize_struct(
        self,
        name: &'static str,
        _len: usize,
    ) -> Result<MapEntries<'a>, CanonicalError> {
        MapEntries::of_struct(self, name)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<MapEntries<'a>, CanonicalError> {
        self.variant(variant)?;
        self.fill(len == 0);
        MapEntries::of_variant(self)
    }
}

/// Writes the output of a `Display` implementation directly into the buffer.
struct Text<'a>(&'a mut Encoder);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.room(text.len()).map_err(|_| fmt::Error)?;
        self.0.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
