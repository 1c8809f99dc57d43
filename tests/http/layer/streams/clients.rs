//! Clients that read, leave, or read slowly.

use bytes::Bytes;
use idem_runtime::testing::{Fault, StoreOperation};

use super::super::bodies::next;
use super::shop::{ONE, Shop, TWO, assert_both, assert_streaming};
use crate::client::{KEY, call, data, leave, order, others, spawn};
use crate::server::{Server, with_key as raw};

/// The client has the first event before there is a second one.
#[tokio::test]
async fn a_stream_reaches_its_client_as_it_comes_and_repeats_as_a_whole() {
    let mut shop = Shop::open(|layer| layer);
    let server = Server::start(shop.service.clone()).await;
    let mut client = server.connect().await;
    client.write(&raw(KEY, "")).await;
    shop.write(ONE);
    let head = client.until(ONE.as_bytes()).await;
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", head.escape_ascii());
    assert_streaming(&server.ask(raw(KEY, "")).await);
    shop.write(TWO);
    shop.end();
    let rest = client.rest().await;
    assert!(
        String::from_utf8_lossy(&rest).contains(TWO),
        "{}",
        rest.escape_ascii()
    );
    shop.completed().await;
    for _ in 0..2 {
        assert_both(&server.ask(raw(KEY, "")).await);
    }
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_finds_all_of_the_stream() {
    let mut shop = Shop::open(|layer| layer);
    let server = Server::start(shop.service.clone()).await;
    let mut client = server.connect().await;
    client.write(&raw(KEY, "")).await;
    shop.write(ONE);
    client.until(ONE.as_bytes()).await;
    drop(client);
    // It also takes no other connection: the rest runs without the server.
    server.stop().await;
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
    assert_eq!(shop.fixture.runs(), 1);
}

/// The handler has answered, and its client does not know it yet.
#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_finds_all_of_the_stream() {
    let mut shop = Shop::open(|layer| layer);
    shop.store
        .fail(StoreOperation::Complete, [Fault::ReplyHeld]);
    let client = spawn(&shop.service, order(""));
    shop.sent(StoreOperation::Complete, 1).await;
    leave(client).await;
    shop.store.deliver();
    shop.write(ONE);
    shop.write(TWO);
    shop.end();
    shop.completed().await;
    assert_both(&shop.repeat().await);
}

/// Its client reads nothing until all is stored.
#[tokio::test]
async fn a_slow_client_does_not_slow_the_recording() {
    let mut shop = Shop::open(|layer| layer);
    let mut response = call(&shop.service, order("")).await;
    let part = Bytes::from(vec![b'x'; 100_000]);
    for _ in 0..3 {
        shop.source().send(data(part.clone())).unwrap();
        // The recorder takes a part of it before the end.
        others().await;
    }
    assert_eq!(
        next(&mut response).await.unwrap().unwrap().len(),
        32 << 10,
        "a slow client has no copy of all"
    );
    shop.end();
    shop.completed().await;
    let mut length = 32 << 10;
    while let Some(part) = next(&mut response).await {
        length += part.unwrap().len();
    }
    assert_eq!(length, 300_000);
    assert_eq!(shop.repeat().await.body.len(), 300_000);
}
