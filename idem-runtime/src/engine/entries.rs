//! Inspection of an engine's records.

use std::str::FromStr as _;

use crate::call::engine::Engine;
use crate::call::entries::Entries;
use crate::call::inspect::Entry;
use crate::error::{Error, ErrorKind};
use crate::identity::fingerprint::Fingerprint;
use crate::identity::key::KeyDigest;
use crate::identity::operation::Operation;

impl Engine {
    /// Reads the record under a digest from a log or an event.
    ///
    /// As [`CallBuilder::entry`](crate::CallBuilder::entry). `key` is the text of a [`KeyDigest`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidKey`] if `key` is not the text of a digest; else as
    /// [`CallBuilder::entry`](crate::CallBuilder::entry).
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    pub async fn entry(&self, operation: &str, key: &str) -> Result<Option<Entry>, Error> {
        let operation = Operation::new(operation.to_owned());
        let digest = KeyDigest::from_str(key).map_err(|error| {
            operation
                .error(ErrorKind::InvalidKey)
                .detail(error.to_string())
        })?;
        let (core, plain) = (&self.core, self.core.plain_of(&digest));
        let key = core.record_key(operation, digest);
        Entry::read(core, key, Fingerprint::NONE, plain, &core.defaults).await
    }

    /// Lists the records under the engine's prefix, page by page.
    ///
    /// Use it to find the records that an operator must resolve.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use idem_runtime::{Engine, Error, admin::EntryFilter, store::memory::MemoryStore};
    ///
    /// let engine = Engine::new(MemoryStore::new());
    /// for order in 0..250 {
    ///     let call = engine.operation("payments.pay").key(&order).on_error(idem_runtime::on_error::Unknown);
    ///     // The provider gave no reply to every fifth.
    ///     let paid = call.run(|_| async move {
    ///         if order % 5 == 0 { Err(std::io::Error::other("no reply").into()) } else { Ok(order) }
    ///     });
    /// #   type PayError = Box<dyn std::error::Error + Send + Sync>;
    ///     let _: Result<u32, PayError> = paid.await;
    /// }
    ///
    /// let unknown = || engine.entries().operation("payments.pay").state(EntryFilter::Unknown);
    /// assert_eq!(unknown().count().await?, 50);
    ///
    /// let mut pages = unknown().page_size(20);
    /// while let Some(page) = pages.next_page().await? {
    ///     for entry in page {
    ///         println!("{}: unknown for {:?}", entry.key(), entry.age());
    ///     }
    /// }
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn entries(&self) -> Entries {
        Entries::new(&self.core)
    }
}
