//! The store under test, with the privileged access of a test.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idem_runtime::store::{RecordKey, Store};

/// A boxed future that is `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store under test, with the privileged access of a test.
///
/// One fixture serves one case: there must be no record under its [`prefix`](Self::prefix), or under a longer prefix.
pub trait Fixture: Send + Sync {
    /// The store. Each call may return another client of the same store.
    fn store(&self) -> Arc<dyn Store>;

    /// The prefix of this fixture's keys.
    fn prefix(&self) -> Arc<str>;

    /// Moves the store's time forward for all keys under the prefix.
    ///
    /// A server whose clock cannot be moved ages the records instead: the remaining life of each is reduced by `by`,
    /// and an expired one is deleted.
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()>;

    /// Writes a value under a key, bypassing the store. Returns `false`, and changes nothing, if this kind of store
    /// cannot hold such a value.
    fn plant<'a>(&'a self, key: &'a RecordKey, plant: Plant) -> BoxFuture<'a, bool>;

    /// Reads the bytes under a key, bypassing the store.
    ///
    /// `None` if there is no live value of bytes.
    fn peek<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Option<Vec<u8>>>;

    /// The most that the store's time advances by itself during a case.
    ///
    /// Zero, the default, is a clock that stands still. Times are tested to the millisecond, less this.
    ///
    /// At most 20 seconds.
    fn drift(&self) -> Duration {
        Duration::ZERO
    }

    /// The time limit of a notification, by the machine's clock.
    ///
    /// After it the store is considered not to notify. A fault of notifications costs it about ten times: 5
    /// seconds, the default, suit a store on the same machine, and a busy server may need 20. While a
    /// [`History`](crate::History) is made shorter, a tenth of it is waited, and the shortest one is then verified.
    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// A fixture of an empty store of this kind with little capacity.
    ///
    /// It holds at most some thousand records of 16 KiB each. `None`, the default, if this kind of store is never full.
    fn scarce(&self) -> BoxFuture<'_, Option<Arc<dyn Fixture>>> {
        Box::pin(async { None })
    }
}

/// A value that [`Fixture::plant`] writes under a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plant {
    /// Bytes that expire.
    Bytes {
        /// The bytes, a record or not.
        bytes: Vec<u8>,
        /// Their life.
        life: Duration,
    },
    /// Bytes without an expiry.
    Immortal {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A value of no record's type, such as a Redis list.
    OtherType,
}
