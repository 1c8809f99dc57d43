//! A token is good for one order.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use idem_runtime::ErrorKind;
use idem_runtime::OnRunning;
use tokio::task::JoinSet;

use super::fixture::{ANN, Fixture, Kind, OPERATION, OrderError, PATIENCE, patiently, refusal};

pub(crate) async fn many_submits_of_one_token_make_one_order(kind: Kind) {
    const SUBMITS: usize = 500;
    let fixture = std::sync::Arc::new(Fixture::new(kind).await);
    let token = fixture.token();
    let (go, wait) = tokio::sync::watch::channel(false);
    let mut submits = JoinSet::new();
    for n in 0..SUBMITS {
        let (fixture, token, mut wait) = (fixture.clone(), token.clone(), wait.clone());
        submits.spawn(async move {
            wait.wait_for(|go| *go).await.unwrap();
            let call = match n % 2 {
                0 => fixture.call(&token),
                _ => fixture.call_far(&token),
            };
            let runs = fixture.runs.clone();
            let call = call.on_running(OnRunning::Wait(PATIENCE));
            call.run(|_| async move {
                // All other calls come while this runs.
                tokio::task::yield_now().await;
                Ok::<_, OrderError>(runs.fetch_add(1, Ordering::SeqCst) + 1)
            })
            .await
        });
    }
    go.send(true).unwrap();
    let answers = patiently("every submit is answered", submits.join_all()).await;
    assert_eq!(answers.len(), SUBMITS);
    let different: BTreeSet<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!((different, fixture.runs()), (BTreeSet::from([1]), 1));
}

pub(crate) async fn a_token_is_of_use_to_its_subject_and_operation(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let token = fixture.token();
    let strangers = || {
        [
            fixture.near.operation(OPERATION).token(&token, "bob"),
            fixture.near.operation(OPERATION).token(&token, &(ANN, 1)),
            fixture.near.operation("orders.cancel").token(&token, ANN),
            fixture.near.operation(OPERATION).token(&token[1..], ANN),
            fixture.near.operation(OPERATION).token("", ANN),
        ]
    };
    // Before it is used, and after.
    for _ in 0..2 {
        for call in strangers() {
            let error = refusal(fixture.order(call).await);
            assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
            assert!(!error.is_retryable());
            assert!(!error.to_string().contains(&token[1..]), "{error}");
        }
        assert_eq!(fixture.order(fixture.call(&token)).await, Ok(1));
    }
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn after_a_system_error_it_is_usable_again(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let token = fixture.token();
    for _ in 0..2 {
        let down = fixture.order_that(fixture.call(&token), Err(OrderError::Down));
        assert_eq!(down.await, Err(OrderError::Down));
    }
    assert_eq!(fixture.order(fixture.call_far(&token)).await, Ok(3));
    assert_eq!(fixture.order(fixture.call(&token)).await, Ok(3));
    assert_eq!(fixture.runs(), 3);
}

pub(crate) async fn after_a_business_error_that_is_the_answer(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let token = fixture.token();
    let sold_out = fixture.order_that(fixture.call(&token), Err(OrderError::SoldOut));
    assert_eq!(sold_out.await, Err(OrderError::SoldOut));
    let again = fixture.order(fixture.call_far(&token)).await;
    assert_eq!((again, fixture.runs()), (Err(OrderError::SoldOut), 1));
}

pub(crate) async fn another_order_with_the_same_token_is_refused(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let token = fixture.token();
    let order = |item: &'static str| fixture.order(fixture.call(&token).fingerprint(item));
    assert_eq!(order("tea").await, Ok(1));
    assert_eq!(*refusal(order("coffee").await).kind(), ErrorKind::Mismatch);
    assert_eq!((order("tea").await, fixture.runs()), (Ok(1), 1));
}

pub(crate) async fn two_tokens_are_two_orders(kind: Kind) {
    let fixture = Fixture::new(kind).await;
    let [one, other] = [fixture.token(), fixture.token()];
    assert_ne!(one, other);
    assert_eq!(fixture.order(fixture.call(&one)).await, Ok(1));
    assert_eq!(fixture.order(fixture.call(&other)).await, Ok(2));
    // A key of the caller's own is no token's.
    let plain = fixture.near.operation(OPERATION).scope(ANN).key(&one);
    assert_eq!(fixture.order(plain).await, Ok(3));
}
