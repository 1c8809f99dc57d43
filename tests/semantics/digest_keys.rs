//! Names and fingerprints of records by a secret: the guesses that a reader of the store can try, and the records of
//! processes with a former secret.

use idem_runtime::__private::{DEFAULT_MAX_KEY_BYTES, FingerprintBuilder, KeyBuilder};
use idem_runtime::EngineBuilder;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::RecordKey;

use crate::prelude::*;
use crate::rows::{FORGOTTEN, Row};

on_every_store! {
    a_reader_confirms_a_guess_only_without_a_secret, derived_keys_are_the_same_under_every_secret,
    an_answer_from_before_is_replayed, an_abandoned_attempt_from_before_is_taken_over,
    another_request_is_refused, an_entry_from_before_is_found_and_settled,
    at_the_limit_answers_are_replayed_and_nothing_is_claimed_under_either_name,
    a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one,
    a_record_that_expires_before_the_claim_leaves_its_name,
    a_body_that_goes_on_under_the_former_name_is_waited_for,
    a_call_within_itself_is_refused_under_either_name, followers_do_not_ask_for_themselves,
}

type Secret = Option<[u8; 32]>;

/// The secrets before and after a change.
const OLD: Secret = Some([3; 32]);
const NEW: Secret = Some([4; 32]);

/// A secret is introduced, changed, and given up.
const CHANGES: [(Secret, Secret); 3] = [(None, NEW), (OLD, NEW), (OLD, None)];

const OPERATION: &str = "cards.charge";
const CARD: &str = "4111111111110077";
const CENTS: u64 = 1_999;

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

/// The row of a change: it shows at most the first byte of a secret.
fn row(fixture: &Fixture, old: Secret, new: Secret) -> Row {
    let [old, new] = [old, new].map(|secret| secret.map(|secret| secret[0]));
    Row::new(fixture, (old, new))
}

/// A record of the card `card`, for a minute after a failure.
async fn released(fixture: &Fixture) -> Engine {
    let before = before(fixture, OLD);
    let failed = call(&before, "card", 5).count_errors(true);
    down(failed.ttl(Duration::from_mins(1))).await;
    before
}

/// The record's name and fingerprint, as read without a secret.
async fn listed(fixture: &Fixture) -> (KeyDigest, Fingerprint) {
    let reader = before(fixture, None);
    let mut entries = reader.entries().operation(OPERATION);
    let page = until(fixture, entries.next_page()).await.unwrap();
    let page = page.expect("a page");
    assert_eq!(page.entries().len(), 1, "one record");
    let name = *page.entries()[0].key();
    let prefix = fixture.key().prefix().into();
    let key = RecordKey::new(prefix, Operation::new(OPERATION), name);
    match fixture.store.read(&key).await.unwrap() {
        ReadReply::Found { record, .. } => (name, record.header.fingerprint),
        other => panic!("no record: {other:?}"),
    }
}

async fn a_reader_confirms_a_guess_only_without_a_secret(fixture: Fixture) {
    for secret in [None, NEW] {
        let _row = Row::new(&fixture, secret);
        let engine = before(&fixture, secret);
        let first = paid(call(&engine, CARD, CENTS), &Runs::default()).await;
        assert_eq!(first, receipt(1));
        let (name, asked) = listed(&fixture).await;
        let plain = KeyBuilder::new(OPERATION, DEFAULT_MAX_KEY_BYTES).key(CARD);
        let plain = plain.unwrap();
        let guessed = FingerprintBuilder::value(OPERATION, &CENTS).finish();
        let guessed = guessed.unwrap().fingerprint();
        assert_eq!(name == plain, secret.is_none());
        assert_eq!(asked == guessed, secret.is_none());
        let told = format!(
            "{:?} {:?}",
            fixture.events.all(),
            call(&engine, CARD, CENTS)
        );
        let shows = told.contains(&plain.to_string()) || told.contains(&format!("{plain:?}"));
        assert!(secret.is_none() || !shows, "{told}");
    }
}

