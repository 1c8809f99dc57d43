//! The new primary notifies waiters, also beside an answering old one.

use idem_harness::SentinelSetup;
use idem_runtime::__private::KeyBuilder;
use idem_runtime::key::Operation;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::{RecordKey, Store};
use idem_tests::sentinel_url;
use idem_tests::shop::patiently;
use tokio::task::block_in_place;

use crate::shard::{OPERATION, PREFIX};

/// The user with which the sentinels connect to the servers.
const MEMBER: &str = "idem-member";
const PASSWORD: &str = "a-secret-of-the-tests";

fn key(number: u64) -> RecordKey {
    let digest = KeyBuilder::new(OPERATION, 1024).key(&number).unwrap();
    RecordKey::new(PREFIX.into(), Operation::new(OPERATION), digest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_listen_to_the_new_primary() {
    let _seat = crate::seat().await;
    // The password locks out a sentinel whose user was disabled.
    let setup = SentinelSetup::builder().servers(|server| server.password(PASSWORD));
    let setup = block_in_place(|| setup.start());
    let url = sentinel_url(&setup).replace("://", &format!("://:{PASSWORD}@"));
    let store = RedisStore::connect(url).await.unwrap();
    let first = key(0);
    // Subscribed before the failover.
    let before = store.watch(&first).await.unwrap();
    assert!(before.is_some());
    let new = block_in_place(|| {
        let old = setup.primary();
        old.pause();
        let new = setup.await_new_primary(old);
        old.resume();
        // No sentinel can inform the old primary of its demotion any more.
        old.cli(&["ACL", "SETUSER", MEMBER, "off"]);
        old.cli(&["CLIENT", "KILL", "USER", MEMBER]);
        new
    });
    // Keeps the store busy: each new key is subscribed to, in the end where it is published.
    let listens = async {
        for number in 1.. {
            let (key, mut admin) = (key(number), new.connect());
            if let Ok(Some(mut watch)) = store.watch(&key).await {
                let count = admin.command(&["PUBSUB", "NUMSUB", &key.name()]).unwrap();
                if count.to_string().ends_with('1') {
                    admin.command(&["PUBLISH", &key.name(), "D"]).unwrap();
                    watch.changed().await;
                    break;
                }
            }
        }
    };
    patiently("the new primary is listened to", listens).await;
    drop(before);
}
