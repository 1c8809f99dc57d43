//! The renewal of a lease, with the steps that the store has.

use crate::lifecycle::lease::Lease;
use crate::record::transition::{AppendReply, RenewReply};
use crate::record::{Header, Journal};
use crate::store::{Store, StoreFuture};

/// A renewal of one lease.
pub(crate) struct Renewal {
    claim: Header,
    /// The part of the journal that the store has confirmed.
    journal: Journal,
}

impl Renewal {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            claim: lease.claim(),
            journal: lease.steps.confirmed(),
        }
    }

    /// Sends it. A record that was lost is written again, with its journal.
    pub(crate) fn send<'a>(
        &'a self,
        store: &'a dyn Store,
        lease: &'a Lease,
    ) -> StoreFuture<'a, RenewReply> {
        let Self { claim, journal } = self;
        if journal.is_empty() {
            return store.renew(&lease.key, claim);
        }
        let known = journal.as_bytes().len();
        StoreFuture::pending(async move {
            Ok(
                match store.append(&lease.key, claim, journal, known).await? {
                    AppendReply::Appended => RenewReply::Renewed,
                    AppendReply::Reasserted => RenewReply::Reasserted,
                    AppendReply::Lost => RenewReply::Lost,
                    AppendReply::Unreadable(error) => RenewReply::Unreadable(error),
                    // It has confirmed this journal.
                    AppendReply::Unsupported => store.renew(&lease.key, claim).await?,
                },
            )
        })
    }
}
