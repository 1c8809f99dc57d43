//! Owners of claims.

use std::fmt;

/// Owner of a claim: 128 random bits, new for every attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// The second half of an operator's owner. Of 2⁶⁴ attempts one has it by chance.
    const BY_HAND: [u8; 8] = *b"\0by hand";

    /// A new owner.
    ///
    /// # Panics
    ///
    /// If the operating system gives no randomness, since an owner that another attempt may also have would protect
    /// nothing.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    /// A new owner for a record that an operator writes: 64 random bits, and a mark.
    pub(crate) fn by_hand() -> Self {
        let Self(mut bytes) = Self::random();
        bytes[8..].copy_from_slice(&Self::BY_HAND);
        Self(bytes)
    }

    /// Whether an operator wrote the record, by a resolution or a reset.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.0[8..] == Self::BY_HAND
    }

    /// An owner with known bytes, as a store reads it back.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes that the store compares.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish owners in a log, and do not suffice to impersonate one.
        f.write_str("Owner(")?;
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…)")
    }
}
