use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::issuer::Tokens;
use super::{TokenIssuer, token};
use crate::call::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::identity::call_id::Inputs;
use crate::identity::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyError, KeyPart};
use crate::identity::operation::Operation;
use crate::identity::presented_token::PresentedToken;
use crate::store::memory::MemoryStore;

const OPERATION: &str = "orders.submit";
const PREFIX: &str = "idem";
const NOW: Duration = Duration::from_millis(1_700_000_000_250);
const LIFE: Duration = Duration::from_mins(5);
const MINUTE: Duration = Duration::from_mins(1);

fn at(since: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + since
}

fn builder(operation: &str) -> KeyBuilder {
    KeyBuilder::new(operation, DEFAULT_MAX_KEY_BYTES)
}

fn issue(issuer: &TokenIssuer, nonce: [u8; 16], subject: &str) -> String {
    let digest = builder(OPERATION).token(subject, &nonce).unwrap();
    issuer.issue(nonce, &digest, PREFIX, at(NOW))
}

fn first() -> TokenIssuer {
    TokenIssuer::new([1; 32])
}

/// The required life of the record for a call of this subject.
fn life(
    issuer: &TokenIssuer,
    text: &str,
    (operation, prefix, subject): (&str, &str, &str),
    now: Duration,
) -> Result<Option<Duration>, Error> {
    let shown = PresentedToken::read(text, builder(operation), subject);
    let operation = Operation::new(operation.to_owned());
    let invalid = || operation.error(ErrorKind::TokenInvalid);
    let shown = shown.ok_or_else(invalid)?.unwrap();
    Tokens::new(issuer.clone()).life_of(&shown, prefix, &operation, at(now))
}

const MINE: (&str, &str, &str) = (OPERATION, PREFIX, "ann");

fn is_refused(answer: Result<Option<Duration>, Error>) -> bool {
    answer.is_err_and(|error| *error.kind() == ErrorKind::TokenInvalid)
}

/// Whether the first issuer refuses this text of such a call.
fn refuses(text: &str, call: (&str, &str, &str), now: Duration) -> bool {
    is_refused(life(&first(), text, call, now))
}

#[test]
fn a_token_is_known_to_its_subject_and_operation() {
    let text = issue(&first(), [9; 16], "ann");
    // 250 ms past a second, so the token expires at the next second: never before the end of its life.
    let left = Duration::from_millis(LIFE.as_secs() * 1_000 + 750);
    let most = left + MINUTE + Duration::from_secs(1);
    let life_of = life(&first(), &text, MINE, NOW).unwrap().unwrap();
    assert!(life_of >= left + MINUTE && life_of <= most, "{life_of:?}");
    for stranger in [
        (OPERATION, PREFIX, "bob"),
        ("orders.cancel", PREFIX, "ann"),
        (OPERATION, "other", "ann"),
    ] {
        assert!(refuses(&text, stranger, NOW), "{stranger:?}");
    }
    let other = TokenIssuer::new([2; 32]);
    assert!(is_refused(life(&other, &text, MINE, NOW)));
}

#[test]
fn the_layout_is_frozen() {
    let text = issue(&first(), [9; 16], "ann");
    assert_eq!(
        text,
        "AWIoOAAAAABlU_ItCQkJCQkJCQkJCQkJCQkJCbHx1Xx8OqPDW4HqakDBRDY1A8W0J-sCm7VyXx68k5Hd"
    );
    let digest = builder(OPERATION).token("ann", &[9; 16]).unwrap();
    assert_eq!(
        digest.to_string(),
        "OPBboxn9wXKLbyN-ARzXngvlZmj76G3ANrzSB1JUpSc"
    );
}

#[test]
fn a_text_that_is_changed_cut_or_longer_is_no_token() {
    let text = issue(&first(), [9; 16], "ann");
    assert_eq!(text.len(), 80);
    for (place, issued) in text.bytes().enumerate() {
        assert!(refuses(&text[..place], MINE, NOW));
        for byte in 0..=0x7f {
            let mut other = text.clone().into_bytes();
            other[place] = byte;
            let refused = refuses(&String::from_utf8(other).unwrap(), MINE, NOW);
            assert_eq!(refused, byte != issued, "{place} {byte}");
        }
    }
    for more in [" ", "=", "A", "AAAA", "\0"] {
        assert!(refuses(&format!("{text}{more}"), MINE, NOW));
        assert!(refuses(&format!("{more}{text}"), MINE, NOW));
    }
}

#[test]
fn it_expires_to_the_second_and_is_known_for_ever() {
    let text = issue(&first(), [9; 16], "ann");
    let end = Duration::from_secs(1_700_000_301);
    let last = end.saturating_sub(Duration::from_nanos(1));
    assert!(life(&first(), &text, MINE, last).unwrap().unwrap() >= MINUTE);
    for now in [end, end + Duration::from_hours(24 * 365)] {
        assert_eq!(life(&first(), &text, MINE, now).unwrap(), None);
        assert!(refuses(&text, (OPERATION, PREFIX, "bob"), now));
    }
}

