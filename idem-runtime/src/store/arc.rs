//! `Store` for `Arc`: every operation is forwarded to the inner store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

#[cfg(feature = "_sql")]
use super::sql::Sql;
use super::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply,
    ListRequest, Listener, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, Store, StoreFuture, Watch,
};
use crate::env::observer::Observer;
use crate::identity::fingerprint::Fingerprint;

/// Passes the signatures of the store operations to another macro.
macro_rules! each_operation {
    ($macro:ident) => {
        $macro! {
            fn claim<'a>(
                &'a self, key: &'a RecordKey, request: &'a ClaimRequest, admission: &'a Admission
            ) -> StoreFuture<'a, ClaimReply>;
            fn new_owner(&self, key: &RecordKey) -> Owner;
            fn at_hand(&self, key: &RecordKey, asked: Fingerprint) -> Option<(Record, Duration)>;
            fn complete<'a>(
                &'a self, key: &'a RecordKey, claim: Option<&'a Header>, record: &'a Bytes
            ) -> StoreFuture<'a, CompleteReply>;
            fn release<'a>(
                &'a self, key: &'a RecordKey, owner: &'a Owner, remains: Remains,
                journals: Option<(&'a Journal, Option<&'a Journal>)>
            ) -> StoreFuture<'a, ReleaseReply>;
            fn renew<'a>(&'a self, key: &'a RecordKey, claim: &'a Header) -> StoreFuture<'a, RenewReply>;
            fn keeps_journals(&self) -> bool;
            fn append<'a>(
                &'a self, key: &'a RecordKey, claim: &'a Header, journal: &'a Journal, known: usize
            ) -> StoreFuture<'a, AppendReply>;
            fn resolve<'a>(
                &'a self, key: &'a RecordKey, seen: &'a Header, journal: Option<&'a Journal>, record: &'a Bytes
            ) -> StoreFuture<'a, ResolveReply>;
            fn watch<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Watch>>;
            fn listen(&self, prefix: &Arc<str>, listener: Weak<dyn Listener>) -> bool;
            fn read<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply>;
            fn poll<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, ReadReply>;
            fn list<'a>(&'a self, request: &'a ListRequest) -> StoreFuture<'a, ListReply>;
            fn observed_by(&self, observer: &Arc<dyn Observer>);
            fn max_record_bytes(&self) -> Option<usize>;
            fn keeps_forever(&self) -> bool;
            fn trusts_copies(&self) -> bool;
            #[doc(hidden)]
            fn reset_pause(&self) -> Duration;
            #[cfg(feature = "_sql")]
            #[doc(hidden)]
            fn recall<'a>(
                &'a self, key: &'a RecordKey, asked: Fingerprint
            ) -> StoreFuture<'a, Option<(Record, Duration)>>;
            #[cfg(feature = "_sql")]
            #[doc(hidden)]
            fn sql(&self) -> Option<Sql<'_>>;
            fn warnings(&self) -> Vec<String>;
        }
    };
}

macro_rules! pass_on {
    ($(
        $(#[$attribute:meta])*
        fn $operation:ident $(<$life:lifetime>)? (&$($lives:lifetime)? self $(, $given:ident: $of:ty)*)
            $(-> $reply:ty)?;
    )+) => {
        /// `Arc<dyn Store>` is a store, for a choice at start-up.
        ///
        /// ```
        /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        /// use std::sync::Arc;
        /// use idem_runtime::{Engine, Error, store::{Store, memory::MemoryStore}};
        ///
        /// let store: Arc<dyn Store> = match std::env::var("STORE").as_deref() {
        ///     Ok("memory") | Err(_) => Arc::new(MemoryStore::new()),
        ///     Ok(other) => panic!("no store of this name: {other}"),
        /// };
        /// let engine = Engine::new(store);
        /// for _ in 0..2 {
        ///     let paid = engine.operation("pay").key(&7).run(|_| async { Ok::<_, Error>(1) });
        ///     assert_eq!(paid.await, Ok(1));
        /// }
        /// # });
        /// ```
        // A new operation of `Store` must be added to the list above: clippy fails otherwise.
        #[deny(clippy::missing_trait_methods)]
        impl<S: Store + ?Sized> Store for Arc<S> {
            $(
                $(#[$attribute])*
                fn $operation $(<$life>)? (&$($lives)? self $(, $given: $of)*) $(-> $reply)? {
                    (**self).$operation($($given),*)
                }
            )+
        }
    };
}

each_operation!(pass_on);

#[cfg(feature = "testing")]
pub(crate) use each_operation;
