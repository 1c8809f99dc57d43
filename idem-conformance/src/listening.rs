//! Invalidation: a store that supports it notifies listeners when an answer is removed.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};

use super::notified_in_time::in_time;
use super::probe::{B, Probe, RETAIN, done, header, record, request_by, undecided};
use super::resolving::{new, reset, resolved};
use idem_runtime::key::KeyDigest;
use idem_runtime::store::{ClaimReply, Hearing, Listener, OutcomeKind};

cases! {
    15 who_listens_is_told_of_a_reset: transport,
    15 who_listens_is_told_of_every_kind_of_resolution: transport,
    15 who_listens_is_told_of_what_another_client_resolves: transport,
    15 who_listens_is_told_of_many_resolutions: transport,
    15 everybody_who_listens_is_told: transport,
    15 who_listens_is_told_after_others_have_gone: transport,
}

#[derive(Default)]
struct Notifications {
    hearing: Option<Hearing>,
    keys: Vec<KeyDigest>,
    waker: Option<Waker>,
}

/// A listener that caches answers.
#[derive(Default)]
struct NotificationLog(Mutex<Notifications>);

impl NotificationLog {
    fn change(&self, change: impl FnOnce(&mut Notifications)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    async fn until(&self, is_so: impl Fn(&Notifications) -> bool) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.waker = Some(cx.waker().clone());
            if is_so(&state) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits for a notification about the key of this probe.
    async fn is_told(&self, p: &Probe, of: &str) {
        let key = *p.key.digest();
        let notified = in_time(p, self.until(|state| state.keys.contains(&key))).await;
        let patience = p.fixture.patience();
        assert!(notified, "no notification of {of} within {patience:?}");
    }
}

impl Listener for NotificationLog {
    fn hearing(&self, hearing: Hearing) {
        self.change(|state| state.hearing = Some(hearing));
    }

    fn resolved(&self, key: &KeyDigest) {
        self.change(|state| state.keys.push(*key));
    }

    fn warn(&self, _: &str) {}
}

/// Subscribes; from its return on every notification is received. `None`: the store has no notifications, or its
/// server does not allow them, which the contract permits.
async fn listen(p: &Probe) -> Option<Arc<NotificationLog>> {
    let log: Arc<NotificationLog> = Arc::default();
    let listener: Arc<dyn Listener> = log.clone();
    if !p.listen(Arc::downgrade(&listener) as Weak<dyn Listener>) {
        return None;
    }
    let opens = log.until(|state| matches!(state.hearing, Some(Hearing::All | Hearing::Never)));
    assert!(
        in_time(p, opens).await,
        "the store said that it tells, and then not that it does so"
    );
    let state = log.0.lock().unwrap_or_else(PoisonError::into_inner).hearing;
    (state == Some(Hearing::All)).then_some(log)
}

/// Resets an answer that a listener caches.
async fn reset_an_answer(p: &Probe) {
    let seen = header(done(OutcomeKind::Value));
    p.plant(&seen, b"paid", RETAIN).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    resolved(p, &seen, &reset()).await;
}

async fn who_listens_is_told_of_a_reset(p: Probe) {
    let Some(log) = listen(&p).await else { return };
    reset_an_answer(&p).await;
    log.is_told(&p, "a reset").await;
}

async fn who_listens_is_told_of_every_kind_of_resolution(p: Probe) {
    let Some(log) = listen(&p).await else { return };
    let seen = [
        done(OutcomeKind::Value),
        done(OutcomeKind::Error),
        undecided(),
    ];
    for (n, seen) in seen.into_iter().enumerate() {
        let p = p.at(n);
        p.plant(&header(seen), b"", RETAIN).await;
        let found = record(&new(done(OutcomeKind::Value)), b"it landed");
        resolved(&p, &header(seen), &found).await;
        log.is_told(&p, "a resolution").await;
    }
}

async fn who_listens_is_told_of_what_another_client_resolves(p: Probe) {
    let Some(log) = listen(&p).await else { return };
    reset_an_answer(&p.at(1)).await;
    log.is_told(&p.at(1), "a reset by another client").await;
}

async fn who_listens_is_told_of_many_resolutions(p: Probe) {
    let Some(log) = listen(&p).await else { return };
    for n in 0..100 {
        reset_an_answer(&p.at(n)).await;
    }
    for n in 0..100 {
        log.is_told(&p.at(n), "one of a hundred resets").await;
    }
}

async fn everybody_who_listens_is_told(p: Probe) {
    let mut logs = Vec::new();
    for _ in 0..5 {
        let Some(log) = listen(&p).await else { return };
        logs.push(log);
    }
    reset_an_answer(&p).await;
    for log in &logs {
        log.is_told(&p, "a reset").await;
    }
}

async fn who_listens_is_told_after_others_have_gone(p: Probe) {
    for n in 0..5 {
        let Some(gone) = listen(&p).await else { return };
        drop(gone);
        let Some(log) = listen(&p).await else {
            panic!("the store notified, and then did not");
        };
        let p = p.at(n);
        reset_an_answer(&p).await;
        log.is_told(&p, "a reset").await;
    }
}
