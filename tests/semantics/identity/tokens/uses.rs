//! Tokens in the attribute, and where they do not go.

use idem_runtime::http::IdempotencyKey;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine, Error, ErrorKind, idempotent,
    token::{TokenIssuer, token},
};

use super::fixture::{ANN, Fixture, Kind, OPERATION, SECRET};

#[derive(Debug)]
struct Form {
    token: String,
    item: String,
}

#[derive(Clone, Debug)]
struct User {
    id: String,
}

#[idempotent(
    op = "orders.submit",
    key = token(&form.token, &user.id),
    fingerprint(form.item),
    on_error = release
)]
async fn submit(user: &User, form: Form, run: u32) -> Result<(u32, String), Error> {
    Ok((run, format!("{} for {}", form.item, user.id)))
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
async fn the_attribute_takes_a_token() {
    let engine = engine();
    let [ann, bob] = [ANN, "bob"].map(|id| User { id: id.to_owned() });
    let token = engine.issue_token(OPERATION, &ann.id).unwrap();
    let send = |user: &User, item: &str, run| {
        let (token, item, user) = (token.clone(), item.to_owned(), user.clone());
        let engine = engine.clone();
        async move { engine.scope(submit(&user, Form { token, item }, run)).await }
    };
    let first = (1, "tea for ann".to_owned());
    assert_eq!(send(&ann, "tea", 1).await, Ok(first.clone()));
    assert_eq!(send(&ann, "tea", 2).await, Ok(first));
    let error = send(&ann, "coffee", 3).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Mismatch);
    let error = send(&bob, "tea", 4).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
}

#[tokio::test]
async fn the_argument_that_carries_it_does_not_disturb() {
    let engine = engine();
    let token = engine.issue_token(OPERATION, &7_u64).unwrap();
    for run in 1..4 {
        assert_eq!(submit_all(&engine, &token, &7, run).await, Ok(1));
    }
}

#[tokio::test]
async fn a_token_that_a_client_sends_as_its_key_is_of_its_subject() {
    let engine = engine();
    let token = engine.issue_token(OPERATION, &7_u64).unwrap();
    let submit = |user, run| submit_by_header(&engine, IdempotencyKey(token.clone()), user, run);
    assert_eq!(submit(7, 1).await, Ok(1));
    assert_eq!(submit(7, 2).await, Ok(1));
    let other = submit(8, 3).await.unwrap_err();
    assert_eq!(*other.kind(), ErrorKind::TokenInvalid);
}

#[tokio::test]
async fn a_subject_is_a_tuple_or_any_key() {
    let engine = engine();
    let text = engine.issue_token(OPERATION, &("tenant", 7_u64)).unwrap();
    let run = |call: idem_runtime::CallBuilder<_>| async {
        let call = call.on_error(idem_runtime::on_error::Release);
        call.run(|_| async { Ok::<_, Error>(1) }).await
    };
    // The same value in other clothes.
    let tenant = "tenant".to_owned();
    let same = engine
        .operation(OPERATION)
        .key(&token(&text, (&tenant, 7_u8)));
    assert_eq!(run(same).await, Ok(1));
    let other = engine
        .operation(OPERATION)
        .key(&token(&text, ("tenant7", 7)));
    assert_eq!(
        *run(other).await.unwrap_err().kind(),
        ErrorKind::TokenInvalid
    );
}

async fn refused(
    call: idem_runtime::CallBuilder<idem_tests::fixture::Classified>,
) -> (ErrorKind, String) {
    let error = call.begin().await.unwrap_err();
    (error.kind().clone(), error.to_string())
}

#[tokio::test]
async fn a_token_takes_no_scope_and_no_second_key() {
    let engine = engine();
    let token = engine.issue_token(OPERATION, ANN).unwrap();
    let call = || engine.operation(OPERATION);
    for call in [
        call().scope("tenant").token(&token, ANN),
        call().token(&token, ANN).scope("tenant"),
        call().public().token(&token, ANN),
        call().token(&token, ANN).public(),
    ] {
        let (kind, text) = refused(call).await;
        assert!(
            kind == ErrorKind::InvalidKey && text.contains("subject"),
            "{text}"
        );
    }
    for call in [
        call().key("mine").token(&token, ANN),
        call().token(&token, ANN).key("mine"),
        call().token(&token, ANN).token(&token, ANN),
    ] {
        let (kind, text) = refused(call).await;
        assert!(
            kind == ErrorKind::InvalidKey && text.contains("one key"),
            "{text}"
        );
    }
    let (kind, text) = refused(call().token(&token, "")).await;
    assert!(
        kind == ErrorKind::InvalidKey && text.contains("subject"),
        "{text}"
    );
}

#[tokio::test]
async fn an_engine_without_an_issuer_is_refused() {
    let engine = Engine::new(MemoryStore::new());
    let error = engine.issue_token(OPERATION, ANN).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidPolicy);
    let token = self::engine().issue_token(OPERATION, ANN).unwrap();
    let (kind, text) = refused(engine.operation(OPERATION).token(&token, ANN)).await;
    assert!(
        kind == ErrorKind::InvalidPolicy && text.contains("EngineBuilder::tokens"),
        "{text}"
    );
}

#[tokio::test]
async fn another_secret_and_another_prefix_make_a_stranger() {
    let fixture = Fixture::new(Kind::Memory).await;
    let token = fixture.token();
    for engine in [
        Engine::builder(fixture.store.clone()).tokens(TokenIssuer::new(SECRET)),
        Engine::builder(fixture.store.clone()).tokens(TokenIssuer::new([8; 32])),
    ] {
        let engine = engine.build().unwrap();
        let (kind, _) = refused(engine.operation(OPERATION).token(&token, ANN)).await;
        assert_eq!(kind, ErrorKind::TokenInvalid);
    }
}

#[tokio::test]
async fn a_disabled_engine_verifies_its_tokens() {
    let engine = Engine::disabled();
    let token = engine.issue_token(OPERATION, ANN).unwrap();
    let order = |text: &str, run: u32| {
        let call = engine
            .operation(OPERATION)
            .token(text, ANN)
            .on_error(idem_runtime::on_error::Release);
        async move { call.run(|_| async move { Ok::<_, Error>(run) }).await }
    };
    if cfg!(debug_assertions) {
        assert_eq!(
            (order(&token, 1).await, order(&token, 2).await),
            (Ok(1), Ok(2))
        );
    }
    let error = order("made up", 3).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TokenInvalid);
}
