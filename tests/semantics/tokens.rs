//! One-time tokens: a token is good for one order of its subject, and an expired one starts nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use idem_runtime::clock::ManualClock;
use idem_runtime::http::IdempotencyKey;
use idem_runtime::token::{TokenIssuer, token};

use crate::prelude::*;

on_every_store! {
    a_token_is_a_key_of_its_own, an_expired_token_starts_nothing, an_expired_token_gets_the_answer,
    an_expired_token_waits_for_a_running_order, an_expired_token_of_an_abandoned_order_is_unknown,
    an_expired_token_is_looked_for_under_its_former_name, an_answer_does_not_choose_to_free_its_token,
}

const LIFE: Duration = Duration::from_mins(5);
/// More than that, rounded up to the second.
const OVER: Duration = LIFE.saturating_add(Duration::from_secs(1));
/// Exceeds a token's life, so that a running order keeps its lease.
const LEASE: Duration = Duration::from_hours(1);
const SECRET: [u8; 32] = [7; 32];
const OPERATION: &str = "orders.submit";
const ANN: &str = "ann";

fn issuer() -> TokenIssuer {
    TokenIssuer::new(SECRET).life(LIFE)
}

fn issuing(fixture: Fixture) -> Fixture {
    fixture.with(|engine| engine.tokens(issuer()).lease(LEASE))
}

fn issued(fixture: &Fixture) -> String {
    let token = fixture.engine.issue_token(OPERATION, ANN);
    token.expect("the engine has an issuer")
}

fn order(engine: &Engine, token: &str) -> Pay {
    engine.operation(OPERATION).token(token, ANN)
}

/// The order is declined, if it runs.
async fn sold_out(call: Pay, runs: &Runs) -> Answer {
    let body = async |_| Err(PayError::Declined { run: runs.start() });
    call.run(body).await
}

async fn a_token_is_a_key_of_its_own(fixture: Fixture) {
    let fixture = issuing(fixture);
    let [one, other] = [(); 2].map(|()| issued(&fixture));
    assert_ne!(one, other);
    let runs = Runs::default();
    let submit = |token: &str, item| order(&fixture.engine, token).fingerprint(item);
    down(submit(&one, "tea")).await;
    assert_eq!(paid(submit(&one, "tea"), &runs).await, receipt(1));
    assert_refusal(answered(submit(&one, "rum")).await, &ErrorKind::Mismatch);
    assert_eq!(answered(order(&fixture.far, &one)).await, receipt(1));
    assert_eq!(paid(submit(&other, "tea"), &runs).await, receipt(2));
    // A key of the caller's own is no token's.
    let plain = fixture.engine.operation(OPERATION).scope(ANN).key(&one);
    assert_eq!(paid(plain, &runs).await, receipt(3));
}

fn assert_expired(answer: Answer) {
    let error = refusal(answer);
    assert_eq!(*error.kind(), ErrorKind::TokenExpired, "{error}");
    assert!(!error.is_retryable());
}

async fn an_answer_does_not_choose_to_free_its_token(fixture: Fixture) {
    let fixture = issuing(fixture);
    let token = issued(&fixture);
    let short = |_: &Receipt| Duration::from_secs(1);
    let call = order(&fixture.engine, &token).ttl_of(short);
    let answer: Answer = call.run(|_| async { receipt(1) }).await;
    assert_eq!(answer, receipt(1));
    fixture.pass_in_store(LIFE.saturating_sub(Duration::from_secs(1)));
    assert_eq!(answered(order(&fixture.far, &token)).await, receipt(1));
}

async fn an_expired_token_starts_nothing(fixture: Fixture) {
    let fixture = issuing(fixture);
    let [token, released] = [(); 2].map(|()| issued(&fixture));
    down(order(&fixture.engine, &released)).await;
    let claimed = fixture.events.count("claimed");
    fixture.clock.advance(OVER);
    let call = || order(&fixture.engine, &token);
    for call in [
        call(),
        call().on_outage(OnOutage::Run),
        order(&fixture.engine, &released),
    ] {
        assert_expired(answered(call).await);
    }
    let error = call().begin().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TokenExpired);
    assert!(call().entry().await.unwrap().is_none());
    // Another's is not even looked up.
    let other = fixture.engine.operation(OPERATION).token(&token, "bob");
    assert_refusal(answered(other).await, &ErrorKind::TokenInvalid);
    assert_eq!(fixture.events.count("claimed"), claimed);
}

