//! Calls at the limit of bodies that run, while a former name is looked at first.

use std::sync::Arc;

use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine, ErrorKind,
    admin::EntryState,
    claim::{Acquired, Claim},
};

use super::fixture::{ChargeError, Fixture, NEW, OLD, refusal};

fn limited(fixture: &Fixture) -> Engine {
    let builder = fixture.after(Some(OLD), Some(NEW)).max_running(1);
    builder.build().unwrap()
}

/// The one body that may run.
async fn occupied(engine: &Engine) -> Claim {
    match Fixture::call(engine, "occupied", 1).begin().await {
        Ok(Acquired::Run(claim)) => claim,
        other => panic!("it claims: {other:?}"),
    }
}

#[tokio::test]
async fn answers_under_either_name_are_replayed_at_the_limit() {
    let fixture = Fixture::on(Arc::new(MemoryStore::new()));
    let (before, after) = (fixture.engine(Some(OLD)), limited(&fixture));
    assert_eq!(fixture.charge(&before, "former", 5).await, Ok(1));
    assert_eq!(fixture.charge(&after, "own", 5).await, Ok(2));
    let claim = occupied(&after).await;
    assert_eq!(fixture.charge(&after, "former", 5).await, Ok(1));
    assert_eq!(fixture.charge(&after, "own", 5).await, Ok(2));
    drop(claim);
}

#[tokio::test]
async fn nothing_is_claimed_under_either_name_at_the_limit() {
    let fixture = Fixture::on(Arc::new(MemoryStore::new()));
    let (before, after) = (fixture.engine(Some(OLD)), limited(&fixture));
    let released = Fixture::call(&before, "former", 5).count_errors(true);
    let down = fixture.charged(released, Err(ChargeError::Down)).await;
    assert_eq!(down, Err(ChargeError::Down));
    let claim = occupied(&after).await;
    for card in ["former", "own"] {
        let full = refusal(fixture.charge(&after, card, 5).await);
        assert!(matches!(full, ErrorKind::TooManyRunning), "{full:?}");
    }
    let entry = Fixture::call(&after, "former", 5).entry().await.unwrap();
    let entry = entry.expect("the record from before");
    assert_eq!((entry.state(), entry.attempts()), (EntryState::Released, 1));
    assert!(
        Fixture::call(&after, "own", 5)
            .entry()
            .await
            .unwrap()
            .is_none()
    );
    claim.complete(0_u32).await.unwrap();

    assert_eq!(fixture.charge(&after, "former", 5).await, Ok(1));
    let entry = Fixture::call(&before, "former", 5).entry().await.unwrap();
    let entry = entry.expect("it stands under the former name");
    assert!(matches!(entry.state(), EntryState::Answered(_)));
    assert_eq!(fixture.charge(&after, "own", 5).await, Ok(2));
    let own = Fixture::call(&before, "own", 5).entry().await.unwrap();
    assert!(own.is_none(), "it stands under the new name");
}
