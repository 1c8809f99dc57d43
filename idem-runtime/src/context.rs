//! What a body can ask about the call that it runs for.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::key::KeyDigest;
use crate::operation::{Operation, RecordKey};
use crate::record::Fence;

tokio::task_local! {
    static CONTEXT: Context;
}

/// The call that a body runs for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context(Arc<Call>);

#[derive(Debug)]
struct Call {
    key: RecordKey,
    fence: Fence,
    attempt: u16,
}

/// The call whose body asks.
///
/// # Panics
///
/// Outside of an idempotent body. A task that a body spawns is outside; pass the context on, or ask
/// with [`try_context`].
#[must_use]
pub fn context() -> Context {
    try_context().expect("`idem_runtime::context()` is asked inside an `#[idempotent]` body")
}

/// The call whose body asks, or `None` outside of an idempotent body.
#[must_use]
pub fn try_context() -> Option<Context> {
    CONTEXT.try_with(Clone::clone).ok()
}

impl Context {
    pub(crate) fn new(key: RecordKey, fence: Fence, attempt: u16) -> Self {
        Self(Arc::new(Call {
            key,
            fence,
            attempt,
        }))
    }

    pub(crate) async fn scope<F: Future>(self, body: F) -> F::Output {
        CONTEXT.scope(self, body).await
    }

    /// The name of what is done.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        self.0.key.operation()
    }

    /// The digest of operation, scope and key: what the record is named by. Safe to log.
    #[must_use]
    pub fn key(&self) -> &KeyDigest {
        self.0.key.digest()
    }

    /// Which attempt this is, starting at 1. An attempt that gave the key back in good order is not
    /// counted.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.0.attempt
    }

    /// A number that grows with every claim of this key. A downstream system that remembers the
    /// highest one refuses a late write of an overtaken body. It does not stop a second effect;
    /// [`derive_key`](Self::derive_key) does.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// The idempotency key to send with a downstream call: 43 characters, the same for every attempt
    /// of this call, another for every label. With it the other side sees a repeat as a repeat.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, store::memory::MemoryStore, Error};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// let key = engine
    ///     .operation("payments.pay")
    ///     .key("order-7")
    ///     .run(|cx| async move { Ok::<_, Error>(cx.derive_key("stripe.charge")) })
    ///     .await?;
    /// assert_eq!(key.len(), 43);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn derive_key(&self, label: &str) -> String {
        let mut hash = Sha256::new();
        // The first two parts have fixed lengths, so no two inputs run together.
        hash.update(b"idem derived key 1\0");
        hash.update(self.key().as_bytes());
        hash.update(label.as_bytes());
        let mut text = String::with_capacity(43);
        KeyDigest::from_bytes(hash.finalize().into()).text(&mut text);
        text
    }
}
