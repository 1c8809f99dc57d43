//! The required ends of calls and connections.

use std::error::Error as StdError;
use std::fmt::{Display, Write};
use std::time::{Duration, Instant};

use idem_harness::HANG_LIMIT;
use idem_runtime::ErrorKind;
use idem_runtime::store::redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::store::{StoreError, StoreErrorKind};

use super::patience::patient;
use super::{Failure, MARKERS, Receipt, Shop};

/// Panics where a message, its causes or its `Debug` have confidential text.
pub fn assert_discreet(error: &(dyn StdError + 'static)) {
    assert_no_marker(&chain(error));
}

/// Panics if the text contains the secret marker.
pub fn assert_no_marker(text: &str) {
    for marker in MARKERS {
        assert!(!text.contains(marker), "{marker} is in: {text}");
    }
}

/// The kind and the message of a failed connection of a store.
pub async fn refused(builder: RedisStoreBuilder) -> (StoreErrorKind, String) {
    let outcome: Result<RedisStore, StoreError> = patient(builder).connect().await;
    let error = outcome.expect_err("the store must not connect");
    assert_discreet(&error);
    (error.kind(), error.to_string())
}

/// Panics unless this server is refused as a store with this message.
pub async fn assert_refused(url: impl AsRef<str>, part: &str) {
    let store = RedisStore::builder(url.as_ref());
    assert_no_store(store, StoreErrorKind::Refused, part).await;
}

/// Panics unless there is no server to connect to, with this message.
pub async fn assert_unreachable(url: impl AsRef<str>, part: &str) {
    let store = RedisStore::builder(url.as_ref());
    assert_no_store(store, StoreErrorKind::Unavailable, part).await;
}

/// Panics unless the store does not connect, with this kind and message.
pub async fn assert_no_store(store: RedisStoreBuilder, kind: StoreErrorKind, part: &str) {
    let (said, message) = refused(store).await;
    assert_eq!(said, kind, "{message}");
    assert_contains(&message, part);
}

/// Panics unless the text contains this.
#[track_caller]
pub fn assert_contains(text: &(impl Display + ?Sized), part: &str) {
    let text = text.to_string();
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

/// Panics unless the text starts with this.
#[track_caller]
pub fn assert_starts(text: &(impl Display + ?Sized), start: &str) {
    let text = text.to_string();
    assert!(text.starts_with(start), "{start:?} does not begin: {text}");
}

/// Panics unless the call was refused because the store is unavailable.
pub fn assert_unavailable(answer: Result<Receipt, Failure>) {
    let error = answer.expect_err("the store is not to be had").refused();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{error}");
    assert!(error.is_retryable());
}

/// Panics unless the call was refused because its store needs repair.
pub fn assert_refused_by_store(answer: Result<Receipt, Failure>) {
    let error = answer.expect_err("the store refuses").refused();
    assert_eq!(error.kind(), &ErrorKind::StoreUnavailable, "{error}");
    assert!(!error.is_retryable(), "{error}");
}

/// All that an error says, for people and for developers.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        write!(text, "; {error}").expect("a string takes anything");
        next = error.source();
    }
    text
}

/// Panics unless the store refuses claims with this kind and message.
pub async fn assert_store_says(shop: &Shop, kind: StoreErrorKind, part: &str) {
    // The first request after a break finds the broken connection, and so do concurrent ones.
    let mut heard = Vec::new();
    let began = Instant::now();
    while began.elapsed() < HANG_LIMIT {
        let (said, message) = shop.store_says().await;
        if said == kind && message.contains(part) {
            return;
        }
        heard.push(message);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    heard.dedup();
    panic!("nobody said {part:?} ({kind:?}), but {heard:#?}");
}
