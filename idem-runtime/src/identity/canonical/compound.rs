//! Serializers of compound values: sequences and maps.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::encoder::{Encoder, Major, NULL};
use super::error::{CanonicalError, CanonicalErrorKind};
use super::json_number::{self, JsonNumber};

/// An array whose elements are being written.
pub(crate) struct Elements<'a> {
    encoder: &'a mut Encoder,
    written: usize,
    length: Length,
    levels: u32,
}

enum Length {
    Announced(usize),
    /// The position of the length byte in a held buffer.
    At(usize),
}

impl<'a> Elements<'a> {
    #[inline]
    pub(super) fn new(
        encoder: &'a mut Encoder,
        len: Option<usize>,
    ) -> Result<Self, CanonicalError> {
        encoder.enter()?;
        let length = if let Some(len) = len {
            encoder.head(Major::Array, len as u64);
            Length::Announced(len)
        } else {
            encoder.hold();
            encoder.bytes.push(0);
            Length::At(encoder.bytes.len() - 1)
        };
        Ok(Self {
            encoder,
            written: 0,
            length,
            levels: 1,
        })
    }

    /// The content of a variant, whose level was entered before.
    pub(super) fn of_variant(encoder: &'a mut Encoder, len: usize) -> Result<Self, CanonicalError> {
        let mut elements = Self::new(encoder, Some(len))?;
        elements.levels = 2;
        Ok(elements)
    }

    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        self.encoder.flow();
        self.encoder.room(0)?;
        self.written += 1;
        self.encoder.put(value)
    }

    #[inline]
    fn finish(self) -> Result<(), CanonicalError> {
        match self.length {
            Length::Announced(len) if len != self.written => {
                return Err(self.encoder.fail(CanonicalErrorKind::Inconsistent));
            }
            Length::Announced(_) => {}
            Length::At(at) => {
                self.encoder.head_at(at, Major::Array, self.written as u64);
                self.encoder.release();
            }
        }
        for _ in 0..self.levels {
            self.encoder.leave();
        }
        Ok(())
    }
}

/// A map whose entries are being written, in a held buffer.
pub(crate) struct MapEntries<'a> {
    encoder: &'a mut Encoder,
    /// The position of the byte reserved for the head.
    head: usize,
    /// The index of the first entry of this map.
    first: usize,
    in_order: bool,
    /// The start and the end of a key whose value is missing.
    key: Option<(usize, usize)>,
    levels: u32,
    /// It stands for a number of `serde_json`.
    is_number: bool,
}

impl<'a> MapEntries<'a> {
    #[inline]
    pub(super) fn new(encoder: &'a mut Encoder) -> Result<Self, CanonicalError> {
        encoder.enter()?;
        encoder.hold();
        let head = encoder.bytes.len();
        encoder.bytes.push(0);
        let first = encoder.entries.len();
        Ok(Self {
            encoder,
            head,
            first,
            in_order: true,
            key: None,
            levels: 1,
            is_number: false,
        })
    }

    pub(super) fn of_struct(
        encoder: &'a mut Encoder,
        name: &'static str,
    ) -> Result<Self, CanonicalError> {
        let mut entries = Self::new(encoder)?;
        entries.is_number = name == json_number::NAME;
        Ok(entries)
    }

    /// The content of a variant, whose level was entered before.
    pub(super) fn of_variant(encoder: &'a mut Encoder) -> Result<Self, CanonicalError> {
        let mut entries = Self::new(encoder)?;
        entries.levels = 2;
        Ok(entries)
    }

