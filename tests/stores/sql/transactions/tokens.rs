//! One-time tokens as keys of calls in a transaction.

use idem_runtime::clock::ManualClock;
use idem_runtime::{
    idempotent,
    token::{TokenIssuer, token},
};

use super::prelude::*;

on_each_database!(
    a_token_is_taken_with_the_commit,
    an_expired_token_leaves_nothing
);

const ANN: &str = "ann";

impl<D: Database> Fixture<D> {
    #[idempotent(op = "orders.submit", key = token(text, user), engine = self.engine, tx = tx)]
    async fn submit(&self, tx: &mut D::Tx, text: &str, user: &str, down: bool) -> Answer {
        let run = make::<D>(tx, &self.runs, text).await?;
        if down { Err(OrderError::Down) } else { Ok(run) }
    }

    async fn submitted(&self, text: &str, user: &str, down: bool) -> Answer {
        let mut tx = self.begin().await;
        let answer = self.submit(&mut tx, text, user, down).await;
        D::commit(tx).await.done();
        answer
    }
}

async fn fixture<D: Database>() -> (Fixture<D>, ManualClock) {
    let clock = ManualClock::new();
    let issuer = TokenIssuer::new([7; 32]);
    let settings = clock.clone();
    let fixture = Fixture::with(move |engine| engine.clock(settings).tokens(issuer)).await;
    (fixture, clock)
}

async fn a_token_is_taken_with_the_commit<D: Database>() {
    let (fixture, clock) = fixture::<D>().await;
    let token = fixture.engine.issue_token("orders.submit", ANN).unwrap();
    let error = refusal(fixture.submitted(&token, "bob", false).await);
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
    // Rolled back, and so usable.
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.submit(&mut tx, &token, ANN, false).await, Ok(1));
    D::rollback(tx).await.done();
    assert_eq!(fixture.submitted(&token, ANN, false).await, Ok(2));
    for _ in 0..2 {
        assert_eq!(fixture.submitted(&token, ANN, false).await, Ok(2));
        clock.advance(Duration::from_mins(6));
    }
    assert_eq!(fixture.kept(&token).await, (1, 1));
}

async fn an_expired_token_leaves_nothing<D: Database>() {
    let (fixture, clock) = fixture::<D>().await;
    let [token, given_back] =
        [(); 2].map(|()| fixture.engine.issue_token("orders.submit", ANN).unwrap());
    let down = fixture.submitted(&given_back, ANN, true).await;
    assert_eq!(down, Err(OrderError::Down));
    clock.advance(Duration::from_mins(6));
    for token in [&token, &given_back] {
        // The transaction remains usable afterwards.
        let mut tx = fixture.begin().await;
        let error = refusal(fixture.submit(&mut tx, token, ANN, false).await);
        assert_eq!(*error.kind(), ErrorKind::TokenExpired, "{error}");
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
        assert_eq!(fixture.orders(token).await, 0);
    }
    assert_eq!(fixture.kept("around").await, (2, 0));
}
