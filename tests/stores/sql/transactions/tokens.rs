//! One-time tokens as keys of calls in a transaction.

use idem_runtime::clock::ManualClock;
use idem_runtime::{
    idempotent,
    token::{TokenIssuer, token},
};

use super::prelude::*;

on_each_database!(a_token_is_taken_with_the_commit);

const ANN: &str = "ann";

impl<D: Database> Fixture<D> {
    #[idempotent(op = "orders.submit", key = token(text, user), engine = self.engine, tx = tx)]
    async fn submit(&self, tx: &mut D::Tx, text: &str, user: &str) -> Answer {
        make::<D>(tx, &self.runs, text).await
    }

    async fn submitted(&self, text: &str, user: &str) -> Answer {
        let mut tx = self.begin().await;
        let answer = self.submit(&mut tx, text, user).await;
        D::commit(tx).await.done();
        answer
    }
}

async fn a_token_is_taken_with_the_commit<D: Database>() {
    let clock = ManualClock::new();
    let (issuer, settings) = (TokenIssuer::new([7; 32]), clock.clone());
    let fixture = Fixture::<D>::with(move |engine| engine.clock(settings).tokens(issuer)).await;
    let token = fixture.engine.issue_token("orders.submit", ANN).unwrap();
    let unused = fixture.engine.issue_token("orders.submit", ANN).unwrap();
    let error = refusal(fixture.submitted(&token, "bob").await);
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
    // Rolled back, and so usable.
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.submit(&mut tx, &token, ANN).await, Ok(1));
    D::rollback(tx).await.done();
    assert_eq!(fixture.submitted(&token, ANN).await, Ok(2));
    clock.advance(Duration::from_mins(6));
    assert_eq!(fixture.submitted(&token, ANN).await, Ok(2));
    let error = refusal(fixture.submitted(&unused, ANN).await);
    assert_eq!(*error.kind(), ErrorKind::TokenExpired, "{error}");
    assert_eq!(fixture.kept(&token).await, (1, 1));
}