    // In derived code the name is a constant, so that inlining makes constants of all values computed from it. Without
    // optimization inlining gains nothing, and the function is compiled with each field of each type.
    #[cfg_attr(
        not(debug_assertions),
        expect(clippy::inline_always, reason = "see above")
    )]
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.encoder.room(0)?;
        let start = self.encoder.bytes.len();
        self.encoder.name(name);
        let key_end = self.encoder.bytes.len();
        self.encoder.put(value)?;
        self.end_field(start, key_end, name_prefix(name));
        Ok(())
    }

    fn end_field(&mut self, start: usize, key_end: usize, prefix: u64) {
        if self.encoder.bytes[key_end..] == [NULL] {
            self.encoder.bytes.truncate(start);
        } else {
            self.in_order &= self.encoder.entry(self.first, start, key_end, prefix);
        }
    }

    #[inline]
    fn finish(self) -> Result<(), CanonicalError> {
        if self.key.is_some() {
            return Err(self.encoder.fail(CanonicalErrorKind::Inconsistent));
        }
        if !self.in_order {
            self.encoder.arrange(self.first)?;
        }
        if self.is_number
            && let Some(number) = self.number()
        {
            return self.replace_by(number);
        }
        let entries = self.encoder.entries.len() - self.first;
        self.encoder.entries.truncate(self.first);
        self.encoder.head_at(self.head, Major::Map, entries as u64);
        self.encoder.release();
        for _ in 0..self.levels {
            self.encoder.leave();
        }
        Ok(())
    }
}

impl MapEntries<'_> {
    /// The number whose text is the only entry.
    fn number(&self) -> Option<JsonNumber> {
        let [entry] = self.encoder.entries.get(self.first..)? else {
            return None;
        };
        JsonNumber::read(self.encoder.text_of(entry)?)
    }

    /// Writes the number in place of the entries.
    fn replace_by(self, number: JsonNumber) -> Result<(), CanonicalError> {
        let Self {
            encoder,
            head,
            first,
            levels,
            ..
        } = self;
        encoder.entries.truncate(first);
        encoder.bytes.truncate(head);
        encoder.release();
        for _ in 0..levels {
            encoder.leave();
        }
        match number {
            JsonNumber::Unsigned(number) => encoder.put(&number),
            JsonNumber::Negative(number) => encoder.put(&number),
            JsonNumber::Float(number) => encoder.put(&number),
        }
    }
}

impl SerializeMap for MapEntries<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        if self.key.is_some() {
            return Err(self.encoder.fail(CanonicalErrorKind::Inconsistent));
        }
        self.encoder.room(0)?;
        let start = self.encoder.bytes.len();
        self.encoder.put(key)?;
        self.key = Some((start, self.encoder.bytes.len()));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        let Some((start, key_end)) = self.key.take() else {
            return Err(self.encoder.fail(CanonicalErrorKind::Inconsistent));
        };
        self.encoder.put(value)?;
        let prefix = key_prefix(&self.encoder.bytes[start..key_end]);
        self.in_order &= self.encoder.entry(self.first, start, key_end, prefix);
        Ok(())
    }

    fn end(self) -> Result<(), CanonicalError> {
        self.finish()
    }
}

macro_rules! elements {
    ($($kind:ident $method:ident),*) => {$(
        impl $kind for Elements<'_> {
            type Ok = ();
            type Error = CanonicalError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
                self.element(value)
            }

            #[inline]
            fn end(self) -> Result<(), CanonicalError> {
                self.finish()
            }
        }
    )*};
}

elements! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

macro_rules! fields {
    ($($kind:ident),*) => {$(
        impl $kind for MapEntries<'_> {
            type Ok = ();
            type Error = CanonicalError;

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), CanonicalError> {
                self.field(name, value)
            }

            #[inline]
            fn end(self) -> Result<(), CanonicalError> {
                self.finish()
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

/// The first eight bytes of an encoded key, zero-padded.
#[inline]
fn key_prefix(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

/// The same for the name of a field. Reads the name instead of the encoded bytes, because the name is a constant where
/// this is inlined.
#[inline]
fn name_prefix(name: &str) -> u64 {
    let name = name.as_bytes();
    let mut prefix = match u8::try_from(name.len()) {
        Ok(length @ 0..=23) => u64::from(Major::Text as u8 + length) << 56,
        // Names of this length are rare, and all of them sort last.
        _ => return u64::MAX,
    };
    let mut shift = 56;
    for byte in name.iter().take(7) {
        shift -= 8;
        prefix |= u64::from(*byte) << shift;
    }
    prefix
}
