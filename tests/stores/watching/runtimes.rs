//! Runtimes that end before the store does.

use std::sync::Arc;

use idem_harness::RedisServer;
use idem_runtime::store::author::Watch;
use idem_tests::shop::until;
use tokio::runtime::{Builder, Runtime};

use super::client::{Client, key, subscribers, told};

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

async fn watch_in(runtime: &Runtime, client: &Arc<Client>, number: u64) -> Watch {
    let client = Arc::clone(client);
    let watching = runtime.spawn(async move { client.watch(&key(number)).await });
    watching.await.unwrap()
}

#[tokio::test]
async fn another_engine_takes_over_when_the_first_ends() {
    let server = RedisServer::start();
    let other = Client::of(&server.url()).await;
    let client = Arc::new(Client::of(&server.url()).await);
    let (first, second, third) = (runtime(), runtime(), runtime());
    let _gone = watch_in(&first, &client, 1).await;
    let mut watch = watch_in(&second, &client, 2).await;
    assert_eq!(subscribers(&server), 1);
    first.shutdown_background();
    // The connection was replaced, so its watches are woken.
    told(&mut watch).await;
    other.pass(&key(2)).await;
    told(&mut watch).await;
    let mut another = watch_in(&third, &client, 3).await;
    second.shutdown_background();
    told(&mut another).await;
    other.pass(&key(2)).await;
    told(&mut watch).await;
    // The server may still read the end of the connection of the second.
    until("one connection is left", || subscribers(&server) == 1).await;
    third.shutdown_background();
}

#[tokio::test]
async fn the_next_watch_connects_when_no_runtime_took_over() {
    let server = RedisServer::start();
    let client = Arc::new(Client::of(&server.url()).await);
    let first = runtime();
    let mut watch = watch_in(&first, &client, 1).await;
    first.shutdown_background();
    until("the connection is gone", || subscribers(&server) == 0).await;
    let second = runtime();
    let mut another = watch_in(&second, &client, 2).await;
    told(&mut watch).await;
    for number in [1, 2] {
        Client::of(&server.url()).await.pass(&key(number)).await;
    }
    told(&mut watch).await;
    told(&mut another).await;
    second.shutdown_background();
}
