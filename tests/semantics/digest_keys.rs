//! Names and fingerprints of records by a secret: the guesses that a reader of the store can try, and the records of
//! processes with a former secret.

use std::num::NonZeroU16;

use idem_runtime::EngineBuilder;
use idem_runtime::clock::SystemClock;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{DEFAULT_MAX_KEY_BYTES, KeyBuilder, KeyDigest, Operation};
use idem_runtime::store::RecordKey;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::prelude::*;
use crate::rows::{FORGOTTEN, Row};

on_every_store![
    a_reader_confirms_a_guess_only_without_a_secret,
    derived_keys_are_the_same_under_every_secret,
    a_process_of_another_secret_runs_the_body_again,
    an_answer_from_before_is_replayed,
    an_abandoned_attempt_from_before_is_taken_over,
    a_counted_attempt_from_before_counts,
    another_request_is_refused,
    callers_at_once_start_one_body,
    an_entry_from_before_is_found_and_settled,
    at_the_limit_answers_are_replayed_and_nothing_is_claimed_under_either_name,
    a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one,
    a_record_that_expires_before_the_claim_leaves_its_name,
    a_claim_sent_again_after_its_record_has_expired_begins_none,
    a_body_that_goes_on_under_the_former_name_is_waited_for,
    a_call_within_itself_is_refused_under_either_name,
    followers_do_not_ask_for_themselves,
];

type Secret = Option<[u8; 32]>;

/// The secrets before and after a change.
const OLD: Secret = Some([3; 32]);
const NEW: Secret = Some([4; 32]);

/// A secret is introduced, changed, and given up.
const CHANGES: [(Secret, Secret); 3] = [(None, NEW), (OLD, NEW), (OLD, None)];

const OPERATION: &str = "cards.charge";
const CARD: &str = "4111111111110077";
const CENTS: u64 = 1_999;

