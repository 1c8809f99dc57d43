use bytes::Bytes;

use super::*;
use crate::env::observer::StderrObserver;
use crate::identity::operation::Operation;
use crate::record::{Fence, Header, Owner};

const SECOND: Duration = Duration::from_secs(1);
const ASKED: Fingerprint = Fingerprint::from_bytes([7; 16]);

fn key(number: u32) -> RecordKey {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    let digest = KeyDigest::from_bytes(bytes);
    RecordKey::new("shop".into(), Operation::new("payments.pay"), digest)
}

fn record(outcome: OutcomeKind, body: &[u8]) -> Record {
    let state = State::Done { outcome, schema: 1 };
    let owner = Owner::from_bytes([1; 16]);
    let header = Header {
        fingerprint: ASKED,
        ..Header::new(state, owner, Fence::new(3), 3600 * SECOND)
    };
    Record::decode(Bytes::from([&header.encode()[..], body].concat())).unwrap()
}

fn life(left: Duration, sent: Duration) -> Life {
    let dated = true;
    Life { left, sent, dated }
}

fn cache(settings: &LocalCache) -> Arc<Answers> {
    Answers::new(settings, Arc::new(StderrObserver), Flights::new())
}

fn open() -> Arc<Answers> {
    let cache = cache(&LocalCache::new().max_entries(1));
    cache.hearing(Hearing::All);
    cache
}

fn put(cache: &Answers, key: &RecordKey, body: &[u8], sent: Duration) {
    let permit = cache.permit(key).expect("the cache is open");
    let record = record(OutcomeKind::Value, body);
    cache.keep(permit, key, &record, life(3600 * SECOND, sent));
}

fn body(cache: &Answers, key: &RecordKey, now: Duration) -> Option<Vec<u8>> {
    match cache.get(key, ASKED, true, now) {
        Found::Answer { record, .. } => Some(record.body().to_vec()),
        Found::Nothing(_) => None,
    }
}

/// An answer is found for `max_age`, and no longer than it lives; an undated one ends sooner and has no age.
#[test]
fn what_is_kept_is_found_as_long_as_it_lives_and_for_max_age() {
    let (for_ever, hour) = (crate::record::FOREVER, 3600 * SECOND);
    let aged = for_ever.saturating_sub(10 * SECOND);
    for (retain, left, dated, until, age) in [
        (hour, hour, true, 65 * SECOND, SECOND),
        (hour, 2 * SECOND, true, 7 * SECOND, 3599 * SECOND),
        (for_ever, aged, true, 65 * SECOND, 11 * SECOND),
        (hour, 3 * SECOND, false, 7 * SECOND, 3598 * SECOND),
    ] {
        let cache = open();
        let mut answer = record(OutcomeKind::Error, b"declined");
        answer.header.retain = retain;
        let permit = cache.permit(&key(1)).unwrap();
        let sent = 5 * SECOND;
        cache.keep(permit, &key(1), &answer, Life { left, sent, dated });
        let look = |dated, now| match cache.get(&key(1), ASKED, dated, now) {
            Found::Answer { record, left } => Some(record.header.age(left)),
            Found::Nothing(_) => None,
        };
        assert_eq!(look(dated, 6 * SECOND), Some(age), "{until:?}");
        assert_eq!(look(true, 6 * SECOND).is_some(), dated, "{until:?}");
        let last = until.saturating_sub(Duration::from_millis(1));
        assert!(look(dated, last).is_some(), "{until:?}");
        assert!(look(dated, until).is_none(), "{until:?}");
        assert_eq!(cache.stats().entries, 0, "an entry that is over is removed");
    }
}

#[test]
fn only_answers_are_kept() {
    let cache = open();
    for outcome in [OutcomeKind::Unknown, OutcomeKind::Tombstone] {
        let permit = cache.permit(&key(1)).unwrap();
        let record = record(outcome, b"");
        cache.keep(permit, &key(1), &record, life(SECOND, Duration::ZERO));
        assert_eq!(body(&cache, &key(1), Duration::ZERO), None, "{outcome:?}");
    }
}

#[test]
fn other_fingerprints_and_operations_find_nothing() {
    let cache = open();
    put(&cache, &key(1), b"a", SECOND);
    let look = |key: &RecordKey, asked| {
        let found = cache.get(key, asked, true, SECOND);
        matches!(found, Found::Answer { .. })
    };
    assert!(!look(&key(1), Fingerprint::from_bytes([8; 16])));
    assert!(look(&key(1), Fingerprint::NONE));
    let digest = *key(1).digest();
    let other = RecordKey::new("shop".into(), Operation::new("payments.refund"), digest);
    assert!(!look(&other, ASKED));
    assert!(look(&key(1), ASKED), "it is still there");
}

