use std::cell::RefCell;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::error::{CanonicalError, CanonicalErrorKind, MAX_DEPTH};

/// The format's number, the second element of every hashed array.
pub(crate) const FORMAT: u64 = 1;

/// From this size the buffer is hashed and emptied when free.
const FLUSH_BYTES: usize = 4 * 1024;

/// Limits of kept buffers: a larger buffer, grown by one large struct, is dropped after its call.
const KEEP_BYTES: usize = 64 * 1024;
const KEEP_ENTRIES: usize = 1024;

/// The name of a newtype struct that holds a client's key. It does not change the encoding.
pub(crate) const CLIENT_KEY: &str = "idem_runtime::http::IdempotencyKey";

/// The number of encoders that a thread keeps: one for a key and one for a fingerprint, and two more for a `Serialize`
/// implementation that takes a fingerprint of its own.
const KEEP_ENCODERS: usize = 4;

pub(super) const NULL: u8 = 0xf6;
const ARRAY_OF_ONE: u8 = 0x81;

/// The major types of CBOR, in an item's upper three bits.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Major {
    Unsigned = 0 << 5,
    Negative = 1 << 5,
    Bytes = 2 << 5,
    Text = 3 << 5,
    Array = 4 << 5,
    Map = 5 << 5,
}

/// Writes canonical CBOR into a buffer, and from there into SHA-256.
///
/// Inside a map all bytes stay in the buffer, because the map may have to be sorted; outside it they are hashed in
/// chunks, so that a large sequence or string is never buffered as a whole.
#[derive(Default)]
pub(crate) struct Encoder {
    pub(super) bytes: Vec<u8>,
    /// The finished entries of all open maps, the innermost last.
    pub(super) entries: Vec<MapEntry>,
    /// Present once the buffer had to be emptied: most values are hashed in one step.
    hash: Option<Sha256>,
    hashed_bytes: usize,
    /// The number of open items with bytes in the buffer.
    holds: u32,
    depth: u32,
    filled: bool,
    client_key: bool,
    /// The first failure. It persists when a `Serialize` implementation ignores the error, because otherwise half a
    /// value would be hashed.
    failed: Option<CanonicalError>,
    /// The positions from which the limit counts and where it ends.
    limit_start: usize,
    limit_end: usize,
}

/// The position of a map's entry in the buffer.
#[derive(Clone, Copy)]
pub(super) struct MapEntry {
    /// The first eight bytes of the encoded key, big endian: decides most comparisons.
    prefix: u64,
    start: usize,
    key_end: usize,
    end: usize,
}

/// Boxed, because encoders are lent to builders that move: moving a pointer is cheaper.
type Spare = Vec<Box<Encoder>>;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Vec::new()) };
}

impl Encoder {
    /// An empty encoder, with this thread's earlier buffers if any.
    pub(crate) fn take() -> Box<Self> {
        let mut encoder = SPARE
            .try_with(|spare| spare.borrow_mut().pop())
            .ok()
            .flatten()
            .unwrap_or_default();
        encoder.limit(usize::MAX);
        encoder
    }

    /// The digest of all that was written. Meaningless once a value has failed.
    pub(crate) fn finish(mut self: Box<Self>) -> [u8; 32] {
        let digest = match self.hash.take() {
            Some(hash) => hash.chain_update(&self.bytes).finalize(),
            None => Sha256::digest(&self.bytes),
        };
        self.give_back();
        digest.into()
    }