async fn an_expired_token_gets_the_answer(fixture: Fixture) {
    let fixture = issuing(fixture);
    let ([good, bad], runs) = ([(); 2].map(|()| issued(&fixture)), Runs::default());
    let submit = |item: &str| order(&fixture.engine, &good).fingerprint(item);
    assert_eq!(paid(submit("tea"), &runs).await, receipt(1));
    let declined = sold_out(order(&fixture.engine, &bad), &runs).await;
    fixture.clock.advance(OVER);
    assert_eq!(answered(submit("tea")).await, receipt(1));
    assert_eq!(answered(order(&fixture.far, &good)).await, receipt(1));
    assert_refusal(answered(submit("rum")).await, &ErrorKind::Mismatch);
    assert_eq!(answered(order(&fixture.far, &bad)).await, declined);
    match order(&fixture.engine, &good).begin().await.unwrap() {
        Acquired::Replay(stored) => {
            assert_eq!(stored.decode::<Receipt>().unwrap(), Receipt { run: 1 });
        }
        begun => panic!("not answered: {begun:?}"),
    }
    let entry = order(&fixture.engine, &good).entry().await;
    assert!(entry.unwrap().is_some());
}

async fn an_expired_token_waits_for_a_running_order(fixture: Fixture) {
    let fixture = issuing(fixture);
    let token = issued(&fixture);
    let body = Body::start(order(&fixture.engine, &token), receipt(1)).await;
    fixture.clock.advance(OVER);
    let both = || [&fixture.engine, &fixture.far].map(|engine| order(engine, &token));
    for call in both() {
        let refused = answered(call.on_running(OnRunning::Reject)).await;
        assert_running(&refusal(refused));
    }
    let waiting = both().map(|call| tokio::spawn(answered(patient(call))));
    // The first command of a waiting call of another process.
    sent(&fixture, StoreOperation::Watch, 1).await;
    assert_eq!(body.end().await, receipt(1));
    for waiting in waiting {
        assert_eq!(until(&fixture, waiting).await.unwrap(), receipt(1));
    }
}

async fn an_expired_token_of_an_abandoned_order_is_unknown(fixture: Fixture) {
    let fixture = issuing(fixture);
    let token = issued(&fixture);
    drop(claimed(order(&fixture.engine, &token)).await);
    fixture.clock.advance(OVER);
    fixture.pass_in_store(LEASE);
    assert_unknown(&refusal(answered(order(&fixture.far, &token)).await));
}

/// The engines of processes before and after a change of digest key.
async fn an_expired_token_is_looked_for_under_its_former_name(fixture: Fixture) {
    let is_after = AtomicBool::new(false);
    let fixture = fixture.with(|engine| {
        let engine = engine.tokens(issuer());
        if is_after.swap(true, Ordering::SeqCst) {
            engine.digest_key([2; 32]).former_digest_key([1; 32])
        } else {
            engine.digest_key([1; 32])
        }
    });
    let [done, released, unused] = [(); 3].map(|()| issued(&fixture));
    let first = paid(order(&fixture.engine, &done), &Runs::default()).await;
    assert_eq!(first, receipt(1));
    down(order(&fixture.engine, &released)).await;
    fixture.clock.advance(OVER);
    assert_eq!(answered(order(&fixture.far, &done)).await, receipt(1));
    for token in [released, unused.clone()] {
        assert_expired(answered(order(&fixture.far, &token)).await);
    }
    let entry = order(&fixture.far, &unused).entry().await;
    assert!(entry.unwrap().is_none());
}

/// Two processes' clocks are nearly a minute apart. Answers live for a second, and the token is sent to both every
/// second.
#[tokio::test]
async fn a_record_outlives_its_token_on_every_clock() {
    let second = Duration::from_secs(1);
    let [time, ahead, behind] = [(); 3].map(|()| ManualClock::new());
    ahead.advance(59 * second);
    let store = MemoryStore::builder().clock(time.clone()).build();
    let engines = [&ahead, &behind].map(|clock| {
        let engine = Engine::builder(store.clone()).clock(clock.clone());
        let engine = engine.ttl(second).error_ttl(second);
        engine.tokens(issuer()).build().unwrap()
    });
    for (declines, used_first, after) in [
        (false, 0, 0),
        (true, 1, 0),
        (true, 0, 100),
        (false, 1, 100),
        (false, 0, 240),
        (true, 1, 240),
    ] {
        let token = engines[1].issue_token(OPERATION, ANN).unwrap();
        let runs = Runs::default();
        for now in 0..400 {
            let turns = match now {
                _ if now < after => 0..0,
                _ if now == after => used_first..used_first + 1,
                _ => 0..2,
            };
            for engine in &engines[turns] {
                let call = order(engine, &token);
                let _: Answer = if declines {
                    sold_out(call, &runs).await
                } else {
                    paid(call, &runs).await
                };
            }
            for clock in [&time, &ahead, &behind] {
                clock.advance(second);
            }
        }
        let row = format!("used first after {after} s, by engine {used_first}");
        assert_eq!(runs.count(), 1, "{row}");
    }
}

