//! The pending reply of a store.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::StoreError;

/// The pending reply of a store. An immediate reply allocates nothing.
pub struct StoreFuture<'a, T>(Readiness<'a, T>);

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

enum Readiness<'a, T> {
    Ready(Option<Result<T, StoreError>>),
    Pending(Boxed<'a, T>),
}

impl<'a, T> StoreFuture<'a, T> {
    /// A reply that is ready.
    #[must_use]
    pub fn ready(reply: Result<T, StoreError>) -> Self {
        Self(Readiness::Ready(Some(reply)))
    }

    /// A reply to wait for.
    pub fn pending(reply: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self(Readiness::Pending(Box::pin(reply)))
    }
}

impl<T: Unpin> Future for StoreFuture<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Readiness::Ready(reply) => {
                Poll::Ready(reply.take().expect("a finished future is not polled again"))
            }
            Readiness::Pending(reply) => reply.as_mut().poll(cx),
        }
    }
}

debug_fields!([T] StoreFuture<'_, T> {});
