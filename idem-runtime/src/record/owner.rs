//! Owners of claims.

mod random;

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::identity::fingerprint::write_redacted;

/// Owner of a claim, new for every attempt: 128 random bits, or 80 and the [process](Owner::process).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// The second half of an operator's owner. Of 2⁶⁴ attempts one has it by chance.
    const BY_HAND: [u8; 8] = *b"\0by hand";

    /// A new owner.
    ///
    /// A thread that makes many of them draws the bytes for several at once, and keeps them for 200 µs. A copy of the
    /// process, by `fork` or from the snapshot of a machine, has the same owners only within that time.
    ///
    /// # Panics
    ///
    /// If the operating system gives no randomness, since an owner that another attempt may also have would protect
    /// nothing.
    #[must_use]
    pub fn random() -> Self {
        Self(random::bytes())
    }

    /// This owner, marked with its instance and its process; 80 random bits remain.
    #[must_use]
    pub(crate) fn of_process(self, process: Process) -> Self {
        let Self(mut bytes) = self;
        let [_, pid @ ..] = process.pid.to_be_bytes();
        bytes[11..13].copy_from_slice(&process.instance.to_be_bytes());
        bytes[13..].copy_from_slice(&pid);
        bytes[10] = mark(&bytes);
        Self(bytes)
    }

    /// The process of the attempt, if its engine [records](crate::EngineBuilder::record_attempts) attempts.
    ///
    /// One in 256 owners without a process seems to have one.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        let bytes = &self.0;
        let process = Process {
            instance: u16::from_be_bytes([bytes[11], bytes[12]]),
            pid: u32::from_be_bytes([0, bytes[13], bytes[14], bytes[15]]),
        };
        (bytes[10] == mark(bytes) && !self.is_by_hand()).then_some(process)
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

/// Distinguishes an owner with a process from one without.
fn mark(owner: &[u8; 16]) -> u8 {
    owner[11..]
        .iter()
        .fold(0x1d, |mark: u8, byte| mark.rotate_left(3) ^ byte)
}

/// The process of an attempt, as its owner shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// The first two bytes of the SHA-256 digest of the [instance](crate::EngineBuilder::instance)'s name.
    pub instance: u16,
    /// The process id, its last 24 bits.
    pub pid: u32,
}

impl Process {
    /// This process, of the instance with this name.
    #[must_use]
    pub fn this(instance: &str) -> Self {
        let digest = Sha256::digest(instance);
        Self {
            instance: u16::from_be_bytes([digest[0], digest[1]]),
            pid: std::process::id() & 0xff_ffff,
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish owners in a log, and do not suffice to impersonate one.
        write_redacted(f, "Owner", &self.0)
    }
}