#[test]
fn a_token_from_far_ahead_is_refused_and_says_why() {
    let day = Duration::from_hours(24);
    let issuer = first().life(day);
    let text = issue(&issuer, [9; 16], "ann");
    let before = NOW.saturating_sub(Duration::from_secs(59));
    assert!(life(&issuer, &text, MINE, before).is_ok());
    let error = life(&issuer, &text, MINE, NOW.saturating_sub(MINUTE * 2)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
    assert!(error.to_string().contains("clock"), "{error}");
}

#[test]
fn secrets_are_changed_step_by_step() {
    let [old, new] = [[1; 32], [2; 32]];
    let steps = [
        TokenIssuer::new(old),
        TokenIssuer::new(old).also_accept(new),
        TokenIssuer::new(new).also_accept(old),
        TokenIssuer::new(new),
    ];
    let knows = |n: usize, m: usize| {
        let text = issue(&steps[m], [9; 16], "ann");
        life(&steps[n], &text, MINE, NOW).is_ok()
    };
    for n in 0..steps.len() {
        for m in n.saturating_sub(1)..steps.len().min(n + 2) {
            assert!(
                knows(n, m),
                "both are deployed: step {n} knows what step {m} issues"
            );
        }
    }
    assert!(!knows(0, 3) && !knows(3, 0) && !knows(3, 1));
}

#[test]
fn an_issuer_is_checked_when_the_engine_is_built() {
    let build = |issuer| Engine::builder(MemoryStore::new()).tokens(issuer).build();
    let said = |issuer| build(issuer).unwrap_err().to_string();
    assert!(said(TokenIssuer::new([1; 31])).contains("31 bytes"));
    assert!(said(first().also_accept("too short")).contains("9 bytes"));
    for life in [
        Duration::ZERO,
        Duration::from_millis(999),
        Duration::from_secs(86_401),
    ] {
        assert!(said(first().life(life)).contains("`life`"));
    }
    build(first().life(Duration::from_hours(24))).unwrap();
    build(TokenIssuer::new([1; 100]).life(Duration::from_secs(1))).unwrap();
}

#[test]
fn nothing_shows_a_secret_or_a_token() {
    let issuer = TokenIssuer::new("a secret that has thirty-two bytes and more");
    let engine = Engine::builder(MemoryStore::new())
        .tokens(issuer.clone())
        .build()
        .unwrap();
    let text = engine.issue_token(OPERATION, "ann").unwrap();
    let key = token(&text, "subject-marker");
    let call = engine.operation(OPERATION).key(&key);
    let mut inputs = Inputs::new(Operation::new(OPERATION));
    inputs.key(&key);
    let shown = format!("{issuer:?} {engine:?} {key:?} {call:?} {inputs:?}");
    for marker in ["secret", "subject-marker", &text[8..16], "97, 32, 115"] {
        assert!(!shown.contains(marker), "{shown}");
    }
}

#[test]
fn a_subject_says_something() {
    let engine = Engine::builder(MemoryStore::new()).tokens(first());
    let engine = engine.build().unwrap();
    let none = engine.issue_token(OPERATION, &None::<u64>);
    for refused in [engine.issue_token(OPERATION, ""), none] {
        let error = refused.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidKey);
        assert!(error.to_string().contains("subject"), "{error}");
    }
    let digest = builder(OPERATION).token("", &[9; 16]);
    let part = KeyPart::Subject;
    assert_eq!(digest, Err(KeyError::Empty { part }));
}

proptest! {
    #[test]
    fn a_token_reads_as_it_was_written(
        nonce: [u8; 16],
        secret in proptest::collection::vec(any::<u8>(), 32..80),
        subject in ".{1,40}",
        operation in ".{0,40}",
        other in ".{1,40}",
    ) {
        let issuer = TokenIssuer::new(&secret);
        let digest = builder(&operation).token(&subject, &nonce).unwrap();
        let text = issuer.issue(nonce, &digest, PREFIX, at(NOW));
        let shown = PresentedToken::read(&text, builder(&operation), &subject).unwrap().unwrap();
        prop_assert_eq!(shown.digest(), digest);
        let mine = (&*operation, PREFIX, &*subject);
        prop_assert!(life(&issuer, &text, mine, NOW).unwrap().is_some());
        let others = (&*operation, PREFIX, &*other);
        prop_assert_eq!(is_refused(life(&issuer, &text, others, NOW)), other != subject);
    }

    #[test]
    fn any_text_is_refused(text in "\\PC{0,100}|[A-Za-z0-9_-]{80}") {
        prop_assert!(refuses(&text, MINE, NOW));
    }
}
