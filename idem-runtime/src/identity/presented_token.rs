//! A token as a call presents it: content and text.

use crate::identity::key::{KeyBuilder, KeyDigest, KeyError, ToKey, decode, encode};

/// The only layout so far.
const VERSION: u8 = 1;
pub(super) const NONCE: usize = 16;
const MAC: usize = 32;
const HEAD: usize = 1 + SECRET_ID + 8 + NONCE;
const BYTES: usize = HEAD + MAC;
/// Divisible by three, so that a token has one text.
const CHARACTERS: usize = BYTES / 3 * 4;

const SECRET_ID: usize = 3;

/// The id of the secret that signed a token: selects a secret, and proves nothing.
pub(super) type SecretId = [u8; SECRET_ID];

/// The unencrypted part of a token.
///
/// ```text
///  0     version, 1
///  1–3   id of the secret
///  4–11  when it expires: seconds since 1970, big-endian
/// 12–27  random
/// ```
#[derive(Clone, Copy)]
pub(super) struct TokenHeader {
    pub(super) secret: SecretId,
    pub(super) expires: u64,
    pub(super) nonce: [u8; NONCE],
}

impl TokenHeader {
    pub(super) fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = VERSION;
        bytes[1..4].copy_from_slice(&self.secret);
        bytes[4..12].copy_from_slice(&self.expires.to_be_bytes());
        bytes[12..].copy_from_slice(&self.nonce);
        bytes
    }

    fn decode(bytes: [u8; HEAD]) -> Option<Self> {
        let [VERSION, rest @ ..] = bytes else {
            return None;
        };
        let (secret, rest) = rest.split_first_chunk()?;
        let (expires, nonce) = rest.split_first_chunk()?;
        Some(Self {
            secret: *secret,
            expires: u64::from_be_bytes(*expires),
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// An unverified token, with the digest of its record's key.
pub(crate) struct PresentedToken {
    pub(super) header: TokenHeader,
    pub(super) mac: [u8; MAC],
    digest: KeyDigest,
}

impl PresentedToken {
    /// Parses the token of this text, for a call of this subject; `None` if the text is not that of a token.
    pub(crate) fn read<S: ToKey + ?Sized>(
        text: &str,
        builder: KeyBuilder,
        subject: &S,
    ) -> Option<Result<Self, KeyError>> {
        let bytes = decoded(text)?;
        let (header, mac) = bytes.split_first_chunk()?;
        let (header, mac) = (TokenHeader::decode(*header)?, mac.try_into().ok()?);
        let digest = builder.token(subject, &header.nonce);
        Some(digest.map(|digest| Self {
            header,
            mac,
            digest,
        }))
    }

    /// The digest of operation, subject and random bytes: the signature covers the name of one record.
    pub(crate) fn digest(&self) -> KeyDigest {
        self.digest
    }
}

debug_fields!(PresentedToken {});

pub(super) fn text(header: &TokenHeader, mac: &[u8; MAC]) -> String {
    let mut bytes = [0; BYTES];
    bytes[..HEAD].copy_from_slice(&header.encode());
    bytes[HEAD..].copy_from_slice(mac);
    let mut text = vec![0; CHARACTERS];
    encode(&bytes, &mut text);
    String::from_utf8(text).expect("base64url is ASCII")
}

fn decoded(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.len() != CHARACTERS {
        return None;
    }
    decode(text.as_bytes(), &mut bytes).map(|()| bytes)
}
