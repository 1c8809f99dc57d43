//! A store that forwards its operations.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::env::observer::Observer;
use crate::identity::fingerprint::Fingerprint;
use crate::store::arc::each_operation;
#[cfg(feature = "_sql")]
use crate::store::sql::Sql;
use crate::store::{
    Admission, AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, ListReply,
    ListRequest, Listener, Owner, ReadReply, Record, RecordKey, ReleaseReply, Remains, RenewReply,
    ResolveReply, Store, StoreFuture, Watch,
};

/// Turns each operation of a store into a forwarded, overridable one.
macro_rules! forward {
    ($(
        $(#[$attribute:meta])*
        fn $operation:ident $(<$life:lifetime>)? (&$($lives:lifetime)? self $(, $given:ident: $of:ty)*)
            $(-> $reply:ty)?;
    )+) => {
        /// A [`Store`] that forwards to [another one](Self::inner).
        ///
        /// Every operation is forwarded unless it is overridden. For stores of tests that count, delay or record
        /// operations.
        ///
        /// Each operation is forwarded as itself: an engine that waits reads by `poll`, so that an implementation of only
        /// `read` is not called then; override both. An answer that is `at_hand` comes without a claim, and calls in a
        /// transaction of the caller's go to the database past all of these.
        ///
        /// ```
        /// use idem_runtime::testing::Forward;
        /// use idem_runtime::store::memory::MemoryStore;
        /// use idem_runtime::store::author::{Header, RenewReply, StoreFuture};
        /// use idem_runtime::store::{RecordKey, Store};
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
            /// The store that the operations are forwarded to.
            fn inner(&self) -> &dyn Store;

            $(
                #[doc = concat!("As [`Store::", stringify!($operation), "`].")]
                $(#[$attribute])*
                fn $operation $(<$life>)? (&$($lives)? self $(, $given: $of)*) $(-> $reply)? {
                    self.inner().$operation($($given),*)
                }
            )+
        }

        // A new operation of stores must be added here, or clippy fails.
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

each_operation!(forward);
