//! A token is good for one order.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use idem_runtime::ErrorKind;
use idem_runtime::OnRunning;
use tokio::task::JoinSet;

use crate::stage::{ANN, Kind, OPERATION, OrderError, PATIENCE, Stage, refusal, soon};

pub(crate) async fn many_submits_of_one_token_make_one_order(kind: Kind) {
    const SUBMITS: usize = 500;
    let stage = std::sync::Arc::new(Stage::new(kind).await);
    let token = stage.token();
    let (go, wait) = tokio::sync::watch::channel(false);
    let mut submits = JoinSet::new();
    for n in 0..SUBMITS {
        let (stage, token, mut wait) = (stage.clone(), token.clone(), wait.clone());
        submits.spawn(async move {
            wait.wait_for(|go| *go).await.unwrap();
            let call = match n % 2 {
                0 => stage.call(&token),
                _ => stage.call_far(&token),
            };
            let runs = stage.runs.clone();
            let call = call.on_running(OnRunning::Wait(PATIENCE));
            call.run(|_| async move {
                // Everybody else comes while this runs.
                tokio::task::yield_now().await;
                Ok::<_, OrderError>(runs.fetch_add(1, Ordering::SeqCst) + 1)
            })
            .await
        });
    }
    go.send(true).unwrap();
    let answers = soon("every submit is answered", submits.join_all()).await;
    assert_eq!(answers.len(), SUBMITS);
    let different: BTreeSet<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!((different, stage.runs()), (BTreeSet::from([1]), 1));
}

pub(crate) async fn a_token_is_of_use_to_its_subject_and_operation(kind: Kind) {
    let stage = Stage::new(kind).await;
    let token = stage.token();
    let strangers = || {
        [
            stage.near.operation(OPERATION).token(&token, "bob"),
            stage.near.operation(OPERATION).token(&token, &(ANN, 1)),
            stage.near.operation("orders.cancel").token(&token, ANN),
            stage.near.operation(OPERATION).token(&token[1..], ANN),
            stage.near.operation(OPERATION).token("", ANN),
        ]
    };
    // Before it is used, and after.
    for _ in 0..2 {
        for call in strangers() {
            let error = refusal(stage.order(call).await);
            assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
            assert!(!error.is_retryable());
            assert!(!error.to_string().contains(&token[1..]), "{error}");
        }
        assert_eq!(stage.order(stage.call(&token)).await, Ok(1));
    }
    assert_eq!(stage.runs(), 1);
}

pub(crate) async fn after_a_system_error_it_is_usable_again(kind: Kind) {
    let stage = Stage::new(kind).await;
    let token = stage.token();
    for _ in 0..2 {
        let down = stage.order_that(stage.call(&token), Err(OrderError::Down));
        assert_eq!(down.await, Err(OrderError::Down));
    }
    assert_eq!(stage.order(stage.call_far(&token)).await, Ok(3));
    assert_eq!(stage.order(stage.call(&token)).await, Ok(3));
    assert_eq!(stage.runs(), 3);
}

pub(crate) async fn after_a_business_error_that_is_the_answer(kind: Kind) {
    let stage = Stage::new(kind).await;
    let token = stage.token();
    let sold_out = stage.order_that(stage.call(&token), Err(OrderError::SoldOut));
    assert_eq!(sold_out.await, Err(OrderError::SoldOut));
    let again = stage.order(stage.call_far(&token)).await;
    assert_eq!((again, stage.runs()), (Err(OrderError::SoldOut), 1));
}

pub(crate) async fn another_order_with_the_same_token_is_refused(kind: Kind) {
    let stage = Stage::new(kind).await;
    let token = stage.token();
    let order = |item: &'static str| stage.order(stage.call(&token).fingerprint(item));
    assert_eq!(order("tea").await, Ok(1));
    assert_eq!(*refusal(order("coffee").await).kind(), ErrorKind::Mismatch);
    assert_eq!((order("tea").await, stage.runs()), (Ok(1), 1));
}

pub(crate) async fn two_tokens_are_two_orders(kind: Kind) {
    let stage = Stage::new(kind).await;
    let [one, other] = [stage.token(), stage.token()];
    assert_ne!(one, other);
    assert_eq!(stage.order(stage.call(&one)).await, Ok(1));
    assert_eq!(stage.order(stage.call(&other)).await, Ok(2));
    // A key of the caller's own is no token's.
    let plain = stage.near.operation(OPERATION).scope(ANN).key(&one);
    assert_eq!(stage.order(plain).await, Ok(3));
}
