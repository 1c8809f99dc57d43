//! A server that is absent, or lost during a call.

use idem_runtime::OnRunning;
use idem_runtime::store::sql::MySqlStore;
use idem_tests::shop::happened;

use super::prelude::*;

on_each_server!(
    each_outage_is_reported_and_waited_for,
    connections_closed_for_being_idle_are_replaced_at_once,
);

/// Response time-out of an impatient store.
const SOON: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    Killed,
    /// It stands still.
    Paused,
    /// All data is lost on the way.
    BlackHole,
}

impl Outage {
    fn begin(self, server: &Served, proxy: &TcpProxy) {
        match self {
            Self::Killed => server.kill(),
            Self::Paused => server.pause(),
            Self::BlackHole => proxy.black_hole(true),
        }
    }

    fn end(self, server: &Served, proxy: &TcpProxy) {
        match self {
            Self::Killed => server.restart(),
            Self::Paused => server.resume(),
            Self::BlackHole => proxy.black_hole(false),
        }
    }

    /// Parts of the messages of a claim, and of a new store.
    fn messages(self) -> (Vec<&'static str>, Vec<&'static str>) {
        if let Self::Killed = self {
            let claim = vec!["a claim", "server runs"];
            return (claim, vec!["connecting", "server runs", "URL"]);
        }
        let claim = [
            "a claim",
            "no reply",
            "within 1s",
            "of 8 connections in use",
        ];
        (claim.to_vec(), vec!["connecting", "no reply"])
    }
}

/// Calls until the key is free of an abandoned caller's claim.
async fn paid_in_the_end<B: Server>(store: &SqlStore<B>, fixture: &Fixture, key: &str) -> String {
    let trying = async {
        loop {
            match store.age(Duration::from_mins(1)).await {
                Ok(()) => {}
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            match fixture.pay(key).await {
                Ok(answer) => return answer,
                Err(Failure::Idem(error)) => assert!(error.is_retryable(), "{error}"),
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    patiently("the key is free", trying).await
}

async fn each_outage_is_reported_and_waited_for<B: Server>() {
    for outage in [Outage::Killed, Outage::Paused, Outage::BlackHole] {
        let server = B::serve(&[]);
        let proxy = TcpProxy::start(server.addr());
        // A dead server is seen at its own address.
        let url = if outage == Outage::Killed {
            server.url()
        } else {
            server.url_at(proxy.addr())
        };
        let store = open_hasty::<B>(&url, SOON).await;
        let calm = Fixture::on(&store);
        let first = calm.pay("a").await.unwrap();
        let hasty = calm.beside_with(&store, |engine| {
            let engine = engine.claim_deadline(HASTE).complete_deadline(HASTE);
            engine.on_running(OnRunning::Reject)
        });
        outage.begin(&server, &proxy);
        assert_retryable(hasty.pay("b").await);
        let (claiming, connecting) = outage.messages();
        assert_says(claim(&store).await, Unavailable, &claiming);
        let late = SqlStore::<B>::builder(&url).response_timeout(SOON);
        assert_says(late.connect().await, Unavailable, &connecting);
        assert_eq!(calm.effects("b"), 0, "{outage:?}");
        // A call that is retried throughout.
        let waits = calm.beside_with(&store, |engine| engine.claim_deadline(5 * PATIENCE));
        let waits = tokio::spawn(async move { waits.pay("c").await });
        outage.end(&server, &proxy);
        patiently("the call has its answer", waits)
            .await
            .unwrap()
            .unwrap();
        paid_in_the_end(&store, &calm, "b").await;
        assert_eq!(calm.pay("a").await.unwrap(), first, "{outage:?}");

        // And while a body runs: its answer is stored later.
        let before = hasty.events.count("completed");
        let begins = async |_| {
            outage.begin(&server, &proxy);
            Ok(())
        };
        let kept = hasty.pay_by("d", begins).await.unwrap();
        assert_eq!(hasty.events.count("unsaved"), 1, "{outage:?}");
        outage.end(&server, &proxy);
        happened(&hasty.events, "completed", before + 1).await;
        assert_eq!(calm.pay("d").await.unwrap(), kept, "{outage:?}");
        let effects = ["a", "b", "c", "d"].map(|key| calm.effects(key));
        assert_eq!(effects, [1; 4], "{outage:?}");
    }
}

/// Only the URL's author can know the port's server.
#[tokio::test]
async fn another_server_listens() {
    let (postgres, mariadb) = (Postgres::serve(&[]), MySql::serve(&[]));
    let url =
        |scheme: &str, port: u16| format!("{scheme}://idem:password-marker@127.0.0.1:{port}/idem");
    let store = PostgresStore::connect(url("postgres", mariadb.port())).await;
    assert_says(store, Unavailable, &["connecting"]);
    let store = MySqlStore::connect(url("mysql", postgres.port())).await;
    assert_says(store, Unavailable, &["connecting"]);
}

/// Opens several connections of a store, and uses all of them.
async fn warm(fixture: &Fixture) {
    let calls = (0..64).map(|number| {
        let fixture = fixture.clone();
        async move { fixture.pay(&format!("warm {number}")).await.unwrap() }
    });
    calls.collect::<JoinSet<_>>().join_all().await;
}

/// No engine retries here.
async fn connections_closed_for_being_idle_are_replaced_at_once<B: Server>() {
    let (setting, seen) = if B::POSTGRES {
        (
            ("idle_session_timeout", "2000"),
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid()",
        )
    } else {
        (
            ("wait_timeout", "2"),
            "SELECT count(*) FROM information_schema.processlist WHERE user = 'idem' \
             AND id <> connection_id()",
        )
    };
    let server = B::serve(&[setting]);
    let store = open::<B>(&server.url()).await;
    warm(&Fixture::on(&store)).await;
    for _ in 0..3 {
        until("the server has closed them", || server.execute(seen) == "0").await;
        claim(&store).await.unwrap();
    }
}
