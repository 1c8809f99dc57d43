//! SHA-256 of a complete buffer.

use sha2::block_api::compress256;

/// The first 32 bits of the fractional parts of the square roots of the first eight primes (FIPS 180-4).
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The digest of `bytes`, which are padded in place.
///
/// A streaming hash would copy all of its input through a block of its own, and most calls compute two digests.
pub(super) fn digest(bytes: &mut Vec<u8>) -> [u8; 32] {
    let bits = bytes.len() as u64 * 8;
    bytes.push(0x80);
    let length = bytes.len() + size_of_val(&bits);
    bytes.resize(length.next_multiple_of(64) - size_of_val(&bits), 0);
    bytes.extend_from_slice(&bits.to_be_bytes());
    let mut state = START;
    let (blocks, _) = bytes.as_chunks();
    compress256(&mut state, blocks);
    let mut digest = [0; 32];
    let (words, _) = digest.as_chunks_mut();
    for (word, number) in words.iter_mut().zip(state) {
        *word = number.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Every position of the end in a block, including those where the length does not fit behind it.
    #[test]
    fn bytes_of_any_length_are_hashed_as_by_everybody() {
        for length in 0..=260 {
            let bytes: Vec<u8> = (0..=255).cycle().take(length).collect();
            let expected: [u8; 32] = Sha256::digest(&bytes).into();
            assert_eq!(digest(&mut bytes.clone()), expected, "{length} bytes");
        }
    }
}
