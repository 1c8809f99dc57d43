//! Subscription to the sentinels' failover messages.
//!
//! A primary that is cut off does not know that another server has taken its place, and goes on granting claims to its
//! clients. The sentinels know, and publish it at once.

use std::sync::Weak;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::election::Election;
use super::query::query;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::limits::Limits;
use crate::store::redis::subscriber_connection::SubscriberConnection;

/// Pause before a sentinel that does not answer is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Channels of failover messages.
///
/// The sentinel that leads a failover publishes on the first as soon as the new primary is promoted; all of
/// them publish on the second when the replicas follow it.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// Silence after which the sentinel is queried: a network may have dropped the connection, and
/// messages published without one are lost.
const QUIET: Duration = Duration::from_secs(5);

/// A connection to each sentinel, on the runtime of the first connection.
#[derive(Default)]
pub(super) struct FailoverListeners(Vec<AbortHandle>);

impl FailoverListeners {
    /// Starts the listeners, unless they run. The runtime on which they were started may be gone.
    pub(super) fn start(
        &mut self,
        election: &Weak<Election>,
        sentinels: &[Endpoint],
        limits: Limits,
    ) {
        if !self.0.is_empty() && self.0.iter().all(|task| !task.is_finished()) {
            return;
        }
        self.stop();
        for sentinel in sentinels {
            let listener = listen(election.clone(), sentinel.clone(), limits);
            self.0.push(tokio::spawn(listener).abort_handle());
        }
    }

    fn stop(&mut self) {
        for task in self.0.drain(..) {
            task.abort();
        }
    }
}

impl Drop for FailoverListeners {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn listen(election: Weak<Election>, sentinel: Endpoint, limits: Limits) {
    loop {
        if let Some(mut connection) = subscribe(&sentinel, limits).await {
            loop {
                // Before the first message, after each message, and after each silence.
                if !catch_up(&election, &sentinel, limits).await {
                    break;
                }
                match timeout(QUIET, connection.message()).await {
                    Ok(Some(message)) => {
                        let Some(election) = election.upgrade() else {
                            return;
                        };
                        election.announce(&String::from_utf8_lossy(&message.payload));
                    }
                    Ok(None) => break,
                    Err(_) => {}
                }
            }
        }
        sleep(PAUSE).await;
        if election.strong_count() == 0 {
            return;
        }
    }
}

/// Queries the sentinel on a connection of its own. Returns whether it answers.
async fn catch_up(election: &Weak<Election>, sentinel: &Endpoint, limits: Limits) -> bool {
    let Some(service) = election
        .upgrade()
        .map(|election| election.service().to_owned())
    else {
        return false;
    };
    let asked = timeout(
        limits.connect + limits.response,
        query(sentinel.clone(), service, limits),
    );
    match (asked.await, election.upgrade()) {
        (Ok(Ok(primary)), Some(election)) => {
            election.observe(&primary);
            true
        }
        _ => false,
    }
}

async fn subscribe(sentinel: &Endpoint, limits: Limits) -> Option<SubscriberConnection> {
    let opened = SubscriberConnection::open(sentinel, limits).await.ok()?;
    let connection = opened.ok()?;
    for channel in CHANNELS {
        connection.subscribe(channel).await.ok()?;
    }
    Some(connection)
}
