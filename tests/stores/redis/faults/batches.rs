//! Completions that are sent together, which share a script.

use std::ops::Range;

use bytes::Bytes;
use futures_util::future::join_all;
use idem_harness::{Command, Monitor};
use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::{
    CompleteReply, Header, Journal, JournalKind, ReadReply, Record, Remains,
};
use idem_tests::claims::{finished, take};
use idem_tests::shop::patiently;

use crate::key;
use crate::prelude::*;
use crate::relay::Relay;
use crate::start_up_report::user;

const STORED: Result<CompleteReply, StoreErrorKind> = Ok(CompleteReply::Stored { late: false });

/// Claims and their answers, of the keys from `first` on.
struct Claims(Vec<(RecordKey, Header, Bytes)>);

impl Claims {
    async fn of(store: &RedisStore, numbers: Range<usize>) -> Self {
        let claims = numbers.map(async |number| {
            let key = key(number);
            let claim = takes(store, &key).await;
            let record = finished(&claim, OutcomeKind::Value, number.to_string().as_bytes());
            (key, claim, record)
        });
        Self(join_all(claims).await)
    }

    /// Sends all completions at once.
    async fn complete(&self, store: &RedisStore) -> Vec<Result<CompleteReply, StoreErrorKind>> {
        let completions = self.0.iter().map(async |(key, claim, record)| {
            let reply = store.complete(key, Some(claim), record).await;
            reply.map_err(|error| error.kind())
        });
        join_all(completions).await
    }

    async fn assert_stored(&self, store: &RedisStore) {
        for (key, _, record) in &self.0 {
            assert_eq!(there(store, key).await.as_bytes(), record);
        }
    }
}

async fn takes(store: &RedisStore, key: &RecordKey) -> Header {
    take(store, key, &asks(store.new_owner(key))).await
}

async fn there(store: &RedisStore, key: &RecordKey) -> Record {
    match store.read(key).await.unwrap() {
        ReadReply::Found { record, .. } => record,
        other => panic!("{other:?}"),
    }
}

/// A store whose server knows the script.
async fn prepared(url: &str, first: usize) -> RedisStore {
    let store = connect(url).await.unwrap();
    for numbers in [first..first + 10, first + 10..first + 20] {
        let claims = Claims::of(&store, numbers).await;
        assert!(
            claims
                .complete(&store)
                .await
                .iter()
                .all(|reply| *reply == STORED)
        );
    }
    store
}

/// Completions of these keys that meet share one or two scripts.
async fn assert_shared(server: &RedisServer, store: &RedisStore, numbers: Range<usize>) {
    let count = numbers.len();
    let claims = Claims::of(store, numbers).await;
    let mut monitor = server.monitor();
    assert_eq!(claims.complete(store).await, vec![STORED; count]);
    let sizes = sizes(&monitor.commands());
    assert_eq!(sizes.iter().sum::<usize>(), count);
    let most = count.div_ceil(32) + 1;
    assert!(
        sizes.len() <= most && sizes.iter().all(|size| *size <= 32),
        "{sizes:?}"
    );
    claims.assert_stored(store).await;
}

/// The numbers of keys of the completions that clients have sent.
fn sizes(commands: &[Command]) -> Vec<usize> {
    let scripts = commands.iter().filter(|command| {
        !command.is_from_script() && matches!(&*command.name, "EVALSHA" | "EVAL")
    });
    scripts
        .map(|script| script.args[1].parse().unwrap())
        .collect()
}

/// Also after forgotten scripts, a full memory, or repeated answers.
#[tokio::test]
async fn completions_that_meet_share_a_script_of_32_at_most() {
    let server = RedisServer::start();
    let store = prepared(&server.url(), 1_000).await;
    assert_shared(&server, &store, 0..100).await;
    let claims = Claims::of(&store, 100..120).await;
    for _ in 0..2 {
        // As the owners do whose callers have left.
        assert_eq!(claims.complete(&store).await, [STORED; 20]);
    }
    assert_shared(&server, &store, 120..140).await;
    let claims = Claims::of(&store, 140..160).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(claims.complete(&store).await, [STORED; 20]);
    claims.assert_stored(&store).await;
    let warm = Claims::of(&store, 160..180).await;
    assert_eq!(warm.complete(&store).await, [STORED; 20]);
    assert_shared(&server, &store, 180..200).await;
    let claims = Claims::of(&store, 200..220).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut monitor = server.monitor();
    assert_eq!(claims.complete(&store).await, [STORED; 20]);
    assert!(sizes(&monitor.commands()).len() <= 2);
    claims.assert_stored(&store).await;
}

