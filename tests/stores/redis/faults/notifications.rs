//! Notifications of waiters: the scripts, the channel, and the rights that they need.

use bytes::Bytes;
use idem_harness::RespConn;
use idem_runtime::key::KeyDigest;
use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::{
    CompleteReply, Header, Journal, ReadReply, ReleaseReply, Remains, RenewReply, ResolveReply,
    State,
};
use idem_tests::claims::{finished, take};
use idem_tests::shop::started;

use crate::prelude::*;

const LEASE: Duration = Duration::from_mins(1);

fn key() -> RecordKey {
    let digest = KeyDigest::from_bytes([7; 32]);
    RecordKey::new("idem:told".into(), Operation::new("told"), digest)
}

fn owner(number: u8) -> Owner {
    Owner::from_bytes([number; 16])
}

/// A subscriber to the key's channel, and the counter's own connection.
struct Listener {
    listening: RespConn,
    telling: RespConn,
    publish: &'static str,
}

impl Listener {
    fn new(server: &RedisServer, publish: &'static str) -> Self {
        let mut listening = server.connect();
        let reply = listening.command(&["SUBSCRIBE", &key().name()]).unwrap();
        assert!(matches!(reply, Reply::Array(_)), "{reply}");
        let telling = server.connect();
        Self {
            listening,
            telling,
            publish,
        }
    }

    /// Number of notifications since the last call.
    fn told(&mut self) -> usize {
        let end = [self.publish, &key().name(), "the end"];
        self.telling.command(&end).unwrap();
        for told in 0.. {
            let Reply::Array(message) = self.listening.read().unwrap() else {
                panic!("a message has parts");
            };
            assert_eq!(message[1].as_bytes(), Some(key().name().as_bytes()));
            match message[2].as_bytes() {
                Some(b"") => {}
                Some(b"the end") => return told,
                other => panic!("{other:?} tells more than that something changed"),
            }
        }
        unreachable!("a message comes or the connection gives up")
    }
}

async fn claim(store: &RedisStore, number: u8) -> Header {
    let request = ClaimRequest::new(owner(number), LEASE, LEASE * 60);
    take(store, &key(), &request).await
}

fn done(claim: &Header, outcome: OutcomeKind) -> Bytes {
    finished(claim, outcome, b"")
}

/// Marks the current claim as watched, so that its end is notified.
async fn wait(store: &RedisStore) {
    let seen = store.poll(&key()).await.unwrap();
    assert!(matches!(seen, ReadReply::Found { .. }), "{seen:?}");
}

/// Each end of a watched claim is notified once; a command that does not change the record is not.
async fn each_end_is_notified(store: &RedisStore, listener: &mut Listener, often: usize) {
    let first = claim(store, 1).await;
    let renewed = store.renew(&key(), &first).await.unwrap();
    assert_eq!(renewed, RenewReply::Renewed);
    wait(store).await;
    assert_eq!(listener.told(), 0, "a claim, a renewal, and a look");
    let renewed = store.renew(&key(), &first).await.unwrap();
    assert_eq!(renewed, RenewReply::Renewed);
    assert_eq!(claim(store, 1).await.owner, first.owner, "sent again");

    for expected in [often, 0] {
        let released = store
            .release(&key(), &owner(1), Remains::Attempt, None)
            .await
            .unwrap();
        assert_eq!(released, ReleaseReply::Released);
        assert_eq!(listener.told(), expected, "a release, and once more");
    }

    let second = claim(store, 2).await;
    wait(store).await;
    let refused = done(&first, OutcomeKind::Value);
    let refused = store.complete(&key(), None, &refused).await.unwrap();
    assert!(matches!(refused, CompleteReply::Superseded { .. }));
    assert_eq!(listener.told(), 0, "an answer that is refused");
    let unknown = done(&second, OutcomeKind::Unknown);
    for expected in [often, 0] {
        let stored = store.complete(&key(), None, &unknown).await.unwrap();
        assert_eq!(stored, CompleteReply::Stored { late: false });
        assert_eq!(listener.told(), expected, "an answer, and once more");
    }

    let seen = Header::decode(&unknown).unwrap();
    let mut reset = seen;
    reset.state = State::Released;
    reset.owner = owner(9);
    let reset = Bytes::copy_from_slice(&reset.encode());
    for expected in [often, 0] {
        let resolved = store.resolve(&key(), &seen, None, &reset).await.unwrap();
        assert_eq!(resolved, ResolveReply::Resolved);
        assert_eq!(listener.told(), expected, "a resolution, and once more");
    }
}

