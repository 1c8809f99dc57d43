//! Work besides a call and after it: renewals, waits, and late completions.

use idem_runtime::{ErrorKind, OnRunning};
use idem_tests::shop::{PATIENCE, proxied};

use crate::prelude::*;

/// Long enough to be renewed in time on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

async fn with_a_short_lease(url: &str) -> Shop {
    let settings = |engine| persistent(engine).lease(LEASE);
    Shop::open_with(url, |store| store, settings).await
}

async fn assert_held(shop: &Shop) {
    let error = shop.pay("a").await.unwrap_err().refused();
    assert!(matches!(error.kind(), ErrorKind::Running { .. }), "{error}");
}

#[tokio::test]
async fn renewals_go_on_when_their_connection_is_killed() {
    let server = RedisServer::start();
    let shop = with_a_short_lease(&server.url()).await;
    let answer = shop
        .pay_by("a", async |_| {
            for renewed in [1, 3, 5] {
                happened(&shop.events, "renewed", renewed).await;
                server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
                assert_held(&shop).await;
            }
            Ok(())
        })
        .await;
    assert_eq!(shop.events.count("lease lost"), 0);
    assert_eq!(shop.pay("a").await, answer);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn renewals_go_on_after_a_black_hole() {
    let (_server, proxy) = proxied();
    let shop = with_a_short_lease(&proxy.url()).await;
    let answer = shop
        .pay_by("a", async |_| {
            happened(&shop.events, "renewed", 1).await;
            proxy.black_hole(true);
            // By then the lease has lapsed, and no other call has claimed the key.
            happened(&shop.events, "renewal failed", 4).await;
            let renewed = shop.events.count("renewed");
            proxy.black_hole(false);
            happened(&shop.events, "renewed", renewed + 2).await;
            assert_held(&shop).await;
            Ok(())
        })
        .await;
    assert_eq!(shop.events.count("lease lost"), 0);
    assert_eq!(shop.pay("a").await, answer);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_renewal_puts_a_lost_claim_back() {
    let server = RedisServer::start();
    let shop = with_a_short_lease(&server.url()).await;
    let answer = shop
        .pay_by("a", async |_| {
            server.cli(&["FLUSHALL"]);
            let renewed = shop.events.count("renewed");
            happened(&shop.events, "renewed", renewed + 1).await;
            assert_held(&shop).await;
            Ok(())
        })
        .await;
    assert_eq!(shop.events.count("completed value late"), 0);
    assert_eq!(shop.pay("a").await, answer);
}

#[tokio::test]
async fn a_duplicate_goes_on_waiting_over_a_restart() {
    let server = Arc::new(RedisServer::builder().append_only_always().start());
    let shop = Shop::open_with(
        &server.url(),
        |store| store,
        |engine| persistent(engine).on_running(OnRunning::Wait(PATIENCE)),
    )
    .await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, ending) = tokio::sync::oneshot::channel();
    let first = tokio::spawn({
        let shop = shop.clone();
        async move {
            let body = async |_| {
                begun.send(()).unwrap();
                ending.await.unwrap();
                Ok(())
            };
            shop.pay_by("a", body).await
        }
    });
    has_begun.await.unwrap();
    let mut monitor = server.monitor();
    let second = tokio::spawn({
        let shop = shop.clone();
        async move { shop.far().pay("a").await }
    });
    let mut polls = 0;
    while polls < 2 {
        tokio::task::yield_now().await;
        polls += monitor.names().len();
    }
    server.restart();
    end.send(()).unwrap();
    let answer = first.await.unwrap();
    assert_eq!(second.await.unwrap(), answer);
    assert_eq!(answer.unwrap().run, 1);
    assert_eq!(shop.runs(), 1);
}

/// A runtime of one thread, as in a test or a small program.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_store_outlives_the_runtime_that_it_was_made_on() {
    let server = RedisServer::start();
    let shop = runtime().block_on(Shop::open(&server.url()));
    let first = runtime().block_on(shop.pay("a"));
    assert_eq!(first.as_ref().unwrap().run, 1);
    let again = runtime().block_on(shop.pay("a"));
    assert_eq!(again, first);
}

#[test]
fn an_answer_is_stored_after_its_runtime_and_its_engine_are_gone() {
    let (server, proxy) = proxied();
    let first = runtime();
    let shop = first.block_on(Shop::open_hasty(&proxy.url()));
    let answer = first.block_on(shop.pay_by("a", async |_| {
        proxy.black_hole(true);
        Ok(())
    }));
    assert_eq!(shop.events.count("unsaved"), 1);
    let (events, prefix) = (shop.events.clone(), shop.prefix().to_owned());
    drop((shop, first));
    proxy.black_hole(false);
    runtime().block_on(async {
        happened(&events, "completed", 1).await;
        let store = connect(server.url()).await.unwrap();
        let other = Shop::with_prefix(&prefix, store, |engine| engine);
        assert_eq!(other.pay("a").await, answer);
        assert_eq!(other.runs(), 0);
    });
}

#[test]
fn a_call_whose_runtime_ends_while_it_stores_its_answer_is_stored() {
    let server = RedisServer::start();
    let proxy = Arc::new(TcpProxy::start(server.addr()));
    let first = runtime();
    let shop = first.block_on(Shop::open(&proxy.url()));
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    first.spawn({
        let (shop, proxy) = (shop.clone(), Arc::clone(&proxy));
        async move {
            let body = async |_| {
                proxy.black_hole(true);
                begun.send(()).unwrap();
                Ok(())
            };
            shop.pay_by("a", body).await
        }
    });
    // Its task proceeds while this one is blocked, up to its wait for a reply.
    first.block_on(async {
        has_begun.await.unwrap();
        until("the completion is sent", || {
            proxy.stats().swallowed_bytes > 0
        })
        .await;
    });
    drop(first);
    proxy.black_hole(false);
    runtime().block_on(async {
        happened(&shop.events, "completed", 1).await;
        assert_eq!(shop.pay("a").await.unwrap().run, 1);
    });
    assert_eq!(shop.runs(), 1);
}
