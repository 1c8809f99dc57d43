//! A node of a cluster, which notifies its own shard only.

use idem_harness::{RedisServer, RespConn};
use idem_tests::shop::until;

use crate::client::{Client, hearers, key, told, untold};

/// A cluster of one node.
async fn cluster() -> (RedisServer, RespConn) {
    let server = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let mut admin = server.connect();
    until("the cluster is up", || {
        let info = admin.command(&["CLUSTER", "INFO"]).unwrap();
        info.to_string().contains("cluster_state:ok")
    })
    .await;
    (server, admin)
}

#[tokio::test]
async fn a_shard_is_listened_to() {
    let (server, mut admin) = cluster().await;
    let client = Client::of(&server.url()).await;
    let mut watches = Vec::new();
    for number in 0..50 {
        watches.push(client.watch(&key(number)).await);
    }
    assert!(watches.iter_mut().all(untold));
    for (number, watch) in (0..).zip(&mut watches) {
        client.pass(&key(number)).await;
        told(watch).await;
    }
    drop(watches);
    until("the channel is given up", || {
        hearers(&mut admin, "SHARDNUMSUB", &key(7)) == 0
    })
    .await;
    let mut watch = client.watch(&key(7)).await;
    client.pass(&key(7)).await;
    told(&mut watch).await;
}

#[tokio::test]
async fn a_connection_to_a_shard_that_is_killed_is_made_again() {
    let (server, _admin) = cluster().await;
    let client = Client::of(&server.url()).await;
    let mut watch = client.watch(&key(1)).await;
    assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
    told(&mut watch).await;
    client.pass(&key(1)).await;
    told(&mut watch).await;
}