#[test]
fn a_permit_from_before_a_change_is_void() {
    type Change = fn(&Answers);
    let changes: [(&str, Change); 4] = [
        ("a resolution", |cache| cache.resolved(key(1).digest())),
        ("a loss", |cache| {
            cache.hearing(Hearing::Nothing);
            cache.hearing(Hearing::All);
        }),
        ("another subscription", |cache| cache.hearing(Hearing::All)),
        ("a resolution by this engine", |cache| {
            cache.shard(key(1).digest()).take(key(1).digest());
            cache.shard(key(1).digest()).taken();
        }),
    ];
    for (name, change) in changes {
        let cache = open();
        put(&cache, &key(1), b"old", Duration::ZERO);
        let permit = cache.permit(&key(1)).unwrap();
        change(&cache);
        assert_eq!(body(&cache, &key(1), Duration::ZERO), None, "{name}");
        let answer = record(OutcomeKind::Value, b"old");
        cache.keep(permit, &key(1), &answer, life(SECOND, Duration::ZERO));
        assert_eq!(body(&cache, &key(1), Duration::ZERO), None, "{name}");
        put(&cache, &key(1), b"new", Duration::ZERO);
        let found = body(&cache, &key(1), Duration::ZERO);
        assert_eq!(found, Some(b"new".to_vec()), "{name}");
    }
}

#[test]
fn there_is_no_permit_while_nothing_is_heard_or_something_is_taken_back() {
    let cache = cache(&LocalCache::new().max_entries(1));
    assert!(cache.permit(&key(1)).is_none(), "it was not opened");
    cache.hearing(Hearing::Never);
    assert!(cache.permit(&key(1)).is_some());
    cache.hearing(Hearing::Nothing);
    assert!(cache.permit(&key(1)).is_none());
    cache.hearing(Hearing::All);
    let digest = *key(1).digest();
    cache.shard(&digest).take(&digest);
    cache.shard(&digest).take(&digest);
    cache.shard(&digest).taken();
    assert!(cache.permit(&key(1)).is_none(), "one is on its way");
    cache.shard(&digest).taken();
    let permit = cache.permit(&key(1)).expect("both are done");
    cache.hearing(Hearing::Nothing);
    let answer = record(OutcomeKind::Value, b"a");
    cache.keep(permit, &key(1), &answer, life(SECOND, Duration::ZERO));
    assert_eq!(cache.stats().entries, 0);
    assert!(!cache.stats().is_open);
}

#[test]
fn of_two_answers_the_one_that_was_asked_for_later_stays() {
    let cache = open();
    put(&cache, &key(1), b"new", 2 * SECOND);
    put(&cache, &key(1), b"old", SECOND);
    let found = body(&cache, &key(1), 2 * SECOND);
    assert_eq!(found, Some(b"new".to_vec()));
    put(&cache, &key(1), b"newer", 2 * SECOND);
    let found = body(&cache, &key(1), 2 * SECOND);
    assert_eq!(found, Some(b"newer".to_vec()));
    assert_eq!(cache.stats().entries, 1);
}

#[test]
fn the_bounds_hold_whatever_comes() {
    let settings = LocalCache::new().max_entries(500).max_bytes(4 << 20);
    let cache = cache(&settings);
    cache.hearing(Hearing::All);
    let mut seed = 1_u32;
    for number in 0..20_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (seed >> 16) as usize % 60_000;
        put(&cache, &key(seed % 3_000), &vec![0; length], Duration::ZERO);
        if number % 5 == 0 {
            cache.resolved(key(number % 3_000).digest());
        }
        if number % 512 == 0 {
            let stats = cache.stats();
            assert!(stats.entries <= 500 && stats.bytes <= 4 << 20, "{stats:?}");
        }
    }
    let stats = cache.stats();
    assert!(stats.entries > 50 && stats.evictions > 0, "{stats:?}");
    let counted: usize = (0..3_000)
        .filter_map(|number| body(&cache, &key(number), Duration::ZERO))
        .map(|body| body.len() + crate::record::HEADER + 200)
        .sum();
    assert_eq!(
        counted,
        cache.stats().bytes,
        "what is found is what is counted"
    );
}

#[test]
fn an_answer_that_is_larger_than_all_the_room_is_not_kept() {
    let cache = cache(&LocalCache::new().max_bytes(1_024));
    cache.hearing(Hearing::All);
    put(&cache, &key(1), &[0; 100], Duration::ZERO);
    put(&cache, &key(2), &[0; 2_000], Duration::ZERO);
    assert!(body(&cache, &key(1), Duration::ZERO).is_some());
    assert!(body(&cache, &key(2), Duration::ZERO).is_none());
}

#[test]
fn what_is_used_stays_longer_than_what_is_not() {
    let cache = cache(&LocalCache::new().max_entries(50));
    cache.hearing(Hearing::All);
    for number in 0..5_000 {
        put(&cache, &key(number), b"a", Duration::ZERO);
        assert!(body(&cache, &key(0), Duration::ZERO).is_some(), "{number}");
    }
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.evictions), (50, 4_950));
}

#[test]
fn settings_out_of_bounds_are_named() {
    let new = LocalCache::new;
    new().check().unwrap();
    for (settings, named) in [
        (new().max_entries(0), "max_entries"),
        (new().max_bytes(1_023), "max_bytes"),
        (new().max_age(Duration::ZERO), "max_age"),
        (new().max_age(24 * 3600 * SECOND + SECOND), "max_age"),
    ] {
        let error = settings.check().unwrap_err();
        assert!(error.contains(named), "{error}");
    }
}