async fn derived_keys_are_the_same_under_every_secret(fixture: Fixture) {
    let (mut derived, mut names) = (Vec::new(), Vec::new());
    for secret in [None, OLD, NEW] {
        let call = call(&before(&fixture, secret), CARD, CENTS);
        let keys = call.run(|cx| async move {
            // In the body, and in its calls.
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

async fn another_request_is_refused(fixture: Fixture) {
    for (old, new) in CHANGES {
        let _row = row(&fixture, old, new);
        let (before, after) = (before(&fixture, old), after(&fixture, old, new));
        let runs = Runs::default();
        assert_eq!(paid(call(&before, "card", 5), &runs).await, receipt(1));
        assert_eq!(paid(call(&after, "new card", 5), &runs).await, receipt(2));
        for (card, run) in [("card", 1), ("new card", 2)] {
            let other = answered(call(&after, card, 6)).await;
            assert_refusal(other, &ErrorKind::Mismatch);
            // A call that compares nothing gets the answer to any request.
            let any = after.operation(OPERATION).key(card);
            assert_eq!(answered(any).await, receipt(run));
        }
    }
}

async fn an_entry_from_before_is_found_and_settled(fixture: Fixture) {
    let (before, after) = (before(&fixture, OLD), after(&fixture, OLD, NEW));
    let runs = Runs::default();
    let entry = async |card: &str| {
        let entry = until(&fixture, call(&after, card, 5).entry()).await;
        entry.unwrap().expect("there is a record")
    };
    assert_eq!(paid(call(&before, "card", 5), &runs).await, receipt(1));
    // A record that was made after the change is found as well.
    assert_eq!(paid(call(&after, "new card", 5), &runs).await, receipt(2));
    for (card, run) in [("card", 3), ("new card", 4)] {
        entry(card).await.reset().await.unwrap();
        assert_eq!(entry(card).await.state(), EntryState::Released);
        assert_eq!(paid(call(&after, card, 5), &runs).await, receipt(run));
        assert_eq!(answered(call(&after, card, 5)).await, receipt(run));
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
    let occupied = claimed(call(&after, "occupied", 1)).await;
    for run in 1..=2 {
        let replay = answered(call(&after, &format!("done {run}"), 5)).await;
        assert_eq!(replay, receipt(run));
    }
    for card in ["card", "own"] {
        let full = answered(call(&after, card, 5)).await;
        assert_refusal(full, &ErrorKind::TooManyRunning);
    }
    let own = until(&fixture, call(&after, "own", 5).entry()).await;
    assert!(own.unwrap().is_none());
    occupied.complete(Receipt { run: 0 }).await.unwrap();
    for (run, card) in [(3, "card"), (4, "own")] {
        assert_eq!(paid(call(&after, card, 5), &runs).await, receipt(run));
    }
}

async fn a_secret_alone_costs_no_round_trip_and_a_former_one_costs_one(fixture: Fixture) {
    let cost = async |call: Pay| {
        let before = claims(&fixture);
        assert!(paid(call, &Runs::default()).await.is_ok());
        claims(&fixture) - before
    };
    for (engine, expected) in [(before(&fixture, OLD), 1), (after(&fixture, OLD, NEW), 2)] {
        let _row = Row::new(&fixture, expected);
        // The first call, and a replay.
        for _ in 0..2 {
            assert_eq!(cost(call(&engine, "card", 5)).await, expected);
        }
    }
    // A replay from before the change costs none.
    let _row = Row::new(&fixture, "from before");
    assert_eq!(cost(call(&before(&fixture, OLD), "card", 5)).await, 1);
    let after = after(&fixture, OLD, NEW);
    assert_eq!(cost(call(&after, "card", 5)).await, 1);
}

/// Two processes' lookups are held until the former record has expired: one of the two runs. With a lost reply the
/// first lookup was granted, and is sent again.
async fn a_record_that_expires_before_the_claim_leaves_its_name(fixture: Fixture) {
    for is_lost in [false, true] {
        let _row = Row::new(&fixture, ("is lost", is_lost));
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

/// Followers leave the former name with their leader, without claims in turn.
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
