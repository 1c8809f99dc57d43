//! Hashing of digests in maps.
//!
//! A digest is as good as random, so that a cheap mix of its bytes is enough. A client that chooses keys can search for
//! digests that agree in some bits, though; two secret numbers prevent it from choosing which bits count.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes keys that contain a digest, and short names.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    secret: [u64; 2],
}

impl Default for Spread {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            secret: [random.hash_one(0), random.hash_one(1)],
        }
    }
}

impl BuildHasher for Spread {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer {
            secret: self.secret,
            hash: 0,
        }
    }
}

/// The hasher: multiplies halves of 16 bytes, and folds the product.
#[derive(Debug)]
pub(crate) struct Mixer {
    secret: [u64; 2],
    hash: u64,
}

impl Mixer {
    #[inline]
    fn mix(&mut self, left: u64, right: u64) {
        let [first, second] = self.secret;
        let product = u128::from(left ^ first) * u128::from(right ^ second ^ self.hash);
        let (low, high) = halves(product);
        self.hash = low ^ high;
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let (left, right) = halves(u128::from_le_bytes(*pair));
            self.mix(left, right);
        }
        if !rest.is_empty() {
            let mut padded = [0; 16];
            padded[..rest.len()].copy_from_slice(rest);
            let (left, right) = halves(u128::from_le_bytes(padded));
            self.mix(left, right);
        }
    }

    /// The length of a digest adds nothing.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn halves(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::identity::key::KeyDigest;

    /// Digests that differ in one bit each, unlike those of SHA-256.
    ///
    /// The lowest bits select the place, and the highest distinguish the digests of one place.
    #[test]
    fn neighbours_are_spread() {
        let spread = Spread::default();
        let hashes: Vec<u64> = (0..256)
            .map(|bit: usize| {
                let mut bytes = [0; 32];
                bytes[bit / 8] = 1 << (bit % 8);
                spread.hash_one(KeyDigest::from_bytes(bytes))
            })
            .collect();
        let places: HashSet<_> = hashes.iter().map(|hash| hash % 256).collect();
        let tags: HashSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        // 162 of 256 are expected of random numbers, and 111 of 128.
        assert!(places.len() > 120, "{} places", places.len());
        assert!(tags.len() > 90, "{} tags", tags.len());
    }

    #[test]
    fn two_maps_spread_differently() {
        let digest = KeyDigest::from_bytes([7; 32]);
        let hashes: HashSet<_> = (0..8).map(|_| Spread::default().hash_one(digest)).collect();
        assert_eq!(hashes.len(), 8);
    }
}
