//! Watches and listeners: notified by a store that supports them.

use super::notified::{NotificationLog, in_time, listen as subscribe};
use super::probe::{
    A, B, IN_TIME, Probe, RELEASED, RETAIN, answer, done, header, owner, request_by,
};
use super::resolving::{reset, resolved};
use idem_runtime::store::OutcomeKind;
use idem_runtime::store::author::{ClaimReply, Remains, Watch};
use std::sync::Arc;

cases! {
    14 a_watch_is_told_of_a_completion: transport,
    14 every_watch_of_a_key_is_told: transport,
    14 a_key_is_watched_again_after_the_last_has_left: transport,
    15 who_listens_is_told_of_many_resolutions: transport,
    15 everybody_who_listens_is_told: transport,
    15 who_listens_is_told_after_others_have_gone: transport,
}

async fn assert_notified(p: &Probe, watch: &mut Watch, of: &str) {
    let notified = in_time(p.fixture.patience(), watch.changed()).await;
    let patience = p.fixture.patience();
    assert!(notified, "no notification of {of} within {patience:?}");
}

async fn a_watch_is_told_of_a_completion(p: Probe) {
    // A large answer may take another path.
    for (n, body) in [vec![7], vec![7; 100 << 10]].iter().enumerate() {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let Some(mut watch) = p.watch().await else {
            return;
        };
        expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
        let stored = p.complete(&answer(&claim, body)).await;
        assert_eq!(stored, IN_TIME);
        assert_notified(&p, &mut watch, "a completion").await;
        expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    }
}

async fn every_watch_of_a_key_is_told(p: Probe) {
    p.take(&request_by(A)).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        let Some(watch) = p.watch().await else {
            return;
        };
        watches.push(watch);
    }
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    for watch in &mut watches {
        assert_notified(&p, watch, "a release").await;
    }
}

async fn a_key_is_watched_again_after_the_last_has_left(p: Probe) {
    for n in 0..20 {
        p.take(&request_by(owner(n))).await;
        let Some(left) = p.watch().await else {
            return;
        };
        drop(left);
        let Some(mut watch) = p.watch().await else {
            panic!("the store notified, and then did not");
        };
        assert_eq!(p.release(owner(n), Remains::Request).await, RELEASED);
        assert_notified(&p, &mut watch, "a release").await;
    }
}

/// `None`: the store does not notify listeners.
async fn listen(p: &Probe) -> Option<Arc<NotificationLog>> {
    let (store, patience) = (p.fixture.store(), p.fixture.patience());
    subscribe(&*store, &p.fixture.prefix(), patience).await
}

async fn assert_told(log: &NotificationLog, p: &Probe, of: &str) {
    let patience = p.fixture.patience();
    let is_told = log.is_told(patience, *p.key.digest()).await;
    assert!(is_told, "no notification of {of} within {patience:?}");
}

/// Resets an answer that a listener caches.
async fn reset_an_answer(p: &Probe) {
    let seen = header(done(OutcomeKind::Value));
    p.plant(&seen, b"paid", RETAIN).await;
    expect!(p.claim(&request_by(B)).await, ClaimReply::Done { .. } => ());
    resolved(p, &seen, &reset()).await;
}

async fn who_listens_is_told_of_many_resolutions(p: Probe) {
    let Some(log) = listen(&p).await else { return };
    for n in 0..100 {
        reset_an_answer(&p.at(n)).await;
    }
    for n in 0..100 {
        assert_told(&log, &p.at(n), "one of a hundred resets").await;
    }
}

async fn everybody_who_listens_is_told(p: Probe) {
    let mut logs = Vec::new();
    for _ in 0..5 {
        let Some(log) = listen(&p).await else { return };
        logs.push(log);
    }
    let other: Arc<str> = format!("{}2", p.fixture.prefix()).into();
    let _other = subscribe(&*p.fixture.store(), &other, p.fixture.patience()).await;
    reset_an_answer(&p).await;
    for log in &logs {
        assert_told(log, &p, "a reset").await;
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
        assert_told(&log, &p, "a reset").await;
    }
}