/// The engine of a process on the store of the fixture.
fn process(fixture: &Fixture, set: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Engine {
    let builder = Engine::builder(fixture.store.clone()).clock(fixture.clock.clone());
    let builder = builder.observer(fixture.events.clone());
    let builder = builder.prefix(fixture.key().prefix());
    set(builder).build().unwrap()
}

fn keyed(engine: EngineBuilder, secret: Secret) -> EngineBuilder {
    match secret {
        Some(secret) => engine.digest_key(secret),
        None => engine,
    }
}

fn formerly(engine: EngineBuilder, former: Secret) -> EngineBuilder {
    match former {
        Some(secret) => engine.former_digest_key(secret),
        None => engine.formerly_without_digest_key(),
    }
}

fn before(fixture: &Fixture, secret: Secret) -> Engine {
    process(fixture, |engine| keyed(engine, secret))
}

fn after(fixture: &Fixture, former: Secret, secret: Secret) -> Engine {
    process(fixture, |engine| formerly(keyed(engine, secret), former))
}

fn call(engine: &Engine, card: &str, cents: u64) -> Pay {
    engine.operation(OPERATION).key(card).fingerprint(&cents)
}

/// The row of a change, which shows no more of a secret than its first byte.
fn row(fixture: &Fixture, old: Secret, new: Secret) -> Row {
    let [old, new] = [old, new].map(|secret| secret.map(|secret| secret[0]));
    Row::new(fixture, (old, new))
}

/// A record of the card `card` whose attempt failed, and which lives for a minute.
async fn released(fixture: &Fixture) -> Engine {
    let before = before(fixture, OLD);
    let failed = call(&before, "card", 5).count_errors(true);
    down(failed.ttl(Duration::from_mins(1))).await;
    before
}

/// The record whose name a reader of the store sees, who has no secret.
async fn listed(fixture: &Fixture) -> KeyDigest {
    let reader = before(fixture, None);
    let mut entries = reader.entries().operation(OPERATION);
    let page = until(fixture, entries.next_page()).await.unwrap();
    let page = page.expect("a page");
    assert_eq!(page.entries().len(), 1, "one record");
    *page.entries()[0].key()
}

async fn stored_fingerprint(fixture: &Fixture, name: KeyDigest) -> Fingerprint {
    let prefix = fixture.key().prefix().into();
    let key = RecordKey::new(prefix, Operation::new(OPERATION), name);
    match fixture.store.read(&key).await.unwrap() {
        ReadReply::Found { record, .. } => record.header.fingerprint,
        other => panic!("no record: {other:?}"),
    }
}

/// All cards of a range that fit the name of the record.
fn guessed_cards(name: &KeyDigest) -> Vec<String> {
    let cards = (0..200).map(|last| format!("411111111111{last:04}"));
    let fits = |card: &String| {
        let guess = KeyBuilder::new(OPERATION, DEFAULT_MAX_KEY_BYTES).key(card.as_str());
        guess.unwrap() == *name
    };
    cards.filter(fits).collect()
}

/// All amounts of a range that fit the fingerprint.
fn guessed_amounts(asked: Fingerprint) -> Vec<u64> {
    (1_900..2_100)
        .filter(|cents| Fingerprint::of(OPERATION, cents).unwrap() == asked)
        .collect()
}

async fn a_reader_confirms_a_guess_only_without_a_secret(fixture: Fixture) {
    for secret in [None, NEW] {
        let _row = Row::new(&fixture, secret);
        let engine = before(&fixture, secret);
        let first = paid(call(&engine, CARD, CENTS), &Runs::default()).await;
        assert_eq!(first, receipt(1));
        let name = listed(&fixture).await;
        let asked = stored_fingerprint(&fixture, name).await;
        let shown = format!("{:?}", call(&engine, CARD, CENTS));
        let told = fixture.events.all().join("\n") + &shown;
        let plain = KeyBuilder::new(OPERATION, DEFAULT_MAX_KEY_BYTES).key(CARD);
        let plain = plain.unwrap();
        let (cards, amounts) = (guessed_cards(&name), guessed_amounts(asked));
        if secret.is_some() {
            assert_eq!((cards, amounts), (vec![], vec![]));
            assert_ne!(name, plain);
            let (text, first) = (plain.to_string(), format!("{plain:?}"));
            assert!(!told.contains(&text) && !told.contains(&first), "{told}");
        } else {
            assert_eq!((cards, amounts), (vec![CARD.to_owned()], vec![CENTS]));
        }
    }
}

async fn derived_keys_are_the_same_under_every_secret(fixture: Fixture) {
    let (mut derived, mut names) = (Vec::new(), Vec::new());
    for secret in [None, OLD, NEW] {
        let call = call(&before(&fixture, secret), CARD, CENTS);
        let keys = call.run(|cx| async move {
            // In the body, and in what it calls.
            let context = idem_runtime::context();
            assert_eq!(cx.derive_key("charge"), context.derive_key("charge"));
            Ok::<_, PayError>((cx.derive_key("charge"), cx.key().to_string()))
        });
        let (key, name) = keys.await.unwrap();
        derived.push(key);
        names.push(name);
    }
    derived.dedup();
    assert_eq!(derived.len(), 1);
    names.dedup();
    assert_eq!(names.len(), 3, "names follow from the secret");
}

/// What the documentation warns of.
async fn a_process_of_another_secret_runs_the_body_again(fixture: Fixture) {
    let runs = Runs::default();
    for (run, secret) in [(1, OLD), (2, NEW), (3, None)] {
        let engine = before(&fixture, secret);
        for _ in 0..2 {
            let answer = paid(call(&engine, "card", 5), &runs).await;
            assert_eq!(answer, receipt(run));
        }
    }
}

async fn an_answer_from_before_is_replayed(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let (before, after) = (before(&fixture, old), after(&fixture, old, new));
        let (runs, told) = (Runs::default(), fixture.events.count("formerdigestkey"));
        assert_eq!(paid(call(&before, "card", 5), &runs).await, receipt(1));
        drop(before);
        for _ in 0..2 {
            assert_eq!(answered(call(&after, "card", 5)).await, receipt(1));
        }
        assert_eq!(fixture.events.count("formerdigestkey"), told + 2);
        // A key first called after the change has the new name alone.
        for _ in 0..2 {
            let other = paid(call(&after, "other card", 5), &runs).await;
            assert_eq!(other, receipt(2));
        }
        assert_eq!(fixture.events.count("formerdigestkey"), told + 2);
    }
}