/// A notification without subscriber costs the server a write.
#[tokio::test]
async fn the_end_of_an_unwatched_claim_is_not_notified() {
    let compares_and_sets = RedisServer::builder().version(Edition::Valkey);
    for server in [RedisServer::start(), compares_and_sets.start()] {
        let store = connect(server.url()).await.unwrap();
        let mut listener = Listener::new(&server, "PUBLISH");
        let first = claim(&store, 1).await;
        store.renew(&key(), &first).await.unwrap();
        store.read(&key()).await.unwrap();
        store
            .release(&key(), &owner(1), Remains::Attempt, None)
            .await
            .unwrap();
        // The watch of the former claim does not apply to this one.
        let second = claim(&store, 2).await;
        wait(&store).await;
        store
            .release(&key(), &second.owner, Remains::Attempt, None)
            .await
            .unwrap();
        assert_eq!(listener.told(), 1);
        let third = claim(&store, 3).await;
        let small = done(&third, OutcomeKind::Tombstone);
        store.complete(&key(), Some(&third), &small).await.unwrap();
        assert_eq!(listener.told(), 0);
    }
}

/// A claim with a journal has no place for a watcher's mark.
#[tokio::test]
async fn the_end_of_a_claim_with_a_journal_is_notified() {
    let (server, store) = started().await;
    let mut listener = Listener::new(&server, "PUBLISH");
    let attempts = |count| {
        let attempt: &[u8] = b"\0\0\0\x01a";
        Journal::new(attempt.repeat(count).into())
    };
    for (number, often) in [(1, 0), (2, 1), (3, 1)] {
        let claim = claim(&store, number).await;
        if often > 0 {
            wait(&store).await;
        }
        let journal = attempts(number.into());
        let released = store
            .release(
                &key(),
                &claim.owner,
                Remains::Attempt,
                Some((&journal, None)),
            )
            .await
            .unwrap();
        assert_eq!(released, ReleaseReply::Released);
        assert_eq!(listener.told(), often, "attempt {number}");
    }
}

/// In a failover a server answers reads only, and calls wait on.
#[tokio::test]
async fn watching_continues_while_writes_are_refused() {
    let (server, store) = started().await;
    claim(&store, 1).await;
    // Loads the mark and a script unknown to the server, which cannot know that the script only reads.
    wait(&store).await;
    wait(&store).await;
    server.cli(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    wait(&store).await;
    server.cli(&["CLIENT", "UNPAUSE"]);
}

#[tokio::test]
async fn each_end_of_a_claim_is_notified_once() {
    let (server, store) = started().await;
    let mut listener = Listener::new(&server, "PUBLISH");
    each_end_is_notified(&store, &mut listener, 1).await;
    // As is a completion of a claim whose record is gone.
    server.cli(&["DEL", &key().name()]);
    let lost = claim(&store, 3).await;
    server.cli(&["DEL", &key().name()]);
    let stored = store
        .complete(&key(), None, &done(&lost, OutcomeKind::Value))
        .await;
    assert_eq!(stored.unwrap(), CompleteReply::Stored { late: true });
    assert_eq!(listener.told(), 1);
}

/// A server without the command acts as if it denied it.
#[tokio::test]
async fn a_user_without_the_right_to_publish_loses_no_write() {
    let (without, _) = DOCUMENTED.split_once(" &").expect("channels come last");
    for (rights, often) in [
        ("", 0),
        (" +publish", 0),
        (" &idem:*", 0),
        (" +publish &other:*", 0),
        (" +publish &idem:*", 1),
    ] {
        let (server, url) = with_user(&format!("resetchannels {without}{rights}"));
        let store = connect(&url).await.unwrap();
        let [warning] = store.warnings().try_into().unwrap();
        let lacks_it = warning.contains("+publish");
        assert!(warning.contains("+subscribe") && lacks_it == (often == 0));
        let mut listener = Listener::new(&server, "PUBLISH");
        each_end_is_notified(&store, &mut listener, often).await;
    }
    let hidden = ["--rename-command", "PUBLISH", "hidden"];
    let server = RedisServer::builder().args(hidden).start();
    let store = connect(server.url()).await.unwrap();
    let mut listener = Listener::new(&server, "hidden");
    each_end_is_notified(&store, &mut listener, 0).await;
}
