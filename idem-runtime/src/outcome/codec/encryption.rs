//! Encrypted answers.

use std::sync::Arc;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use super::bound::Bound;
use super::failure::{Undecodable, Unencodable};
use crate::record::{HEADER, OutcomeKind};

const ID: usize = 4;
const NONCE: usize = 24;
const TAG: usize = 16;

/// The keys of encrypted answers: the first encrypts, all decrypt. See
/// [`EngineBuilder::encrypt`](crate::EngineBuilder::encrypt).
///
/// A key is 32 random bytes from your secret store, the same in every process. Its id is a number that you choose: it
/// appears in clear text in each record and in errors.
///
/// To change the key without a moment at which an answer cannot be read, deploy everywhere
///
/// 1. `EncryptionKeys::new(1, old).also(2, new)`: every process can read the new key before any process writes it;
/// 2. `EncryptionKeys::new(2, new).also(1, old)`: every process writes it;
/// 3. `EncryptionKeys::new(2, new)`, once the longest `ttl` has passed since then.
///
/// Never give two keys the same id, and never reuse the id of a removed key.
///
/// The keys are wiped from memory with the last clone; wiping the arrays that they were made of is up to you.
///
/// ```
/// use idem_runtime::{Engine, codec::EncryptionKeys, store::memory::MemoryStore};
///
/// let key = [7; 32]; // from your secret store
/// let engine = Engine::builder(MemoryStore::new())
///     .encrypt(EncryptionKeys::new(1, key))
///     .build()?;
/// # Ok::<_, idem_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct EncryptionKeys {
    first: (u32, XChaCha20Poly1305),
    others: Vec<(u32, XChaCha20Poly1305)>,
    /// The prefix of the engine that has these keys.
    prefix: String,
}

impl EncryptionKeys {
    /// The key that encrypts, under this id.
    #[must_use]
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        Self {
            first: (id, XChaCha20Poly1305::new(&key.into())),
            others: Vec::new(),
            prefix: String::new(),
        }
    }

    /// Adds a key that only decrypts. `build` refuses a duplicate id.
    #[must_use]
    pub fn also(mut self, id: u32, key: [u8; 32]) -> Self {
        self.others.push((id, XChaCha20Poly1305::new(&key.into())));
        self
    }

    /// The same keys for the answers of an engine with this prefix.
    pub(super) fn under(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        self.all().map(|(id, _)| *id)
    }

    fn all(&self) -> impl Iterator<Item = &(u32, XChaCha20Poly1305)> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// An id that two keys share.
    fn ambiguous(&self) -> Option<u32> {
        self.ids()
            .enumerate()
            .find_map(|(n, id)| self.ids().take(n).any(|other| other == id).then_some(id))
    }

    /// The record of this content: space for a header, the tag, key id, nonce, and the ciphertext.
    fn seal(&self, bound: &Bound<'_>, content: &[u8]) -> Result<Vec<u8>, Unencodable> {
        let mut nonce = [0; NONCE];
        // 192 random bits do not repeat, so that no counter has to be kept.
        getrandom::fill(&mut nonce).map_err(|_| Unencodable::NotEncrypted)?;
        self.seal_with(nonce, bound, content)
    }

    pub(super) fn seal_with(
        &self,
        nonce: [u8; NONCE],
        bound: &Bound<'_>,
        content: &[u8],
    ) -> Result<Vec<u8>, Unencodable> {
        let (id, cipher) = &self.first;
        let mut record = Vec::with_capacity(HEADER + 1 + ID + NONCE + content.len() + TAG);
        record.resize(HEADER, 0);
        record.push(bound.tag);
        record.extend(id.to_be_bytes());
        record.extend(nonce);
        let start = record.len();
        record.extend_from_slice(content);
        let text = (&mut record[start..]).into();
        let tag = cipher
            .encrypt_inout_detached(&XNonce::from(nonce), &self.bound_data(bound, *id), text)
            .map_err(|_| Unencodable::NotEncrypted)?;
        record.extend_from_slice(&tag);
        Ok(record)
    }

    /// The decrypted content that `seal` wrote after the key id.
    fn open(&self, id: u32, bound: &Bound<'_>, sealed: &[u8]) -> Result<Vec<u8>, Undecodable> {
        let (nonce, rest) = sealed.split_first_chunk().ok_or(Undecodable::Short)?;
        let (text, tag) = rest.split_last_chunk().ok_or(Undecodable::Short)?;
        let missing = Undecodable::KeyMissing { id };
        let (_, cipher) = self.all().find(|key| key.0 == id).ok_or(missing)?;
        let (nonce, tag): (&[u8; NONCE], &[u8; TAG]) = (nonce, tag);
        let mut content = text.to_vec();
        cipher
            .decrypt_inout_detached(
                &XNonce::from(*nonce),
                &self.bound_data(bound, id),
                content.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| Undecodable::Forged { id })?;
        Ok(content)
    }

    /// The associated data of an encrypted answer. All parts but the last have fixed lengths.
    ///
    /// The counter, the fence and the types of the header are not part of it: a store keeps those of the record that
    /// the answer replaces, see `transition::settled`.
    fn bound_data(&self, bound: &Bound<'_>, id: u32) -> Vec<u8> {
        let mut data = Vec::with_capacity(32 + 16 + 1 + 4 + 1 + ID + self.prefix.len());
        data.extend_from_slice(bound.digest.as_bytes());
        data.extend_from_slice(bound.fingerprint.as_bytes());
        data.push(match bound.outcome {
            OutcomeKind::Error => b'E',
            _ => b'D',
        });
        data.extend(bound.schema.to_be_bytes());
        data.push(bound.tag);
        data.extend(id.to_be_bytes());
        data.extend_from_slice(self.prefix.as_bytes());
        data
    }
}

