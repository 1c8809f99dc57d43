//! Keys: their form, and the place of a request in which a specification has them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

/// The place and the form of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// The header `Idempotency-Key`: a String of RFC 8941 with a UUID of version 4.
    Quoted,
    /// The header with a UUID of version 4, without quotation marks.
    Bare,
    /// The header with a UUID of version 7.
    Version7,
    /// The identifier of an x402 payment.
    Payment,
}

/// The content of a request at the place of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyCase {
    /// A key as the specification has it.
    Valid,
    /// None.
    Missing,
    /// An empty text, in quotation marks where the specification has them.
    Empty,
    /// A valid key of so many characters.
    Long(usize),
    /// A key without quotation marks.
    Bare,
    /// Two keys in one list.
    List,
    /// Two headers.
    Twice,
    /// Commas, without quotation marks.
    Commas,
    /// A byte beyond ASCII.
    NotAscii,
    /// A String with a parameter.
    Parameter,
    /// An escaped quotation mark within a String.
    Escaped,
    /// A UUID of version 4.
    Version4,
    /// Text that is no UUID.
    NoUuid,
    /// A UUID of version 7 in capitals.
    Capitals,
    /// A full stop.
    FullStop,
}

/// Random bits: of the keys of a process's hash maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn uuid(version: u128, milliseconds: Option<u64>) -> String {
    let mut bits = u128::from(random()) << 64 | u128::from(random());
    if let Some(milliseconds) = milliseconds {
        bits = bits << 48 >> 48 | u128::from(milliseconds) << 80;
    }
    bits = bits & !(0xf << 76) | version << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    groups.join("-")
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl KeyPlace {
    /// A key that no request had.
    pub(super) fn fresh(self) -> String {
        match self {
            Self::Quoted | Self::Bare => uuid(4, None),
            Self::Version7 => uuid(7, Some(now())),
            Self::Payment => format!("pay_{:016x}{:016x}", random(), random()),
        }
    }

    /// The key of a case; the form that it has in a header is that of [`lines`](Self::lines).
    pub(super) fn key(self, case: KeyCase) -> String {
        let fresh = self.fresh();
        match case {
            KeyCase::Empty => String::new(),
            KeyCase::Long(chars) => {
                let mut key = fresh.replace('-', "").repeat(chars.div_ceil(32));
                key.truncate(chars);
                key
            }
            KeyCase::Version4 => uuid(4, None),
            KeyCase::NoUuid => format!("{:x}-no-uuid", random()),
            KeyCase::Capitals => fresh.to_uppercase(),
            KeyCase::Commas => format!("key,with,commas,{fresh}"),
            KeyCase::NotAscii => format!("{fresh}é"),
            KeyCase::Escaped => format!("{fresh}\\\""),
            KeyCase::FullStop => format!("{fresh}."),
            KeyCase::Valid
            | KeyCase::Missing
            | KeyCase::Bare
            | KeyCase::List
            | KeyCase::Twice
            | KeyCase::Parameter => fresh,
        }
    }

    /// The lines of the header with this key.
    pub(super) fn lines(self, key: &str, case: KeyCase) -> Vec<HeaderValue> {
        let is_bare = self != Self::Quoted || matches!(case, KeyCase::Bare | KeyCase::Commas);
        let text = |key: &str| {
            if is_bare {
                key.to_owned()
            } else {
                format!("\"{key}\"")
            }
        };
        let lines = match case {
            KeyCase::Missing => vec![],
            KeyCase::List => vec![format!("{}, {}", text(key), text(&self.fresh()))],
            KeyCase::Twice => vec![text(key), text(&self.fresh())],
            KeyCase::Parameter => vec![format!("{};attempt=1", text(key))],
            _ => vec![text(key)],
        };
        let line = |line: String| HeaderValue::from_bytes(line.as_bytes());
        lines
            .into_iter()
            .map(|it| line(it).expect("no control character"))
            .collect()
    }
}

impl KeyCase {
    /// The request in a sentence: "a request with …".
    pub(super) fn phrase(self) -> String {
        let phrase = match self {
            Self::Valid => "a valid key",
            Self::Missing => "no key",
            Self::Empty => "an empty key",
            Self::Long(chars) => return format!("a key of {chars} characters"),
            Self::Bare => "a key without quotation marks",
            Self::List => "a list of two keys",
            Self::Twice => "two headers with keys",
            Self::Commas => "commas in a key without quotation marks",
            Self::NotAscii => "a key with a byte beyond ASCII",
            Self::Parameter => "a key with a parameter",
            Self::Escaped => "an escaped quotation mark in its key",
            Self::Version4 => "a UUID of version 4 as its key",
            Self::NoUuid => "a key that is no UUID",
            Self::Capitals => "a key in capitals",
            Self::FullStop => "a full stop in its key",
        };
        phrase.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_form_of_their_specification() {
        let version7 = KeyPlace::Version7.fresh();
        let (version, variant) = (&version7[14..15], &version7[19..20]);
        assert_eq!(version7.len(), 36);
        assert_eq!(version, "7", "{version7}");
        assert!("89ab".contains(variant), "{version7}");
        assert_eq!(&KeyPlace::Bare.fresh()[14..15], "4");
        assert_eq!(KeyPlace::Payment.fresh().len(), 36);
        for chars in [16, 128, 255, 256] {
            assert_eq!(KeyPlace::Payment.key(KeyCase::Long(chars)).len(), chars);
        }
    }
}