/// A process was stopped in the middle of a body.
async fn an_abandoned_attempt_from_before_is_taken_over(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let claim = claimed(call(&before(&fixture, old), "card", 5)).await;
        let derived = claim.context().derive_key("charge");
        drop(claim);
        fixture.pass_in_store(LEASE_OVER);
        let again = call(&after(&fixture, old, new), "card", 5).run(|cx| async move {
            assert_eq!((cx.attempt(), cx.derive_key("charge")), (2, derived));
            receipt(1)
        });
        assert_eq!(again.await, receipt(1));
    }
}

async fn a_counted_attempt_from_before_counts(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let once = |engine: &Engine| {
            let call = call(engine, "card", 5).count_errors(true);
            call.max_attempts(NonZeroU16::new(1))
        };
        down(once(&before(&fixture, old))).await;
        let again = answered(once(&after(&fixture, old, new))).await;
        assert_refusal(again, &ErrorKind::Exhausted { attempts: 1 });
    }
}

async fn another_request_is_refused(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let (before, after) = (before(&fixture, old), after(&fixture, old, new));
        let runs = Runs::default();
        assert_eq!(paid(call(&before, "card", 5), &runs).await, receipt(1));
        // A system error keeps the key with its request, too.
        let failed = call(&before, "failed card", 5).run(|cx| async move {
            let _ = cx.derive_key("charge");
            Err(PayError::Down) as Answer
        });
        assert_eq!(failed.await, Err(PayError::Down));
        assert_eq!(paid(call(&after, "new card", 5), &runs).await, receipt(2));
        for card in ["card", "failed card", "new card"] {
            let other = answered(call(&after, card, 6)).await;
            assert_refusal(other, &ErrorKind::Mismatch);
        }
        let same = paid(call(&after, "failed card", 5), &runs).await;
        assert_eq!(same, receipt(3));
        // A call that compares nothing gets the answer to any request.
        for (card, run) in [("card", 1), ("new card", 2)] {
            let any = after.operation(OPERATION).key(card);
            assert_eq!(answered(any).await, receipt(run));
        }
    }
}

/// Callers of two new processes begin at once, for cards from before (finished and released) and for others.
async fn callers_at_once_start_one_body(fixture: Fixture) {
    let runs = Runs::default();
    let first = released(&fixture).await;
    assert_eq!(paid(call(&first, "done", 5), &runs).await, receipt(1));
    let engines = [(); 2].map(|()| after(&fixture, OLD, NEW));
    for (run, card) in (1..).zip(["done", "card", "third", "fourth"]) {
        let mut callers = JoinSet::new();
        for number in 0..40 {
            let (call, runs) = (call(&engines[number % 2], card, 5), runs.clone());
            callers.spawn(async move { paid(call, &runs).await });
        }
        let answers = until(&fixture, callers.join_all()).await;
        assert_each(answers, &receipt(run));
    }
}

async fn an_entry_from_before_is_found_and_settled(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let (before, after) = (before(&fixture, old), after(&fixture, old, new));
        let runs = Runs::default();
        let entry = async |card: &str| {
            let found = until(&fixture, call(&after, card, 5).entry())
                .await
                .unwrap();
            found.expect("there is a record")
        };
        assert_eq!(paid(call(&before, "card", 5), &runs).await, receipt(1));
        entry("card").await.reset().await.unwrap();
        assert_eq!(entry("card").await.state(), EntryState::Released);
        assert_eq!(paid(call(&after, "card", 5), &runs).await, receipt(2));
        assert_eq!(answered(call(&after, "card", 5)).await, receipt(2));
        // A record that was made after the change is found as well, by its call and by its digest.
        let other = || call(&after, "other card", 5);
        assert_eq!(paid(other(), &runs).await, receipt(3));
        let by_call = entry("other card").await;
        let digest = by_call.key().to_string();
        let by_digest = until(&fixture, after.entry(OPERATION, &digest))
            .await
            .unwrap();
        let by_digest = by_digest.expect("there is a record");
        assert_eq!(by_digest.key(), by_call.key());
        by_digest.reset().await.unwrap();
        assert_eq!(paid(other(), &runs).await, receipt(4));
    }
}

