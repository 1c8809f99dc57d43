use std::fmt::Write as _;

use super::*;

const PLAIN: Identity = Identity {
    digest: KeyDigest::from_bytes([0xd1; 32]),
    fingerprint: Fingerprint::from_bytes([0xf1; 16]),
};

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a text takes it");
    }
    text
}

/// Written by another implementation of HMAC-SHA-256: a record of an older release must be found for ever.
#[test]
fn names_and_fingerprints_are_frozen() {
    let (keyed, more) = DigestKeys::new([0x42; 32]).identify(PLAIN);
    assert_eq!(
        hex(keyed.digest.as_bytes()),
        "b0f9771dc724bf484bd77319f6ae9f5fa01478300d7dafb4ce4dea2db2d530a3"
    );
    assert_eq!(
        hex(keyed.fingerprint.as_bytes()),
        "d1f4e76fc6fb2890938e55059a2a8c83"
    );
    let more = more.unwrap();
    assert_eq!(more.plain, PLAIN.digest);
    assert_eq!(more.other, None);

    let (plain, more) = DigestKeys::default().identify(PLAIN);
    assert_eq!(plain, PLAIN);
    assert!(more.is_none());
}

#[test]
fn a_request_looks_different_under_every_key_and_secret() {
    let (keyed, _) = DigestKeys::new([1; 32]).identify(PLAIN);
    let (other_secret, _) = DigestKeys::new([2; 32]).identify(PLAIN);
    assert_ne!(keyed.digest, other_secret.digest);
    assert_ne!(keyed.fingerprint, other_secret.fingerprint);
    let (other_key, _) = DigestKeys::new([1; 32]).identify(Identity {
        digest: KeyDigest::from_bytes([0xd2; 32]),
        ..PLAIN
    });
    assert_ne!(keyed.fingerprint, other_key.fingerprint);
}

#[test]
fn a_call_that_compares_nothing_goes_on_comparing_nothing() {
    let nothing = Identity {
        fingerprint: Fingerprint::NONE,
        ..PLAIN
    };
    let (keyed, _) = DigestKeys::new([1; 32]).identify(nothing);
    assert!(keyed.fingerprint.is_none());
}

#[test]
fn neighbouring_steps_of_a_rotation_know_each_other_s_names() {
    let (old, new) = ([1; 32], [2; 32]);
    let steps = [
        DigestKeys::plain(),
        DigestKeys::plain().also(old),
        DigestKeys::new(old).also_plain(),
        DigestKeys::new(old),
        DigestKeys::new(old).also(new),
        DigestKeys::new(new).also(old),
        DigestKeys::new(new),
    ];
    let names = |keys: &DigestKeys| {
        let (claims, keyed) = keys.identify(PLAIN);
        (claims, keyed.and_then(|keyed| keyed.other))
    };
    for pair in steps.windows(2) {
        assert_eq!(pair[0].check(), Ok(()));
        let (one, other) = (names(&pair[0]), names(&pair[1]));
        assert!(
            one.0 == other.0 || one.1 == Some(other.0) && other.1 == Some(one.0),
            "{pair:?}"
        );
    }
}

#[test]
fn a_rotation_has_two_different_secrets() {
    let refused = |keys: DigestKeys| keys.check().unwrap_err();
    assert!(refused(DigestKeys::new([1; 32]).also([1; 32])).contains("the same"));
    assert!(refused(DigestKeys::plain().also_plain()).contains("the same"));
    assert!(refused(DigestKeys::new([1; 32]).also([2; 32]).also([3; 32])).contains("one other"));
}

#[test]
fn no_secret_is_in_debug() {
    let text = format!("{:?}", DigestKeys::new([0x42; 32]).also([7; 32]));
    assert_eq!(text, "DigestKeys { claims: keyed, also: Some(keyed), .. }");
}