#[idempotent(op = "orders.submit", key = token(text, *user), engine = engine, on_error = release)]
async fn submit_all(
    #[idem(skip)] engine: &Engine,
    text: &str,
    user: &u64,
    #[idem(skip)] run: u32,
) -> Result<u32, Error> {
    Ok(run)
}

/// A token in the header of the client's key: its subject names the owner.
#[idempotent(op = "orders.submit", key = token(key.as_str(), user), engine = engine, on_error = release)]
async fn submit_by_header(
    #[idem(skip)] engine: &Engine,
    #[idem(skip)] key: IdempotencyKey,
    user: u64,
    #[idem(skip)] run: u32,
) -> Result<u32, Error> {
    Ok(run)
}

fn engine() -> Engine {
    let issuer = TokenIssuer::new(SECRET);
    Engine::builder(MemoryStore::new())
        .tokens(issuer)
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_argument_that_carries_it_is_not_compared() {
    let engine = engine();
    let [text, header] = [(); 2].map(|()| engine.issue_token(OPERATION, &7_u64).unwrap());
    for run in 1..3 {
        assert_eq!(submit_all(&engine, &text, &7, run).await, Ok(1));
        let key = IdempotencyKey(header.clone());
        assert_eq!(submit_by_header(&engine, key, 7, run).await, Ok(1));
    }
    let stranger = submit_all(&engine, &text, &8, 3).await.unwrap_err();
    assert_eq!(*stranger.kind(), ErrorKind::TokenInvalid);
}

#[tokio::test]
async fn a_token_that_cannot_be_used_is_refused() {
    let (engine, bare) = (engine(), Engine::new(MemoryStore::new()));
    let token = engine.issue_token(OPERATION, ANN).unwrap();
    let call = || engine.operation(OPERATION);
    let other = |secret| {
        let engine = Engine::builder(MemoryStore::new()).prefix("other");
        engine.tokens(TokenIssuer::new(secret)).build().unwrap()
    };
    let strangers = [other(SECRET), other([8; 32])].map(|it| order(&it, &token));
    let (key, stranger) = (ErrorKind::InvalidKey, ErrorKind::TokenInvalid);
    let [other_prefix, other_secret] = strangers;
    for (call, kind, words) in [
        (call().scope("tenant").token(&token, ANN), &key, "subject"),
        (call().token(&token, ANN).scope("tenant"), &key, "subject"),
        (call().public().token(&token, ANN), &key, "subject"),
        (call().token(&token, ANN).public(), &key, "subject"),
        (call().token(&token, ""), &key, "subject"),
        (call().key("mine").token(&token, ANN), &key, "one key"),
        (call().token(&token, ANN).key("mine"), &key, "one key"),
        (order(&bare, &token), &ErrorKind::InvalidPolicy, "tokens"),
        (call().token(&token, &(ANN, 1)), &stranger, ""),
        (call().token(&token[1..], ANN), &stranger, ""),
        (engine.operation("other").token(&token, ANN), &stranger, ""),
        (other_prefix, &stranger, ""),
        (other_secret, &stranger, ""),
    ] {
        let error = call.begin().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words), "{words}: {text}");
        assert!(!text.contains(&token[1..]), "{text}");
        assert_eq!(error.kind(), kind, "{text}");
    }
    let error = bare.issue_token(OPERATION, ANN).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
}

#[tokio::test]
async fn a_disabled_engine_verifies_its_tokens() {
    let engine = Engine::disabled();
    let token = engine.issue_token(OPERATION, ANN).unwrap();
    let runs = Runs::default();
    if cfg!(debug_assertions) {
        for run in 1..3 {
            let answer = paid(order(&engine, &token), &runs).await;
            assert_eq!(answer, receipt(run));
        }
    }
    let made_up = answered(order(&engine, "made up")).await;
    assert_refusal(made_up, &ErrorKind::TokenInvalid);
}
