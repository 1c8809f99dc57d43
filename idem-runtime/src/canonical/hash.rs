//! SHA-256 of a buffer that may be overwritten.

use sha2::block_api::compress256;

/// The state that SHA-256 starts from (FIPS 180-4, 5.3.3).
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

/// The SHA-256 of `message`, which is padded to whole blocks where it lies.
///
/// `Sha256::digest` carries a state and a block buffer through three calls; over the two to five
/// blocks of a key or fingerprint this takes 5 to 10 % less time in all.
pub(super) fn sha256(message: &mut Vec<u8>) -> [u8; 32] {
    let bits = 8 * message.len() as u64;
    let blocks = (message.len() + 9).div_ceil(64);
    message.push(0x80);
    message.resize(64 * blocks - 8, 0);
    message.extend_from_slice(&bits.to_be_bytes());

    let mut state = START;
    compress256(&mut state, message.as_chunks().0);
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    #[test]
    fn agrees_with_the_streaming_hash_at_every_length() {
        for length in 0..=1_000 {
            let message: Vec<u8> = (1..=251).cycle().take(length).collect();
            let expected: [u8; 32] = Sha256::digest(&message).into();
            assert_eq!(super::sha256(&mut message.clone()), expected, "{length}");
        }
    }
}