/// Every other state of a record is decided as without a batch.
#[tokio::test]
async fn each_completion_has_its_own_outcome() {
    let server = RedisServer::start();
    let store = prepared(&server.url(), 1_000).await;
    let claims = Claims::of(&store, 0..11).await;
    let name = |number: usize| claims.0[number].0.name();
    let watch = store.watch(&claims.0[1].0).await.unwrap();
    let mut watch = watch.expect("the server has notifications");
    server.cli(&["SETRANGE", &name(1), "1", "W"]);
    server.cli(&["DEL", &name(2)]);
    server.cli(&["DEL", &name(3)]);
    server.cli(&["LPUSH", &name(3), "a list"]);
    server.cli(&["SET", &name(4), "no record of idem", "PX", "60000"]);
    server.cli(&["DEL", &name(5)]);
    let successor = takes(&store, &claims.0[5].0).await;
    server.cli(&["DEL", &name(6)]);
    let winner = takes(&store, &claims.0[6].0).await;
    let won = finished(&winner, OutcomeKind::Value, b"won");
    let stored = store.complete(&claims.0[6].0, Some(&winner), &won).await;
    assert_eq!(stored.unwrap(), CompleteReply::Stored { late: false });

    let mut monitor = server.monitor();
    let replies = claims.complete(&store).await;
    assert!(sizes(&monitor.commands()).iter().any(|size| *size > 4));
    for number in [0, 1, 7, 8, 9, 10] {
        assert_eq!(replies[number], STORED, "{number}");
    }
    assert_eq!(replies[2], Ok(CompleteReply::Stored { late: true }));
    for number in [3, 4] {
        let reply = &replies[number];
        assert!(
            matches!(reply, Ok(CompleteReply::Unreadable(_))),
            "{reply:?}"
        );
    }
    let reply = &replies[5];
    assert!(
        matches!(reply, Ok(CompleteReply::Superseded { .. })),
        "{reply:?}"
    );
    let reply = &replies[6];
    assert!(
        matches!(reply, Ok(CompleteReply::Adopted { record, .. }) if record.header.owner == winner.owner),
        "{reply:?}"
    );
    assert_eq!(server.cli(&["TYPE", &name(3)]), "list");
    assert_eq!(server.cli(&["GET", &name(4)]), "no record of idem");
    let running = there(&store, &claims.0[5].0).await;
    assert_eq!(running.header.owner, successor.owner);
    // The end of the watched one was published.
    patiently("the watcher is notified", watch.changed()).await;
}

#[tokio::test]
async fn a_user_without_the_right_to_mget_completes_one_by_one() {
    let (server, url) = with_user(DOCUMENTED);
    let store = prepared(&url, 1_000).await;
    let claims = Claims::of(&store, 0..20).await;
    let mut monitor = server.monitor();
    assert_eq!(claims.complete(&store).await, [STORED; 20]);
    assert_eq!(sizes(&monitor.commands()), [1; 20]);
    claims.assert_stored(&store).await;
    user(&server, &format!("{DOCUMENTED} +mget"));
    let store = prepared(&url, 2_000).await;
    assert_shared(&server, &store, 100..120).await;
    // The right is withdrawn, in the middle of the work.
    let claims = Claims::of(&store, 200..220).await;
    server.cli(&["ACL", "SETUSER", "app", "-mget"]);
    assert_eq!(claims.complete(&store).await, [STORED; 20]);
    claims.assert_stored(&store).await;
}