async fn at_the_limit_answers_are_replayed_and_nothing_is_claimed_under_either_name(
    fixture: Fixture,
) {
    let (before, runs) = (released(&fixture).await, Runs::default());
    let after = process(&fixture, |engine| {
        formerly(keyed(engine, NEW), OLD).max_running(1)
    });
    for (run, engine) in (1..).zip([&before, &after]) {
        let done = call(engine, &format!("done {run}"), 5);
        assert_eq!(paid(done, &runs).await, receipt(run));
    }
    let entry = async |engine, card| {
        let entry = call(engine, card, 5).entry();
        until(&fixture, entry).await.unwrap()
    };
    let occupied = claimed(call(&after, "occupied", 1)).await;
    for run in 1..=2 {
        let replay = answered(call(&after, &format!("done {run}"), 5)).await;
        assert_eq!(replay, receipt(run));
    }
    for card in ["card", "own"] {
        let full = answered(call(&after, card, 5)).await;
        assert_refusal(full, &ErrorKind::TooManyRunning);
    }
    let failed = entry(&after, "card").await.expect("the record from before");
    assert_eq!(
        (failed.state(), failed.attempts()),
        (EntryState::Released, 1)
    );
    assert!(entry(&after, "own").await.is_none());
    occupied.complete(Receipt { run: 0 }).await.unwrap();
    for (run, card, is_former) in [(3, "card", true), (4, "own", false)] {
        assert_eq!(paid(call(&after, card, 5), &runs).await, receipt(run));
        // Under which name it is stored.
        let found = entry(&before, card).await;
        let answered = |entry: &_| matches!(entry, EntryState::Answered(_));
        assert_eq!(
            found.map(|it| answered(&it.state())),
            is_former.then_some(true)
        );
    }
}

async fn a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one(fixture: Fixture) {
    let cost = async |call: Pay| {
        let before = claims(&fixture);
        assert!(paid(call, &Runs::default()).await.is_ok());
        claims(&fixture) - before
    };
    for (former, secret, expected) in [
        (None, None, 1),
        (None, OLD, 1),
        (Some(OLD), NEW, 2),
        (Some(OLD), None, 2),
    ] {
        let _row = Row::new(&fixture, (former, secret));
        let engine = match former {
            Some(former) => after(&fixture, former, secret),
            None => before(&fixture, secret),
        };
        // The first call, and a replay.
        for _ in 0..2 {
            assert_eq!(cost(call(&engine, "card", 5)).await, expected);
        }
    }
    // A replay from before the change costs none.
    let _row = Row::new(&fixture, "from before");
    for engine in [before(&fixture, OLD), after(&fixture, OLD, NEW)] {
        assert_eq!(cost(call(&engine, "card", 5)).await, 1);
    }
}

/// The lookup of one process is held until the record from before has expired, and that of another one as well: one
/// of the two runs. With a lost reply the first lookup was granted, and is sent again.
async fn one_of_two_runs(fixture: Fixture, is_lost: bool) {
    let runs = Runs::default();
    released(&fixture).await;
    let charge = || {
        let (call, runs) = (call(&after(&fixture, OLD, NEW), "card", 5), runs.clone());
        tokio::spawn(async move { paid(call, &runs).await })
    };
    let asked = claims(&fixture);
    let mut sent_by_slow = asked + 1;
    if is_lost {
        fixture.fail(StoreOperation::Claim, [Fault::ReplyLost]);
        sent_by_slow += 1;
    }
    fixture.fail(StoreOperation::Claim, [Fault::Held; 2]);
    let slow = charge();
    if is_lost {
        wakes(&fixture, Duration::from_millis(100)).await;
    }
    sent(&fixture, StoreOperation::Claim, sent_by_slow).await;
    fixture.pass_in_store(FORGOTTEN);
    // The other process finds nothing under the former name, and begins under the new one.
    let quick = charge();
    sent(&fixture, StoreOperation::Claim, sent_by_slow + 1).await;
    fixture.store.deliver();
    fixture.store.deliver();
    for answer in [slow, quick] {
        assert_eq!(until(&fixture, answer).await.unwrap(), receipt(1));
    }
    assert_eq!(runs.count(), 1);
    // Without the former secret it is found: it has the new name.
    let last = answered(call(&before(&fixture, NEW), "card", 5));
    assert_eq!(last.await, receipt(1));
}

