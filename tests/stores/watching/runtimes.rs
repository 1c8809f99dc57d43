//! Runtimes that end before the store does.

use std::sync::Arc;

use idem_harness::RedisServer;
use idem_tests::shop::until;
use tokio::runtime::{Builder, Runtime};

use crate::client::{Client, key, store, subscribers, told};

/// A thread of an engine: its runtime lives as long as this value.
struct Engine {
    runtime: Option<Runtime>,
}

impl Engine {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Self {
            runtime: Some(runtime.unwrap()),
        }
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> {
        let work = self.runtime.as_ref().unwrap().spawn(work);
        async { work.await.unwrap() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let runtime = self.runtime.take().unwrap();
        // Dropped on another thread, because a test's own runtime must not be blocked.
        std::thread::spawn(|| drop(runtime)).join().unwrap();
    }
}

async fn watch_in(
    engine: &Engine,
    client: &Arc<Client>,
    number: u64,
) -> idem_runtime::store::Watch {
    let client = Arc::clone(client);
    engine
        .run(async move { client.watch(&key(number)).await })
        .await
}

#[tokio::test]
async fn the_runtime_that_made_the_store_may_end() {
    let server = RedisServer::start();
    let url = server.url();
    let maker = Engine::start();
    let client = Arc::new(maker.run(async move { Client::of(&url).await }).await);
    drop(maker);
    let engine = Engine::start();
    let mut watch = watch_in(&engine, &client, 1).await;
    Client::of(&server.url()).await.pass(&key(1)).await;
    told(&mut watch).await;
}

#[tokio::test]
async fn another_engine_takes_over_when_the_first_ends() {
    let server = RedisServer::start();
    let other = Client::of(&server.url()).await;
    let client = Arc::new(Client(Arc::new(store(&server.url()).await)));
    let (first, second, third) = (Engine::start(), Engine::start(), Engine::start());
    let _gone = watch_in(&first, &client, 1).await;
    let mut watch = watch_in(&second, &client, 2).await;
    assert_eq!(subscribers(&server), 1);
    drop(first);
    // The connection was replaced, so its watches are woken.
    told(&mut watch).await;
    other.pass(&key(2)).await;
    told(&mut watch).await;
    let mut another = watch_in(&third, &client, 3).await;
    drop(second);
    told(&mut another).await;
    other.pass(&key(2)).await;
    told(&mut watch).await;
    assert_eq!(subscribers(&server), 1);
}

#[tokio::test]
async fn the_next_watch_connects_when_no_runtime_took_over() {
    let server = RedisServer::start();
    let client = Arc::new(Client::of(&server.url()).await);
    let first = Engine::start();
    let mut watch = watch_in(&first, &client, 1).await;
    drop(first);
    until("the connection is gone", || subscribers(&server) == 0).await;
    let second = Engine::start();
    let mut another = watch_in(&second, &client, 2).await;
    told(&mut watch).await;
    for number in [1, 2] {
        Client::of(&server.url()).await.pass(&key(number)).await;
    }
    told(&mut watch).await;
    told(&mut another).await;
}
