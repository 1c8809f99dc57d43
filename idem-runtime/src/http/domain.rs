//! The domain in which a caller's key is unique.

use ::http::Method;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::fingerprint::field;
use crate::identity::key::KeyDigest;

/// The domain of a key within its scope: see [`IdempotencyLayer::key_domain`](super::IdempotencyLayer::key_domain).
///
/// | domain | the key of an earlier request, with another query or body | with another path | with another method |
/// |---|---|---|---|
/// | [`Caller`](Self::Caller) | 422 `key-reused` | 422 `key-reused` | 422 `key-reused` |
/// | [`Path`](Self::Path) | 422 `key-reused` | is another key | 422 `key-reused` |
/// | [`MethodAndPath`](Self::MethodAndPath) | 422 `key-reused` | is another key | is another key |
///
/// The path counts byte by byte as the client wrote it, without its query, as in the
/// [fingerprint](super::Fingerprinter): `/orders`, `/orders/`, `/Orders` and `/%6frders` are four paths, also where a
/// router takes them for one. A client that repeats a request sends the path that it has sent; a proxy that rewrites
/// paths must rewrite each alike. Under the feature `axum` it is the whole path, in nested routers too.
///
/// A client that sends a key to another path by mistake is refused under `Caller`, and is executed under the others.
/// Records of one domain are not found in another: change it under another name of the layer, or when no repeat of an
/// earlier request can come any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyDomain {
    /// All requests of a caller to the layer.
    #[default]
    Caller,
    /// Its requests to one path.
    Path,
    /// Its requests to one path by one method.
    MethodAndPath,
}

impl KeyDomain {
    /// The key of a call.
    ///
    /// A domain with parts is hashed, because a path may be longer than a key. Its name keeps it apart from the others.
    pub(super) fn key<'k>(self, method: &Method, path: &str, key: &'k str) -> DomainKey<'k> {
        let (name, method) = match self {
            Self::Caller => return DomainKey::Plain(key),
            Self::Path => ("path", ""),
            Self::MethodAndPath => ("method and path", method.as_str()),
        };
        let mut hash = Sha256::new();
        for part in [method, path, key] {
            field(&mut hash, part.as_bytes());
        }
        let digest = KeyDigest::from_bytes(hash.finalize().into());
        DomainKey::Within(name, digest.to_string())
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum DomainKey<'k> {
    Plain(&'k str),
    Within(&'static str, String),
}

display_text!(KeyDomain {
    Self::Caller => "caller";
    Self::Path => "caller and path";
    Self::MethodAndPath => "caller, method and path";
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::call::engine::Engine;
    use crate::identity::key::ToKey;
    use crate::store::memory::MemoryStore;

    const DOMAINS: [KeyDomain; 3] = [KeyDomain::Caller, KeyDomain::Path, KeyDomain::MethodAndPath];

    fn digest(key: &impl ToKey) -> String {
        let engine = Engine::new(MemoryStore::new());
        let call = engine.operation("shop.api").key(key);
        call.key_digest().unwrap().to_string()
    }

    /// Records outlive a release. The digests were computed by another program.
    #[test]
    fn the_digest_of_each_domain_is_frozen() {
        let frozen =
            DOMAINS.map(|domain| digest(&domain.key(&Method::POST, "/orders/7", "8e03978e")));
        let expected = [
            "VQQ4f4WPzVBcF_tUjtWsI9rj_rEnme-V_t3GmW7JCwI",
            "_Y7vW882eifMPPP4E2el-KSjyfTyQCrzqe4rerXdsfg",
            "s3Rk7DE3gqAIpLzRgtZTw90IKRI8RC5q6TXGuV3ucqU",
        ];
        assert_eq!(frozen, expected);
    }

    proptest! {
        /// Under `Caller` a key's digest is that of its text.
        ///
        /// No two keys of different domains, or of different parts of one, are one.
        #[test]
        fn keys_are_apart(
            requests in proptest::collection::vec(("(GET|PUT|PUTA)", "/[a/]{0,3}", "[a/]{1,3}"), 1..12),
        ) {
            let mut seen = BTreeMap::new();
            for (method, path, key) in &requests {
                let method: Method = method.parse().unwrap();
                for domain in DOMAINS {
                    let counted = match domain {
                        KeyDomain::Caller => ("", ""),
                        KeyDomain::Path => ("", path.as_str()),
                        KeyDomain::MethodAndPath => (method.as_str(), path.as_str()),
                    };
                    let name = (domain.to_string(), counted.0.to_owned(), counted.1, key);
                    let digest = digest(&domain.key(&method, path, key));
                    prop_assert_eq!(seen.entry(digest).or_insert(name.clone()), &name);
                }
                prop_assert_eq!(digest(key), digest(&KeyDomain::Caller.key(&method, path, key)));
            }
        }
    }
}