#[tokio::test]
async fn behind_a_proxy_that_routes_by_the_first_key_completions_soon_go_alone() {
    let servers = [RedisServer::start(), RedisServer::start()];
    for server in &servers {
        // Both know the scripts.
        prepared(&server.url(), 1_000).await;
    }
    let relay = Relay::start(&[&servers[0], &servers[1]]);
    let store = connect(format!("redis://{}", relay.addr())).await.unwrap();
    let mut monitors = [servers[0].monitor(), servers[1].monitor()];
    let mut sent = Vec::new();
    for first in [2_000, 3_000, 4_000] {
        let claims = Claims::of(&store, first..first + 20).await;
        let mut commands = || monitors.each_mut().map(Monitor::commands);
        commands();
        assert_eq!(claims.complete(&store).await, [STORED; 20]);
        sent.push(commands().map(|commands| sizes(&commands)));
        claims.assert_stored(&store).await;
    }
    let [source, missed, alone] = sent.try_into().unwrap();
    assert_eq!(source.concat(), [1; 20]);
    assert!(missed.concat().iter().any(|size| *size > 1), "{missed:?}");
    assert_eq!(alone.concat(), [1; 20]);
    assert!(alone.iter().all(|sizes| !sizes.is_empty()), "{alone:?}");
}

/// The script reads all records before it writes the first one.
#[tokio::test]
async fn the_first_of_two_completions_of_a_claim_counts() {
    let server = RedisServer::start();
    let store = prepared(&server.url(), 1_000).await;
    let mut claims = Claims::of(&store, 0..10).await;
    let (key, claim, first) = claims.0[4].clone();
    for outcome in [OutcomeKind::Unknown, OutcomeKind::Value] {
        let again = finished(&claim, outcome, b"another");
        claims.0.push((key.clone(), claim, again));
    }
    let mut monitor = server.monitor();
    assert_eq!(claims.complete(&store).await, [STORED; 12]);
    assert!(sizes(&monitor.commands()).iter().any(|size| *size > 4));
    assert_eq!(there(&store, &key).await.as_bytes(), &first);
}

/// The script of batches would leave it to the other one.
#[tokio::test]
async fn a_claim_with_a_journal_is_completed_alone() {
    let server = RedisServer::start();
    let store = prepared(&server.url(), 1_000).await;
    let mut claims = Claims::of(&store, 0..10).await;
    let (key, claim, _) = &claims.0[4];
    let journal = Journal::new(Bytes::from_static(b"\0\0\0\x01a"));
    let released =
        (store.release(key, &claim.owner, Remains::Attempt, Some((&journal, None)))).await;
    released.unwrap();
    let mut request = asks(store.new_owner(key));
    request.max_attempts = None;
    let mut claim = take(&store, key, &request).await;
    claim.journal = JournalKind::Attempts;
    assert_eq!(there(&store, key).await.header.journal, claim.journal);
    let mut done = claim;
    done.journal = JournalKind::None;
    let record = finished(&done, OutcomeKind::Value, b"4");
    claims.0[4] = (key.clone(), claim, record);
    let mut monitor = server.monitor();
    assert_eq!(claims.complete(&store).await, [STORED; 10]);
    assert_eq!(sizes(&monitor.commands()).iter().sum::<usize>(), 10);
    claims.assert_stored(&store).await;
}

#[tokio::test]
async fn a_completion_that_the_server_refuses_fails_alone() {
    let server = RedisServer::start();
    let store = prepared(&server.url(), 1_000).await;
    let mut claims = Claims::of(&store, 0..20).await;
    let (_, claim, record) = &mut claims.0[4];
    let mut expired = *claim;
    expired.retain = Duration::ZERO;
    *record = finished(&expired, OutcomeKind::Value, b"no life");
    let mut monitor = server.monitor();
    let mut replies = claims.complete(&store).await;
    assert!(replies.remove(4).is_err());
    assert_eq!(replies, [STORED; 19]);
    assert!(sizes(&monitor.commands()).len() <= 3);
    claims.0.remove(4);
    claims.assert_stored(&store).await;
    // Others still share a script.
    assert_shared(&server, &store, 20..40).await;
}