async fn a_record_that_expires_before_the_claim_leaves_its_name(fixture: Fixture) {
    one_of_two_runs(fixture, false).await;
}

async fn a_claim_sent_again_after_its_record_has_expired_begins_none(fixture: Fixture) {
    one_of_two_runs(fixture, true).await;
}

/// One process goes on under the former name while another claims.
async fn a_body_that_goes_on_under_the_former_name_is_waited_for(fixture: Fixture) {
    released(&fixture).await;
    let [one, other] = [(); 2].map(|()| after(&fixture, OLD, NEW));
    let claim = claimed(call(&one, "card", 5)).await;
    let asked = claims(&fixture);
    let waiting = tokio::spawn(answered(call(&other, "card", 5)));
    sent(&fixture, StoreOperation::Claim, asked + 1).await;
    others().await;
    assert!(!waiting.is_finished());
    claim.complete(Receipt { run: 7 }).await.unwrap();
    assert_eq!(until(&fixture, waiting).await.unwrap(), receipt(7));
}

async fn a_call_within_itself_is_refused_under_either_name(fixture: Fixture) {
    released(&fixture).await;
    let engine = after(&fixture, OLD, NEW);
    for card in ["card", "another"] {
        let again = call(&engine, card, 5);
        let outer = call(&engine, card, 5).run(|_| async {
            assert_refusal(answered(again).await, &ErrorKind::Reentered);
            receipt(1)
        });
        assert_eq!(outer.await, receipt(1));
    }
}

/// Followers leave the former name with the call that they follow, and do not claim one after another.
async fn followers_do_not_ask_for_themselves(fixture: Fixture) {
    let (engine, runs) = (after(&fixture, OLD, NEW), Runs::default());
    fixture.fail(StoreOperation::Claim, [Fault::Held; 2]);
    let callers = duplicates(500, || call(&engine, "card", 5), &runs);
    for lookups in 1..=2 {
        sent(&fixture, StoreOperation::Claim, lookups).await;
        // All others follow by now.
        others().await;
        fixture.store.deliver();
    }
    let answers = until(&fixture, callers.join_all()).await;
    assert_each(answers, &receipt(1));
    assert_eq!((claims(&fixture), runs.count()), (2, 1));
}

/// Duplicates at once on threads of their own, of which one may run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_at_the_limit_have_one_body() {
    const CALLERS: usize = 50;
    for has_record in [false, true] {
        let (fixture, runs) = (Fixture::memory(), Runs::default());
        if has_record {
            released(&fixture).await;
        }
        let engine = process(&fixture, |engine| {
            let engine = formerly(keyed(engine, NEW), OLD).max_running(1);
            engine.clock(SystemClock)
        });
        let together = Arc::new(Barrier::new(CALLERS));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (call, runs) = (call(&engine, "card", 5), runs.clone());
            let together = Arc::clone(&together);
            callers.spawn(async move {
                together.wait().await;
                let body = |_| async move {
                    tokio::task::yield_now().await;
                    receipt(runs.start())
                };
                call.run(body).await
            });
        }
        let answers = patiently("all are answered", callers.join_all()).await;
        assert_each(answers, &receipt(1));
        assert_eq!(runs.count(), 1, "a record from before: {has_record}");
    }
}
