use super::*;
use crate::identity::canonical::vectors::hex;

const PLAIN: KeyDigest = KeyDigest::from_bytes([0xd1; 32]);
const ASKED: Fingerprint = Fingerprint::from_bytes([0xf1; 16]);

/// By another HMAC-SHA-256: an older release's records must be found.
#[test]
fn names_and_fingerprints_are_frozen() {
    let keyed = DigestKey::new([0x42; 32]);
    assert_eq!(
        hex(keyed.name(&PLAIN).as_bytes()),
        "b0f9771dc724bf484bd77319f6ae9f5fa01478300d7dafb4ce4dea2db2d530a3"
    );
    assert_eq!(
        hex(keyed.fingerprint(&PLAIN, ASKED).as_bytes()),
        "d1f4e76fc6fb2890938e55059a2a8c83"
    );
    let plain = DigestKey::default();
    assert_eq!(plain.name(&PLAIN), PLAIN);
    assert_eq!(plain.fingerprint(&PLAIN, ASKED), ASKED);
}

/// Computed elsewhere: an older release's steps must be found.
#[test]
fn digests_of_steps_are_frozen() {
    let call = &PLAIN;
    let (name, input) = ([0xa1; 32], [0xb1; 64]);
    let of = |digests: &DigestKey| {
        [(StepPart::Name, &name[..]), (StepPart::Input, &input[..])]
            .map(|(kind, part)| hex(digests.step(kind, call, part).as_bytes()))
    };
    assert_eq!(
        of(&DigestKey::Plain),
        [
            "0cdd76b6aad4f7e2fa8113ad96fea7206a2a62fbc542c6ca5d29def37d8fd53e",
            "91637f0305cef77a68125aeb49d54281e966e8633d944e63e1b8d1209a4e201f"
        ]
    );
    assert_eq!(
        of(&DigestKey::new([0x42; 32])),
        [
            "06fcf06355374b96998c6182b4d70e2b933c6bb072dced68fa95764afeca390a",
            "8629e943144ed90865d4ac0681ad3bc9684cd0fba24f5d98ea81b6ee513f43c4"
        ]
    );
}

#[test]
fn a_call_that_compares_nothing_goes_on_comparing_nothing() {
    let keyed = DigestKey::new([1; 32]);
    assert!(keyed.fingerprint(&PLAIN, Fingerprint::NONE).is_none());
}

#[test]
fn no_secret_is_in_debug() {
    assert_eq!(format!("{:?}", DigestKey::new([0x42; 32])), "keyed");
}
