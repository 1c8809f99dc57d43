//! Servers that refuse commands: what their callers get, and the answer that is stored when the fault is over.

use std::sync::Mutex;

use idem_harness::{RedisServerBuilder, ReplicaPair, RespConn, eventually};
use idem_runtime::__private::KeyBuilder;
use idem_runtime::store::author::Needs;
use idem_tests::claims::unhurried;
use idem_tests::shop::assert_store_says;

use crate::prelude::*;

/// A server behind a proxy, and two connections from before any fault.
struct Place {
    server: RedisServer,
    proxy: TcpProxy,
    operator: Mutex<RespConn>,
    client: Mutex<RespConn>,
}

impl Place {
    fn reply(&self, command: &[&str]) -> Reply {
        self.operator.lock().unwrap().command(command).unwrap()
    }

    /// Executes a command of words without spaces.
    fn tell(&self, command: &str) {
        let words: Vec<_> = command.split(' ').collect();
        assert_eq!(self.reply(&words).as_error(), None, "{command}");
    }

    /// Refuses every client but the operator, and ends their connections.
    fn allow_clients(&self, most: usize) {
        self.tell(&format!("CONFIG SET maxclients {most}"));
        self.tell("CLIENT KILL TYPE normal");
    }

    fn change_password(&self, password: &str) {
        self.tell(&format!("CONFIG SET requirepass {password}"));
        self.tell("CLIENT KILL TYPE normal");
    }

    fn runs_a_long_script(&self) {
        let mut client = self.client.lock().unwrap();
        client.send(&["EVAL", "while true do end", "0"]).unwrap();
        let busy = |reply: Reply| {
            reply
                .as_error()
                .is_some_and(|text| text.starts_with("BUSY"))
        };
        eventually("the script is slow", || busy(self.reply(&["PING"])));
    }

    fn cannot_write_its_snapshot(&self) {
        // A directory has the name of the file.
        std::fs::create_dir(self.server.dir().join("snapshot")).unwrap();
        self.reply(&["CONFIG", "SET", "save", "3600 1"]);
        self.tell("BGSAVE");
        eventually("the snapshot has failed", || {
            let info = self.server.cli(&["INFO", "persistence"]);
            info.contains("rdb_last_bgsave_status:err")
        });
    }
}

/// A fault of a server: its beginning and its end.
struct Fault {
    name: &'static str,
    server: fn(RedisServerBuilder) -> RedisServerBuilder,
    begin: fn(&Place),
    end: fn(&Place),
    /// The reason that a claim is refused with.
    says: &'static str,
    /// Whether answers are replayed meanwhile.
    replays: bool,
}

const PLAIN: fn(RedisServerBuilder) -> RedisServerBuilder = |server| server;
const MAXCLIENTS: &str = "takes no more connections (`maxclients`)";

const FAULTS: [Fault; 10] = [
    Fault {
        name: "killed",
        server: RedisServerBuilder::append_only_always,
        begin: |place| place.server.kill(),
        end: |place| place.server.restart(),
        says: "the connection to Redis is lost",
        replays: false,
    },
    Fault {
        name: "a black hole",
        server: PLAIN,
        begin: |place| place.proxy.black_hole(true),
        end: |place| place.proxy.black_hole(false),
        says: "Redis did not answer in time",
        replays: false,
    },
    Fault {
        name: "demoted, with a primary that does not listen, so that its data stay",
        server: PLAIN,
        begin: |place| place.tell("REPLICAOF 127.0.0.1 1"),
        end: |place| place.tell("REPLICAOF NO ONE"),
        says: "a replica; connect to the primary",
        replays: true,
    },
    Fault {
        name: "demoted, and without stale data",
        server: |server| server.args(["--replica-serve-stale-data", "no"]),
        begin: |place| place.tell("REPLICAOF 127.0.0.1 1"),
        end: |place| place.tell("REPLICAOF NO ONE"),
        says: "wait for the failover to finish",
        replays: false,
    },
    Fault {
        name: "too few replicas",
        server: PLAIN,
        begin: |place| place.tell("CONFIG SET min-replicas-to-write 1"),
        end: |place| place.tell("CONFIG SET min-replicas-to-write 0"),
        says: "too few replicas",
        replays: true,
    },
    Fault {
        name: "a snapshot that cannot be written",
        server: |server| server.args(["--dbfilename", "snapshot"]),
        begin: Place::cannot_write_its_snapshot,
        end: |place| drop(place.reply(&["CONFIG", "SET", "save", ""])),
        says: "cannot write its snapshot",
        replays: true,
    },
    Fault {
        name: "busy with a script",
        server: |server| server.args(["--lua-time-limit", "20"]),
        begin: Place::runs_a_long_script,
        end: |place| place.tell("SCRIPT KILL"),
        says: "somebody's long script",
        replays: false,
    },
    Fault {
        name: "no place for a client",
        server: PLAIN,
        begin: |place| place.allow_clients(1),
        end: |place| place.allow_clients(100),
        says: MAXCLIENTS,
        replays: false,
    },
    Fault {
        name: "no place for a client with a password",
        server: |server| server.password(PASSWORD),
        begin: |place| place.allow_clients(1),
        end: |place| place.allow_clients(100),
        says: MAXCLIENTS,
        replays: false,
    },
    Fault {
        name: "another password",
        server: |server| server.password(PASSWORD),
        begin: |place| place.change_password("changed"),
        end: |place| place.change_password(PASSWORD),
        says: "user or password",
        replays: false,
    },
];

