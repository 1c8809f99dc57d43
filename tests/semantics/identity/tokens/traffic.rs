//! The cost of a token in commands, counted by the server.

use std::time::Duration;

use idem_harness::RedisServer;
use idem_runtime::clock::ManualClock;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::{Engine, ErrorKind, token::TokenIssuer};

use super::fixture::{ANN, Answer, LIFE, OPERATION, SECRET, refusal};

async fn order(engine: &Engine, token: &str, subject: &str) -> Answer {
    let call = engine.operation(OPERATION).token(token, subject);
    call.run(|_| async { Ok(1) }).await
}

#[tokio::test]
async fn to_verify_and_take_is_one_command() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let issuer = TokenIssuer::new(SECRET).life(LIFE);
    let engine = Engine::builder(store)
        .clock(clock.clone())
        .tokens(issuer)
        .build()
        .unwrap();
    // The server learns its scripts.
    let [warm, warmer] = [(); 2].map(|()| engine.issue_token(OPERATION, ANN).unwrap());
    order(&engine, &warm, ANN).await.unwrap();
    clock.advance(LIFE + Duration::from_secs(1));
    refusal(order(&engine, &warmer, ANN).await);

    let mut monitor = server.monitor();
    let [token, unused] = [(); 2].map(|()| engine.issue_token(OPERATION, ANN).unwrap());
    assert!(
        monitor.names().is_empty(),
        "nothing is stored when a token is issued"
    );
    let error = refusal(order(&engine, &token, "bob").await);
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
    assert!(
        monitor.names().is_empty(),
        "a stranger's token is no matter of the store"
    );
    order(&engine, &token, ANN).await.unwrap();
    assert_eq!(
        monitor.names(),
        ["SET", "EVALSHA"],
        "it is taken, and the answer stored"
    );
    order(&engine, &token, ANN).await.unwrap();
    assert_eq!(monitor.names(), ["SET"], "a replay");
    clock.advance(LIFE + Duration::from_secs(1));
    order(&engine, &token, ANN).await.unwrap();
    assert_eq!(monitor.names(), ["EVALSHA"], "a replay after its time");
    let error = refusal(order(&engine, &unused, ANN).await);
    assert_eq!(*error.kind(), ErrorKind::TokenExpired);
    // One query for its answer, and one for the call that it began.
    assert_eq!(monitor.names(), ["EVALSHA", "EVALSHA"]);
}
