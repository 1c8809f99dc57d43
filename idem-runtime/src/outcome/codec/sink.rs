//! Encoding of an answer's value.

use std::io;

use serde::Serialize;

use super::body::Body;
use super::failure::Unencodable;
use super::format::Format;
use super::layout::{AnswerFormat, Layout, split};
use super::lossless::loses;
use crate::record::HEADER;

/// Initial capacity for an answer of unknown size, in bytes.
const ROOM: usize = 256;

/// Writer of a record's bytes, with a limit.
pub struct Sink {
    record: Vec<u8>,
    format: AnswerFormat,
    max: usize,
    full: bool,
}

impl Sink {
    pub(super) fn new(format: &Format) -> Self {
        let mut record = Vec::with_capacity(HEADER + ROOM);
        record.resize(HEADER, 0);
        record.extend(format.write.tag());
        Self {
            record,
            format: format.write,
            max: format.max_value_bytes,
            full: false,
        }
    }

    pub(crate) fn put<T: Serialize>(&mut self, value: &T) -> Result<(), Unencodable> {
        let written = match self.format {
            AnswerFormat::Json => {
                let mut serializer = serde_json::Serializer::new(&mut *self);
                value.serialize(&mut serializer).is_ok()
            }
            #[cfg(feature = "msgpack")]
            AnswerFormat::MessagePack => rmp_serde::encode::write_named(&mut *self, value).is_ok(),
        };
        self.put_in(written)?;
        if loses(value, self.format) {
            return Err(Unencodable::Lossy);
        }
        Ok(())
    }

    /// The result of writing a value.
    fn put_in(&self, written: bool) -> Result<(), Unencodable> {
        // Checked first: a `Serialize` impl may have ignored the error of a full sink.
        if self.full {
            let max_bytes = self.max;
            return Err(Unencodable::TooLarge { max_bytes });
        }
        // The error of a `Serialize` impl is dropped, because its message may quote the value.
        written.then_some(()).ok_or(Unencodable::NotSerializable)
    }

    #[cold]
    fn refuse(&mut self) -> io::Result<()> {
        self.full = true;
        Err(io::ErrorKind::WriteZero.into())
    }

    /// Reserves space for the bytes that follow a long string: otherwise its closing quote would cause another copy.
    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.record.reserve(bytes + ROOM);
    }

    /// The written form, as a replay reads it.
    pub(super) fn body(&self) -> Body<'_> {
        let (_, content) = split(&self.record[HEADER..]);
        Body {
            layout: Layout::Serialized(self.format),
            bytes: content.into(),
            by_hand: false,
        }
    }

    pub(super) fn into_record(mut self) -> Vec<u8> {
        // A store may keep the record as it is, and for long. A smaller saving is not worth the reallocation.
        let spare = self.record.capacity() - self.record.len();
        if spare > ROOM.max(self.record.len() / 4) {
            self.record.shrink_to_fit();
        }
        self.record
    }
}

debug_fields!(Sink {
    bytes: |it| it.record.len()
});

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    // JSON is written in very small pieces. Without optimization inlining gains nothing, and the function is compiled
    // with each type.
    #[cfg_attr(not(debug_assertions), inline)]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.record.len() + bytes.len() > HEADER + self.max {
            return self.refuse();
        }
        if self.record.capacity() - self.record.len() < bytes.len() {
            self.grow(bytes.len());
        }
        self.record.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::ser::SerializeTuple;

    use super::*;

    #[test]
    fn a_record_takes_little_more_than_its_bytes() {
        let format = Format {
            max_value_bytes: 1 << 20,
            ..Format::default()
        };
        for length in [0, 10, 100, 1_000, 10_000, 100_000] {
            let text = "x".repeat(length);
            let pieces: Vec<_> = text.bytes().collect();
            let mut long = Sink::new(&format);
            long.put(&(1, &text, 1)).unwrap();
            let spare = long.record.capacity() - long.record.len();
            assert!(spare <= 2 * ROOM, "{spare} after a string of {length}");
            let mut many = Sink::new(&format);
            many.put(&pieces).unwrap();
            for record in [long.into_record(), many.into_record()] {
                let spare = record.capacity() - record.len();
                let most = ROOM.max(record.len() / 4);
                assert!(spare <= most, "{spare} beside {}", record.len());
            }
        }
    }

    #[test]
    fn what_goes_on_beyond_the_limit_is_too_large_all_the_same() {
        struct Careless;

        impl Serialize for Careless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut list = serializer.serialize_tuple(2)?;
                list.serialize_element("much too long").ok();
                list.serialize_element(&1)?;
                list.end()
            }
        }

        let mut sink = Sink::new(&Format {
            max_value_bytes: 10,
            ..Format::default()
        });
        assert_eq!(
            sink.put(&Careless),
            Err(Unencodable::TooLarge { max_bytes: 10 })
        );
    }

    #[test]
    fn an_error_of_a_serialize_impl_is_not_repeated() {
        let map = std::collections::BTreeMap::from([((1, "secret"), 1)]);
        let mut sink = Sink::new(&Format::default());
        let error = serde_json::to_writer(&mut sink, &map).unwrap_err();
        assert!(error.to_string().contains("key must be a string"));
        assert_eq!(sink.put(&map), Err(Unencodable::NotSerializable));
        assert_eq!(
            Unencodable::NotSerializable.to_string(),
            "its `Serialize` refused; duplicates get `NotStored`"
        );
    }
}
