//! A store that grants everything and keeps nothing: measures the engine.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use idem_runtime::store::author::{
    Admission, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, Owner, ReadReply,
    ReleaseReply, Remains, RenewReply, ResolveReply, StoreFuture,
};
use idem_runtime::store::{Fence, RecordKey, Store};

#[derive(Debug)]
pub(crate) struct Blank;

impl Store for Blank {
    fn claim<'a>(
        &'a self,
        _: &'a RecordKey,
        _: &'a ClaimRequest,
        admission: &'a Admission,
    ) -> StoreFuture<'a, ClaimReply> {
        admission.sent();
        StoreFuture::ready(Ok(ClaimReply::Granted {
            fence: Fence::new(1),
            attempt: 1,
            fresh: true,
            journal: Journal::default(),
        }))
    }

    fn complete<'a>(
        &'a self,
        _: &'a RecordKey,
        _: Option<&'a Header>,
        _: &'a Bytes,
    ) -> StoreFuture<'a, CompleteReply> {
        StoreFuture::ready(Ok(CompleteReply::Stored { late: false }))
    }

    fn release<'a>(
        &'a self,
        _: &'a RecordKey,
        _: &'a Owner,
        _: Remains,
        _: Option<(&'a Journal, Option<&'a Journal>)>,
    ) -> StoreFuture<'a, ReleaseReply> {
        StoreFuture::ready(Ok(ReleaseReply::Released))
    }

    fn renew<'a>(&'a self, _: &'a RecordKey, _: &'a Header) -> StoreFuture<'a, RenewReply> {
        StoreFuture::ready(Ok(RenewReply::Renewed))
    }

    fn resolve<'a>(
        &'a self,
        _: &'a RecordKey,
        _: &'a Header,
        _: Option<&'a Journal>,
        _: &'a Bytes,
    ) -> StoreFuture<'a, ResolveReply> {
        StoreFuture::ready(Ok(ResolveReply::Resolved))
    }

    fn read<'a>(&'a self, _: &'a RecordKey) -> StoreFuture<'a, ReadReply> {
        StoreFuture::ready(Ok(ReadReply::Absent))
    }
}

/// The output of a call that never waits.
pub(crate) fn at_once<F: Future>(call: F) -> F::Output {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the store answers at once, and so does the engine on it"),
    }
}