debug_fields!(EncryptionKeys {
    ids: |it| it.ids().collect::<Vec<_>>()
});

/// The encryption setting of an engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encryption {
    pub(crate) keys: Option<Arc<EncryptionKeys>>,
    /// Whether unencrypted answers are read, for the time encryption is introduced. Without keys every answer is
    /// plaintext.
    pub(crate) accepts_plaintext: bool,
}

impl Encryption {
    /// The same, with a separate copy of the keys.
    pub(super) fn apart(&self) -> Self {
        let keys = self.keys.as_deref();
        Self {
            keys: keys.cloned().map(Arc::new),
            accepts_plaintext: self.accepts_plaintext,
        }
    }

    /// The same, for the answers of an engine with this prefix.
    pub(crate) fn under(&self, prefix: &str) -> Self {
        let keys = self.keys.as_deref();
        Self {
            keys: keys.map(|keys| Arc::new(keys.clone().under(prefix))),
            accepts_plaintext: self.accepts_plaintext,
        }
    }

    /// Checks these settings for mistakes.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.keys {
            Some(keys) => keys.ambiguous().map_or(Ok(()), |id| {
                Err(format!("`encrypt`: two keys have the id {id}"))
            }),
            None if self.accepts_plaintext => {
                Err("`accept_plaintext` needs the keys of `encrypt`".to_owned())
            }
            None => Ok(()),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.keys.is_some()
    }

    pub(super) fn seal(&self, bound: &Bound<'_>, content: &[u8]) -> Result<Vec<u8>, Unencodable> {
        let keys = self.keys.as_ref().ok_or(Unencodable::NotEncrypted)?;
        keys.seal(bound, content)
    }

    pub(super) fn open(&self, bound: &Bound<'_>, sealed: &[u8]) -> Result<Vec<u8>, Undecodable> {
        let (id, sealed) = sealed.split_first_chunk().ok_or(Undecodable::Short)?;
        let id = u32::from_be_bytes(*id);
        let missing = Undecodable::KeyMissing { id };
        let keys = self.keys.as_ref().ok_or(missing)?;
        keys.open(id, bound, sealed)
    }

    pub(super) fn accept_plain(&self) -> Result<(), Undecodable> {
        if self.is_on() && !self.accepts_plaintext {
            return Err(Undecodable::Plain);
        }
        Ok(())
    }
}
