//! Clients that hang up, seen through a socket.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use tokio::sync::Notify;

use crate::client::{Fixture, Gate, KEY, patiently, routed};
use crate::server::{Client, Server, request, with_key};

/// How long a repeat waits. The lease of the first request is renewed every 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// A service whose handler waits until it may go on, with its notifications.
struct Shop {
    fixture: Fixture,
    gate: Arc<Gate>,
    /// The server has let go of a request, answered or not.
    gone: Arc<Notify>,
    server: Server,
}

/// Notifies when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Shop {
    async fn open() -> Self {
        let (fixture, gate, gone) = (
            Fixture::new(),
            Arc::new(Gate::default()),
            Arc::new(Notify::new()),
        );
        let (counter, through) = (fixture.clone(), Arc::clone(&gate));
        let handler = post(move |order: String| async move {
            let run = counter.run();
            through.started.notify_one();
            through.go_on.notified().await;
            format!("{order}: {run}")
        });
        let tell = Arc::clone(&gone);
        let service =
            routed(handler, fixture.layer()).layer(from_fn(move |request: Request, next: Next| {
                let told = Told(Arc::clone(&tell));
                async move {
                    let response = next.run(request).await;
                    drop(told);
                    response
                }
            }));
        let server = Server::start(service).await;
        Self {
            fixture,
            gate,
            gone,
            server,
        }
    }

    /// A client sends its request, and hangs up while the handler runs.
    async fn hang_up(&self) {
        let mut client = self.server.connect().await;
        client.write(&with_key(KEY, "tea")).await;
        self.gate.runs().await;
        drop(client);
        patiently("the server notices it", self.gone.notified()).await;
    }

    /// A client repeats the request, which waits for the handler.
    async fn waits(&self) -> Client {
        let mut client = self.server.connect().await;
        client.write(&with_key(KEY, "tea")).await;
        let waits = self.fixture.clock.sleeper_within(PATIENCE);
        patiently("the repeat waits", waits).await;
        client
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer() {
    let shop = Shop::open().await;
    shop.hang_up().await;
    // While the handler runs, and when it has ended.
    let early = shop.waits().await;
    shop.gate.go_on.notify_one();
    for answer in [
        early.answer().await,
        shop.server.ask(with_key(KEY, "tea")).await,
    ] {
        assert_eq!(answer.body, "tea: 1");
        assert!(answer.is_replayed());
    }
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_repeat_whose_client_hangs_up_waits_no_longer() {
    let shop = Shop::open().await;
    shop.hang_up().await;
    drop(shop.waits().await);
    patiently("the server notices it", shop.gone.notified()).await;
    // Only the renewal of the lease is left.
    let next = shop.fixture.clock.next_wake();
    assert!(next.is_none_or(|next| next > PATIENCE), "{next:?}");
    assert_eq!(shop.fixture.events.count("claimed"), 1);
    shop.gate.go_on.notify_one();
    let answer = shop.server.ask(with_key(KEY, "tea")).await;
    assert!(answer.is_replayed());
}

#[tokio::test]
async fn a_client_that_hangs_up_within_its_request_has_asked_for_nothing() {
    let shop = Shop::open().await;
    let whole = with_key(KEY, "two teapots");
    let mut client = shop.server.connect().await;
    client.write(&whole[..whole.len() - 4]).await;
    drop(client);
    patiently("the server notices it", shop.gone.notified()).await;
    assert_eq!(
        shop.fixture.events.all(),
        [""; 0],
        "the store was not asked"
    );
    assert_eq!(shop.fixture.runs(), 0);
    shop.gate.go_on.notify_one();
    let answer = shop.server.ask(whole).await;
    assert_eq!(answer.body, "two teapots: 1");
    assert!(!answer.is_replayed());
}

#[tokio::test]
async fn a_request_that_ends_within_a_chunk_has_asked_for_nothing() {
    let shop = Shop::open().await;
    let start = request(format!("Idempotency-Key: {KEY}\r\n"), "");
    let start = String::from_utf8(start).unwrap();
    let start = start.replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let mut client = shop.server.connect().await;
    client
        .write(format!("{start}5\r\ntwo t\r\n6\r\nea").as_bytes())
        .await;
    drop(client);
    patiently("the server notices it", shop.gone.notified()).await;
    assert_eq!(
        shop.fixture.events.all(),
        [""; 0],
        "the store was not asked"
    );
    assert_eq!(shop.fixture.runs(), 0);
    shop.gate.go_on.notify_one();
    let whole = format!("{start}5\r\ntwo t\r\n6\r\neapots\r\n0\r\n\r\n");
    assert_eq!(shop.server.ask(whole).await.body, "two teapots: 1");
    // However a body is cut into chunks, it is the same request.
    let pieces = format!("{start}b\r\ntwo teapots\r\n0\r\n\r\n");
    let again = shop.server.ask(pieces).await;
    assert!(again.is_replayed());
    assert!(
        shop.server
            .ask(with_key(KEY, "two teapots"))
            .await
            .is_replayed()
    );
    assert_eq!(shop.fixture.runs(), 1);
}

#[tokio::test]
async fn a_stopped_server_completes_disconnected_requests() {
    let Shop {
        fixture,
        gate,
        server,
        gone,
    } = {
        let shop = Shop::open().await;
        shop.hang_up().await;
        shop
    };
    // The server has no client to answer, and so it ends at once.
    server.stop().await;
    let mut shutdown = Box::pin(fixture.engine.shutdown(Duration::from_hours(1)));
    let pending = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx).is_pending()));
    assert!(pending.await, "a handler runs");
    gate.go_on.notify_one();
    patiently("the end of the shutdown", shutdown)
        .await
        .unwrap();
    assert_eq!(fixture.events.count("completed value"), 1);
    assert_eq!(fixture.runs(), 1);
    drop(gone);
}
