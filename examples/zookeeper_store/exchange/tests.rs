//! Writes succeed only if nothing has changed, on a real server.

use idem_harness::ZooKeeperServer;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::{Fence, Owner, RecordKey, State};

use super::*;

const ROOT: &str = "/idem";
const HOUR: Duration = Duration::from_hours(1);

struct Zoo {
    client: Client,
    place: Place,
    _server: ZooKeeperServer,
}

impl Zoo {
    async fn start() -> Self {
        let server = ZooKeeperServer::start();
        let digest = KeyDigest::from_bytes([0x2a; 32]);
        let key = RecordKey::new("shop".into(), Operation::new("pay"), digest);
        Self {
            client: Client::connect(&server.addr().to_string()).await.unwrap(),
            place: Place::of(ROOT, &key),
            _server: server,
        }
    }

    async fn sweep(&self) -> usize {
        let swept = sweep(&self.client, ROOT, &self.place.shard).await;
        swept.unwrap()
    }

    async fn look(&self) -> Found {
        look(&self.client, ROOT, &self.place).await.unwrap()
    }

    async fn replace(&self, found: &Found, life: Duration) -> bool {
        let replaced = replace(&self.client, &self.place, found, &write(life)).await;
        replaced.unwrap()
    }
}

fn write(life: Duration) -> Write {
    let header = Header::new(
        State::Released,
        Owner::from_bytes([7; 16]),
        Fence::new(1),
        HOUR,
    );
    Write::header(header, None).living_for(life)
}

#[tokio::test]
async fn of_two_who_have_read_the_same_one_writes() {
    let zoo = Zoo::start().await;
    let (one, two) = (zoo.look().await, zoo.look().await);
    assert_eq!((one.version, two.version), (None, None));
    assert!(zoo.replace(&one, HOUR).await);
    assert!(!zoo.replace(&two, HOUR).await);

    let (one, two) = (zoo.look().await, zoo.look().await);
    assert_eq!((one.version, two.version), (Some(0), Some(0)));
    assert!(zoo.replace(&two, HOUR).await);
    assert!(!zoo.replace(&one, HOUR).await);
}

#[tokio::test]
async fn a_node_that_was_deleted_and_created_again_is_another() {
    let zoo = Zoo::start().await;
    assert!(zoo.replace(&zoo.look().await, Duration::ZERO).await);
    let slow = zoo.look().await;
    assert_eq!(slow.record, Ok(None), "it has expired");
    assert_eq!(zoo.sweep().await, 1);
    assert!(zoo.replace(&zoo.look().await, HOUR).await);
    let quick = zoo.look().await;
    assert_eq!(slow.version, quick.version, "the version does not tell");
    assert!(!zoo.replace(&slow, HOUR).await);
    assert_eq!(zoo.look().await.version, quick.version);
}

#[tokio::test]
async fn a_sweep_deletes_what_has_expired_and_nothing_else() {
    let zoo = Zoo::start().await;
    assert!(zoo.replace(&zoo.look().await, HOUR).await);
    assert_eq!(zoo.sweep().await, 0);
    let node = &zoo.place.node;
    zoo.client
        .set_data(node, b"a stranger", None)
        .await
        .unwrap();
    assert_eq!(zoo.sweep().await, 0);
    let expired = place::data(&write(HOUR).record, Duration::ZERO);
    zoo.client.set_data(node, &expired, None).await.unwrap();
    assert_eq!(zoo.sweep().await, 1);
    assert_eq!(zoo.client.check_stat(node).await, Ok(None));
}
