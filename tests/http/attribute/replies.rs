//! The stored part of a reply, and the reading of it.

use http::header::{LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use idem_runtime::http::Reply;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Answer, Engine, Error, ErrorKind, OnOtherType,
    codec::{AnswerFormat, Replay},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn engines() -> [Engine; 2] {
    [AnswerFormat::Json, AnswerFormat::MessagePack].map(|format| {
        let engine = Engine::builder(MemoryStore::new());
        engine.answer_format(format).build().unwrap()
    })
}

async fn store<T: Replay + Send>(engine: &Engine, value: T) -> T {
    let call = engine.operation("orders.create").key(&7);
    call.run(|_| async { Ok::<_, Error>(value) }).await.unwrap()
}

/// The stored reply, read by a version of the function with `T`.
async fn read<T: Replay + Send>(engine: &Engine) -> Result<T, Error> {
    let call = engine.operation("orders.create").key(&7);
    call.run(|_| async { unreachable!("it is stored") }).await
}

/// The same, of a version whose type has another name.
async fn read_as<T: Replay + Send>(engine: &Engine) -> Result<T, Error> {
    let call = engine.operation("orders.create").key(&7);
    let call = call.on_other_type(OnOtherType::Accept);
    call.run(|_| async { unreachable!("it is stored") }).await
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    number: u32,
}

/// Takes whatever members there are.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Lenient {
    note: Option<String>,
    pages: Option<u8>,
}

#[tokio::test]
async fn status_headers_and_value_come_back() {
    for engine in engines() {
        let latin = HeaderValue::from_bytes(b"caf\xe9").unwrap();
        let reply = Reply::created(Order { number: 7 })
            .header(LOCATION, "/orders/7")
            .header("x-name", latin.clone())
            .header("x-many", "1")
            .header("x-many", "2");
        assert!(!store(&engine, reply).await.was_replayed());
        let back = read::<Reply<Order>>(&engine).await.unwrap();
        assert_eq!(back.status(), StatusCode::CREATED);
        assert_eq!(back.headers()[LOCATION], "/orders/7");
        assert_eq!(back.headers()["x-name"], latin);
        let many: Vec<_> = back.headers().get_all("x-many").iter().collect();
        assert_eq!(many, ["1", "2"]);
        assert!(back.was_replayed());
        assert_eq!(back.into_value(), Order { number: 7 });
    }
}

/// A reply keeps headers that are not stored. Its value is therefore read back alone.
#[tokio::test]
async fn the_first_client_gets_the_stored_value_and_its_own_headers() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Traced {
        number: u32,
        #[serde(skip)]
        trace: u32,
    }

    for engine in engines() {
        let traced = Traced {
            number: 1,
            trace: 7,
        };
        let reply = Reply::created(traced).header(SET_COOKIE, "mine");
        let first = store(&engine, reply).await;
        assert_eq!(first.headers()[SET_COOKIE], "mine");
        let back = read::<Reply<Traced>>(&engine).await.unwrap();
        assert_eq!(first.value(), back.value());
        assert_eq!(first.value().trace, 0);
    }
}

#[tokio::test]
async fn a_function_may_begin_to_answer_replies() {
    for engine in engines() {
        store(&engine, Order { number: 7 }).await;
        let back = read::<Reply<Order>>(&engine).await.unwrap();
        assert_eq!((back.status(), back.headers().len()), (StatusCode::OK, 0));
        assert_eq!(back.value(), &Order { number: 7 });
    }
    // Whatever it looks like.
    for engine in engines() {
        let pair = json!([{ "status": 500 }, 1]);
        store(&engine, pair.clone()).await;
        let back = read::<Reply<Value>>(&engine).await.unwrap();
        assert_eq!((back.status(), back.value()), (StatusCode::OK, &pair));
    }
}

#[tokio::test]
async fn a_reply_of_another_value_is_refused() {
    for engine in engines() {
        store(&engine, Reply::ok(Order { number: 7 })).await;
        // A value of strangers' members is this one; a number is none.
        let lenient = read_as::<Reply<Lenient>>(&engine).await.unwrap();
        assert_eq!(lenient.into_value(), Lenient::default());
        for error in [
            read_as::<Reply<u8>>(&engine).await.unwrap_err(),
            read::<Order>(&engine).await.unwrap_err(),
            // Neither it nor any value may be taken for the reply.
            read_as::<Lenient>(&engine).await.unwrap_err(),
            read_as::<Value>(&engine).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Undecodable);
        }
        let error = read::<Reply<u8>>(&engine).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::WrongType);
        let again = read::<Reply<Order>>(&engine).await.unwrap();
        assert_eq!(again.into_value(), Order { number: 7 });
    }
    // A type that takes any members does not take the reply for its value.
    for engine in engines() {
        store(&engine, Reply::created(7)).await;
        let error = read_as::<Reply<Lenient>>(&engine).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Undecodable);
    }
}

#[tokio::test]
async fn an_answer_of_a_reply_is_both() {
    for engine in engines() {
        store(&engine, Answer::from(Reply::ok(1))).await;
        let back = read::<Answer<Reply<i32>>>(&engine).await.unwrap();
        assert!(!back.was_executed() && back.was_replayed());
        assert_eq!(read::<Reply<i32>>(&engine).await.unwrap().into_value(), 1);
    }
}

#[test]
fn a_forbidden_header_is_left_out() {
    let reply = Reply::ok(1)
        .header("x-split", "1\r\nset-cookie: 2")
        .header("no name", "1")
        .header("x-fine", "1");
    let names: Vec<_> = reply.headers().keys().collect();
    assert_eq!(names, ["x-fine"]);
}

#[test]
fn the_body_is_json_or_nothing() {
    let response = Reply::ok(Some(1)).into_response();
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.body(), "1");
    assert_eq!(Reply::ok(None::<u8>).into_response().body(), "null");
    let response = Reply::ok(1)
        .header("content-type", "application/hal+json")
        .into_response();
    assert_eq!(response.headers()["content-type"], "application/hal+json");

    let response = Reply::no_content().into_response();
    assert_eq!(
        (response.status().as_u16(), response.body().len()),
        (204, 0)
    );
    assert!(response.headers().is_empty());
    let response = Reply::see_other("/orders/7").into_response();
    assert_eq!(
        (response.status().as_u16(), response.body().len()),
        (303, 0)
    );
}

#[test]
fn a_value_that_cannot_be_written_is_a_problem() {
    let pairs = std::collections::BTreeMap::from([((1, "secret"), 1)]);
    let response = Reply::ok(pairs).into_response();
    assert_eq!(response.status(), 500);
    let document: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(document["code"], "answer-lost");
}

#[test]
fn nothing_of_a_reply_is_in_debug() {
    let reply = Reply::ok("s3cret").header("x-token", "s3cret");
    assert!(!format!("{reply:?}").contains("s3cret"));
}
