//! A store that passes on what it is asked.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::fingerprint::Fingerprint;
use crate::observer::Observer;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::store::sql::Sql;
use crate::store::{
    ClaimReply, ClaimRequest, CompleteReply, Header, Listener, Owner, ReadReply, Record, RecordKey,
    ReleaseReply, RenewReply, ResolveReply, Store, StoreFuture, Watch,
};

/// Makes of each operation of a store one that is passed on, and may be another.
macro_rules! operations {
    ($(
        $(#[$attribute:meta])*
        fn $operation:ident $(<$life:lifetime>)? (&$($lives:lifetime)? self $(, $given:ident: $of:ty)*)
            $(-> $reply:ty)?;
    )+) => {
        /// A [`Store`] in front of [another one](Self::inner): every operation is passed on, but for
        /// those that it does itself. For stores of tests that count, delay or write down.
        ///
        /// Each is passed on as what it is: an engine completes by `complete_claim` and, while it waits, reads
        /// by `glance`, and whoever does `complete` or `read` itself is not asked then; it does both. An answer
        /// that is `at_hand` comes without a claim, and calls in a transaction of the caller's go to the
        /// database past all of these.
        ///
        /// ```
        /// use idem_runtime::conformance::Forward;
        /// use idem_runtime::store::memory::MemoryStore;
        /// use idem_runtime::store::{Header, RecordKey, RenewReply, Store, StoreFuture};
        ///
        /// /// Its leases are not renewed.
        /// #[derive(Debug)]
        /// struct Lapsing(MemoryStore);
        ///
        /// impl Forward for Lapsing {
        ///     fn inner(&self) -> &dyn Store {
        ///         &self.0
        ///     }
        ///
        ///     fn renew<'a>(&'a self, _: &'a RecordKey, _: &'a Header) -> StoreFuture<'a, RenewReply> {
        ///         StoreFuture::ready(Ok(RenewReply::Lost))
        ///     }
        /// }
        ///
        /// let engine = idem_runtime::Engine::new(Lapsing(MemoryStore::new()));
        /// ```
        pub trait Forward: Send + Sync + fmt::Debug + 'static {
            /// The store that is asked.
            fn inner(&self) -> &dyn Store;

            $(
                #[doc = concat!("As [`Store::", stringify!($operation), "`].")]
                $(#[$attribute])*
                fn $operation $(<$life>)? (&$($lives)? self $(, $given: $of)*) $(-> $reply)? {
                    self.inner().$operation($($given),*)
                }
            )+
        }

        // A new operation of stores is one of these, or clippy says so.
        #[deny(clippy::missing_trait_methods)]
        impl<F: Forward> Store for F {
            $(
                $(#[$attribute])*
                fn $operation $(<$life>)? (&$($lives)? self $(, $given: $of)*) $(-> $reply)? {
                    Forward::$operation(self $(, $given)*)
                }
            )+
        }
    };
}

operations! {
    fn claim<'a>(&'a self, key: &'a RecordKey, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimReply>;
    fn new_owner(&self, key: &RecordKey) -> Owner;
    fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)>;
    fn complete<'a>(&'a self, key: &'a RecordKey, record: &'a Bytes) -> StoreFuture<'a, CompleteReply>;
    fn complete_claim<'a>(
        &'a self, key: &'a RecordKey, claim: &'a Header, record: &'a Bytes
    ) -> StoreFuture<'a, CompleteReply>;
    fn release<'a>(
        &'a self, key: &'a RecordKey, owner: &'a Owner, count: bool
    ) -> StoreFuture<'a, ReleaseReply>;
    fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply>;
    fn resolve<'a>(
        &'a self, key: &'a RecordKey, seen: &'a Header, record: &'a Bytes
    ) -> StoreFuture<'a, ResolveReply>;
    fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>>;
    fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool;
    fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply>;
    fn glance<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply>;
    fn observed_by(&self, observer: &Arc<dyn Observer>);
    fn max_record_bytes(&self) -> Option<usize>;
    fn keeps_forever(&self) -> bool;
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[doc(hidden)]
    fn recall<'a>(
        &'a self, key: &'a RecordKey, asked: Fingerprint
    ) -> StoreFuture<'a, Option<(Record, Duration)>>;
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[doc(hidden)]
    fn sql(&self) -> Option<Sql<'_>>;
    fn warnings(&self) -> Vec<String>;
}