/// The caller has its answer, which is stored; no other body runs.
async fn is_survived(fault: &Fault) {
    let server = (fault.server)(RedisServer::builder()).start();
    let place = Place {
        operator: Mutex::new(server.connect()),
        client: Mutex::new(server.connect()),
        proxy: TcpProxy::start(server.addr()),
        server,
    };
    let at = [place.server.addr(), place.proxy.addr()].map(|addr| addr.to_string());
    let (name, url) = (fault.name, place.server.url().replace(&at[0], &at[1]));
    let shop = Shop::open_hasty(&url).await;
    let stored = shop.pay("a").await;
    let answer = shop.pay_while("b", || (fault.begin)(&place)).await;
    assert!(answer.is_ok(), "{name}: {answer:?}");
    assert_eq!(shop.events.count("unsaved"), 1, "{name}");
    if fault.replays {
        assert_eq!(shop.pay("a").await, stored, "{name}");
    } else {
        assert_unavailable(shop.pay("a").await);
    }
    assert_unavailable(shop.pay("c").await);
    assert_store_says(&shop, StoreErrorKind::Unavailable, fault.says).await;
    if fault.says == MAXCLIENTS {
        let (_, message) = refused(RedisStore::builder(&url)).await;
        assert!(message.contains(fault.says), "{name}: {message}");
    }
    (fault.end)(&place);
    happened(&shop.events, "completed", 2).await;
    assert_eq!(shop.pay("a").await, stored, "{name}");
    assert_eq!(shop.pay("b").await, answer, "{name}");
    assert_eq!(shop.runs(), 2, "{name}");
    assert_eq!(shop.pay("c").await.unwrap().attempt, 1, "{name}");
}

/// Each waits for the deadlines of its calls most of the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_answer_of_a_body_is_stored_when_the_fault_is_over() {
    let mut faults: tokio::task::JoinSet<_> = FAULTS.iter().map(is_survived).collect();
    while let Some(survived) = faults.join_next().await {
        survived.unwrap();
    }
}

/// Leaves the server without memory, or removes its limit.
fn full(server: &RedisServer, bytes: &str) {
    server.cli(&["CONFIG", "SET", "maxmemory", bytes]);
}

#[tokio::test]
async fn a_full_memory_refuses_claims_and_nothing_else() {
    let (server, shop) = Shop::alone_and_hasty().await;
    let stored = shop.pay("a").await;
    let mut completed = None;
    let released = shop.pay_by("released", async |_| {
        completed = Some(shop.pay_while("b", || full(&server, "1")).await);
        Err(Failure::Down)
    });
    let released = released.await;
    let runs = shop.runs();
    assert_unavailable(shop.pay("c").await);
    assert_store_says(
        &shop,
        StoreErrorKind::Full,
        "Redis is out of memory (`maxmemory`)",
    )
    .await;
    // A claim of a released key needs memory as well.
    assert_eq!(released, Err(Failure::Down));
    assert_eq!(shop.events.count("released"), 1);
    assert_unavailable(shop.pay("released").await);
    assert_store_says(&shop, StoreErrorKind::Full, "out of memory").await;
    assert_eq!(shop.pay("a").await, stored);
    assert_eq!(Some(shop.pay("b").await), completed);
    assert_eq!(shop.events.count("unsaved"), 0);
    assert_eq!(shop.runs(), runs);
    full(&server, "0");
    assert_eq!(shop.pay("c").await.unwrap().attempt, 1);
    assert_eq!(shop.pay("released").await.unwrap().attempt, 1);
}

#[tokio::test]
async fn a_replica_replays_and_sends_claims_to_the_primary() {
    let ReplicaPair { primary, replica } = ReplicaPair::start();
    let shop = Shop::open(&primary.url()).await;
    let answer = shop.pay("a").await;
    assert_eq!(primary.cli(&["WAIT", "1", "20000"]), "1");
    let beside = shop.beside_hasty(&replica.url()).await;
    assert_eq!(beside.events.count("warning: Redis role: replica"), 1);
    assert_eq!(beside.pay("a").await, answer);
    let refused = beside.pay("b").await;
    assert_unavailable(refused);
    beside
        .says_unavailable("a replica; connect to the primary")
        .await;
    assert_eq!(beside.runs(), 0);
    // A record that is absent here may exist on the primary.
    let mut request = asks(Owner::random());
    request.needs = Needs::Record;
    let store = RedisStore::connect(&replica.url()).await.unwrap();
    let digest = KeyBuilder::new("absent", 64).key(&1).unwrap();
    let key = RecordKey::new("absent".into(), Operation::new("absent"), digest);
    let absent = store.claim(&key, &request, &unhurried()).await.unwrap_err();
    let said = absent.to_string();
    assert!(said.contains("a replica; connect to the primary"), "{said}");
}
