//! Work besides a call and after it: renewals, waits, and late completions.

use idem_runtime::{ErrorKind, OnRunning};
use idem_tests::shop::{PATIENCE, proxied};

use crate::prelude::*;

/// The beginning of a fault and its end.
type Fault = fn(&RedisServer, &TcpProxy);

/// The key is held after the fault; its lease may have lapsed.
#[tokio::test]
async fn renewals_go_on_after_a_fault() {
    let rows: [(&str, Fault, usize, Fault); 3] = [
        (
            "a killed connection",
            |server, _| drop(server.cli(&["CLIENT", "KILL", "TYPE", "normal"])),
            0,
            |_, _| {},
        ),
        (
            "a black hole for longer than a lease",
            |_, proxy| proxy.black_hole(true),
            4,
            |_, proxy| proxy.black_hole(false),
        ),
        (
            "a claim that is lost",
            |server, _| drop(server.cli(&["FLUSHALL"])),
            0,
            |_, _| {},
        ),
    ];
    for (fault, begin, failures, end) in rows {
        let (server, proxy) = proxied();
        // Long enough to be renewed in time on a busy machine.
        let settings = |engine| persistent(engine).lease(Duration::from_secs(3));
        let shop = Shop::open_with(&proxy.url(), |store| store, settings).await;
        let body = async |_| {
            for _ in 0..2 {
                let renewed = shop.events.count("renewed");
                happened(&shop.events, "renewed", renewed + 1).await;
                let failed = shop.events.count("renewal failed");
                begin(&server, &proxy);
                happened(&shop.events, "renewal failed", failed + failures).await;
                let renewed = shop.events.count("renewed");
                end(&server, &proxy);
                happened(&shop.events, "renewed", renewed + 1).await;
                let error = shop.pay("a").await.unwrap_err().refused();
                let held = matches!(error.kind(), ErrorKind::Running { .. });
                assert!(held, "{fault}: {error}");
            }
            Ok(())
        };
        let answer = shop.pay_by("a", body).await;
        for never in ["lease lost", "completed value late"] {
            assert_eq!(shop.events.count(never), 0, "{fault}");
        }
        assert_eq!(shop.pay("a").await, answer, "{fault}");
        assert_eq!(shop.runs(), 1, "{fault}");
    }
}

#[tokio::test]
async fn a_duplicate_goes_on_waiting_over_a_restart() {
    let server = RedisServer::builder().append_only_always().start();
    let waiting = |engine| persistent(engine).on_running(OnRunning::Wait(PATIENCE));
    let shop = Shop::open_with(&server.url(), |store| store, waiting).await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, ending) = tokio::sync::oneshot::channel();
    let first = shop.pay_by("a", async |_| {
        begun.send(()).unwrap();
        ending.await.unwrap();
        Ok(())
    });
    let far = shop.far();
    let second = async {
        has_begun.await.unwrap();
        let mut monitor = server.monitor();
        let (answer, ()) = tokio::join!(far.pay("a"), async {
            let mut sent = 0;
            until("it polls", || {
                sent += monitor.names().len();
                sent >= 2
            })
            .await;
            server.restart();
            end.send(()).unwrap();
        });
        answer
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(second, first);
    assert_eq!(first.unwrap().run, 1);
    assert_eq!(shop.runs(), 1);
}

/// A runtime of one thread, as in a small program.
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