    /// Keeps the buffers for the next value on this thread.
    fn give_back(mut self: Box<Self>) {
        if self.bytes.capacity() > KEEP_BYTES || self.entries.capacity() > KEEP_ENTRIES {
            return;
        }
        self.bytes.clear();
        self.entries.clear();
        self.hash = None;
        self.hashed_bytes = 0;
        self.holds = 0;
        self.depth = 0;
        self.filled = false;
        self.client_key = false;
        self.failed = None;
        // A thread that is about to end cannot keep it; the encoder is then dropped.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEEP_ENCODERS {
                spare.push(self);
            }
        });
    }

    #[inline]
    pub(crate) fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        let result = value.serialize(&mut *self);
        self.note(result)
    }

    /// Records the first failure, and returns it from then on.
    #[inline]
    pub(crate) fn note(
        &mut self,
        result: Result<(), CanonicalError>,
    ) -> Result<(), CanonicalError> {
        match (self.failed, result) {
            (Some(first), _) => Err(first),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, kind: CanonicalErrorKind) -> CanonicalError {
        *self.failed.get_or_insert(CanonicalError::new(kind))
    }

    /// Keeps all further bytes in the buffer, until [`release`](Self::release).
    #[inline]
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
    }

    #[inline]
    pub(crate) fn release(&mut self) {
        self.holds -= 1;
    }

    /// The bytes written since [`hold`](Self::hold) was called on an empty encoder.
    pub(crate) fn held_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Limits further output to `max_bytes` bytes and resets [`filled`](Self::filled) and
    /// [`holds_client_key`](Self::holds_client_key). `usize::MAX` is no limit.
    pub(crate) fn limit(&mut self, max_bytes: usize) {
        self.limit_start = self.position();
        self.limit_end = self.limit_start.saturating_add(max_bytes);
        self.filled = false;
        self.client_key = false;
    }

    /// Whether a number, flag, variant or non-empty text was written.
    pub(crate) fn filled(&self) -> bool {
        self.filled
    }

    #[inline]
    pub(super) fn fill(&mut self, filled: bool) {
        self.filled |= filled;
    }

    /// Whether a client's key was written: one of a type that serializes as [`CLIENT_KEY`].
    pub(crate) fn holds_client_key(&self) -> bool {
        self.client_key
    }

    #[inline]
    pub(super) fn note_newtype(&mut self, name: &'static str) {
        self.client_key |= name == CLIENT_KEY;
    }

    pub(super) fn position(&self) -> usize {
        self.hashed_bytes + self.bytes.len()
    }

    /// Fails if `more` bytes would go beyond the limit.
    #[inline]
    pub(crate) fn room(&mut self, more: usize) -> Result<(), CanonicalError> {
        let end = self.position().saturating_add(more);
        if end > self.limit_end {
            let bytes = end - self.limit_start;
            return Err(self.fail(CanonicalErrorKind::TooLong { bytes }));
        }
        Ok(())
    }

    /// Begins an item that contains others.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), CanonicalError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.depth == MAX_DEPTH {
            return Err(self.fail(CanonicalErrorKind::TooDeep));
        }
        self.depth += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Empties a large buffer into the hash, unless an item needs it.
    #[inline]
    pub(crate) fn flow(&mut self) {
        if self.holds == 0 && self.bytes.len() >= FLUSH_BYTES {
            self.flush_finished();
        }
    }

    /// Hashes the buffer but for one-element arrays at its end.
    ///
    /// [`is_wrapped_null_since`](Self::is_wrapped_null_since) reads these with the null that may follow.
    #[cold]
    fn flush_finished(&mut self) {
        let wraps = |byte: &&u8| **byte == ARRAY_OF_ONE;
        let end = self.bytes.len() - self.bytes.iter().rev().take_while(wraps).count();
        self.hash.get_or_insert_default().update(&self.bytes[..end]);
        self.hashed_bytes += end;
        self.bytes.drain(..end);
    }

    /// Sends the buffer and then a large string to the hash.
    #[cold]
    fn flush_string(&mut self, content: &[u8]) {
        let hash = self.hash.get_or_insert_default();
        hash.update(&self.bytes);
        hash.update(content);
        self.hashed_bytes += self.bytes.len() + content.len();
        self.bytes.clear();
    }

    /// Whether a null, in any one-element arrays, was written since `position`. `Some` of it needs an array of its own,
    /// because otherwise it would read as its content.
    #[inline]
    pub(super) fn is_wrapped_null_since(&self, position: usize) -> bool {
        // A value whose first bytes were hashed has another content.
        let Some(start) = position.checked_sub(self.hashed_bytes) else {
            return false;
        };
        match &self.bytes[start..] {
            [wraps @ .., NULL] => wraps.iter().all(|byte| *byte == ARRAY_OF_ONE),
            _ => false,
        }
    }

    /// Writes the first bytes of an item: its type, and a number in the shortest form.
    #[inline]
    pub(crate) fn head(&mut self, major: Major, number: u64) {
        match u8::try_from(number) {
            Ok(small @ 0..=23) => self.bytes.push(major as u8 + small),
            Ok(byte) => self.bytes.extend_from_slice(&[major as u8 + 24, byte]),
            Err(_) => self.long_head(major as u8, number),
        }
    }

    fn long_head(&mut self, major: u8, number: u64) {
        let bytes = number.to_be_bytes();
        // Each length is a constant here, so the bytes are copied without a call.
        match (number, bytes) {
            (0..=0xffff, [.., c, d]) => self.bytes.extend_from_slice(&[major + 25, c, d]),
            (0x1_0000..=0xffff_ffff, [.., a, b, c, d]) => {
                self.bytes.extend_from_slice(&[major + 26, a, b, c, d]);
            }
            (0x1_0000_0000.., _) => {
                self.bytes.push(major + 27);
                self.bytes.extend_from_slice(&bytes);
            }
        }
    }

    /// Writes a head over its reserved byte.
    #[inline]
    pub(super) fn head_at(&mut self, at: usize, major: Major, number: u64) {
        match u8::try_from(number) {
            Ok(small @ 0..=23) => self.bytes[at] = major as u8 + small,
            _ => self.long_head_at(at, major, number),
        }
    }

    fn long_head_at(&mut self, at: usize, major: Major, number: u64) {
        self.bytes.remove(at);
        let end = self.bytes.len();
        self.head(major, number);
        let length = self.bytes.len() - end;
        self.bytes[at..].rotate_right(length);
    }

    /// Writes a text or byte string.
    #[inline]
    pub(crate) fn string(&mut self, major: Major, content: &[u8]) -> Result<(), CanonicalError> {
        self.fill(!content.is_empty());
        self.room(content.len())?;
        self.head(major, content.len() as u64);
        if content.len() >= FLUSH_BYTES && self.holds == 0 {
            self.flush_string(content);
        } else {
            self.bytes.extend_from_slice(content);
        }
        Ok(())
    }

    /// Writes the name of a field, variant or argument: neither content nor subject to the limit,
    /// since a field may turn out to be left out.
    #[inline]
    pub(crate) fn name(&mut self, name: &str) {
        self.head(Major::Text, name.len() as u64);
        self.bytes.extend_from_slice(name.as_bytes());
    }

    /// Records the entry from `start` in the map that begins at `first`; false if the entry is out of order.
    #[inline]
    pub(super) fn entry(
        &mut self,
        first: usize,
        start: usize,
        key_end: usize,
        prefix: u64,
    ) -> bool {
        let entry = MapEntry {
            prefix,
            start,
            key_end,
            end: self.bytes.len(),
        };
        let in_order = match self.entries[first..].last() {
            Some(last) => self.is_before(last, &entry),
            None => true,
        };
        self.entries.push(entry);
        in_order
    }

    #[inline]
    fn is_before(&self, left: &MapEntry, right: &MapEntry) -> bool {
        compare(&self.bytes, left, right).is_lt()
    }

    /// The value of an entry, if it is a text.
    pub(super) fn text_of(&self, entry: &MapEntry) -> Option<&str> {
        let value = &self.bytes[entry.key_end..entry.end];
        let first = *value.first()?;
        let head = match first.checked_sub(Major::Text as u8)? {
            0..24 => 1,
            24 => 2,
            25 => 3,
            26 => 5,
            _ => return None,
        };
        str::from_utf8(value.get(head..)?).ok()
    }

    /// Rewrites the entries from `first` on in canonical order.
    pub(super) fn arrange(&mut self, first: usize) -> Result<(), CanonicalError> {
        let bytes = &self.bytes;
        let entries = &mut self.entries[first..];
        // After a failure that a `Serialize` implementation ignored, the buffer need not hold entries.
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some(start) = entries.first().map(|entry| entry.start) else {
            return Ok(());
        };
        // The first bytes of the keys nearly always decide, and comparing them alone is fast.
        entries.sort_unstable_by_key(|entry| entry.prefix);
        if entries
            .windows(2)
            .any(|pair| pair[0].prefix == pair[1].prefix)
        {
            entries.sort_unstable_by(|left, right| compare(bytes, left, right));
            if entries
                .windows(2)
                .any(|pair| compare(bytes, &pair[0], &pair[1]).is_eq())
            {
                return Err(self.fail(CanonicalErrorKind::DuplicateKey));
            }
        }
        // Copied in order behind the originals, then over them.
        let end = self.bytes.len();
        self.bytes.reserve(end - start);
        for entry in entries {
            self.bytes.extend_from_within(entry.start..entry.end);
        }
        self.bytes.copy_within(end.., start);
        self.bytes.truncate(end);
        Ok(())
    }
}

#[inline]
fn compare(bytes: &[u8], left: &MapEntry, right: &MapEntry) -> std::cmp::Ordering {
    left.prefix
        .cmp(&right.prefix)
        .then_with(|| bytes[left.start..left.key_end].cmp(&bytes[right.start..right.key_end]))
}
