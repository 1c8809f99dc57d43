use std::any::Any;

use super::*;
use crate::store::redis::link::echo::{bulk, poll_once, said, server, settle};

/// For the tests of both connections.
impl PipelinedConnection {
    pub(in crate::store::redis::link) fn counts(&self) -> [usize; 3] {
        let in_flight = self.queue.in_flight.load(Ordering::SeqCst);
        [
            in_flight,
            self.queue.lock().len(),
            Arc::strong_count(&self.queue),
        ]
    }

    pub(in crate::store::redis::link) fn shared(&self) -> Arc<dyn Any> {
        Arc::clone(&self.queue) as _
    }

    /// The next command is queued, as after a burst.
    pub(in crate::store::redis::link) fn expect_company(&self) {
        self.queue.last_batch.store(2, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_lone_command_after_a_burst_is_sent_at_once() {
    let (here, there) = tokio::io::duplex(1 << 16);
    tokio::spawn(server(there, Arc::default(), Arc::new(true.into())));
    let info = redis::RedisConnectionInfo::default();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connected = MultiplexedConnection::new_with_config(&info, here, config);
    let (connection, driver) = connected.await.unwrap();
    tokio::spawn(driver);
    let connection = Arc::new(PipelinedConnection::new(connection));
    let send = |word| {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.send(&said(word), None, false).await })
    };
    let burst: Vec<_> = (0..10).map(|_| send("burst")).collect();
    for task in burst {
        task.await.unwrap().unwrap();
    }
    let last_batch = || connection.queue.last_batch.load(Ordering::SeqCst);
    assert!(last_batch() > 1);
    // The first command's batch finds that the other senders are gone.
    for _ in 0..2 {
        send("alone").await.unwrap().unwrap();
    }
    assert_eq!(last_batch(), 1);
    let (queue, alone) = (&connection.queue, said("alone"));
    let mut alone = std::pin::pin!(connection.send(&alone, None, false));
    assert!(poll_once(alone.as_mut()).await.is_none());
    assert_eq!(
        (queue.in_flight.load(Ordering::SeqCst), queue.lock().len()),
        (1, 0)
    );
    settle().await;
    assert_eq!(alone.await.unwrap().first, bulk("alone"));
}
