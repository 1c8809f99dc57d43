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
    assert_eq!(more.former, None);

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
fn a_former_secret_gives_the_name_that_it_gave() {
    let names = |keys: &DigestKeys| {
        let (claims, keyed) = keys.identify(PLAIN);
        (claims, keyed.and_then(|keyed| keyed.former))
    };
    let (old, new) = ([1; 32], [2; 32]);
    for (before, after) in [
        (DigestKeys::plain(), DigestKeys::new(old).formerly_plain()),
        (DigestKeys::new(old), DigestKeys::new(new).formerly(old)),
        (DigestKeys::new(old), DigestKeys::plain().formerly(old)),
    ] {
        assert_eq!(after.check(), Ok(()));
        assert_eq!(names(&after).1, Some(names(&before).0));
        assert_ne!(names(&after).0, names(&before).0);
    }
}

#[test]
fn a_change_has_two_different_secrets() {
    let refused = |keys: DigestKeys| keys.check().unwrap_err();
    assert!(refused(DigestKeys::new([1; 32]).formerly([1; 32])).contains("the same"));
    assert!(refused(DigestKeys::plain().formerly_plain()).contains("the same"));
    let three = DigestKeys::new([1; 32]).formerly([2; 32]).formerly([3; 32]);
    assert!(refused(three).contains("one former"));
}

#[test]
fn no_secret_is_in_debug() {
    let text = format!("{:?}", DigestKeys::new([0x42; 32]).formerly([7; 32]));
    assert_eq!(
        text,
        "DigestKeys { claims: keyed, former: Some(keyed), .. }"
    );
}
