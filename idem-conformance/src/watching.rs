//! Watches: a store that supports them notifies the watcher of a key.

use super::notified_in_time::in_time;
use super::probe::{
    A, B, IN_TIME, LEASE, Probe, RELEASED, REMAINS, RETAIN, TTL, answer, ask_to_find_out, done,
    header, owner, pending, record, request_by,
};
use idem_runtime::store::{
    ClaimReply, Needs, OutcomeKind, Owner, ReadReply, Remains, RenewReply, ResolveReply, State,
    Watch,
};

cases! {
    14 a_watch_is_told_of_a_completion: transport,
    14 a_watch_is_told_of_a_release: transport,
    14 a_watch_is_told_of_a_resolution: transport,
    14 every_watch_of_a_key_is_told: transport,
    14 a_key_is_watched_again_after_the_last_has_left: transport,
    14 a_watch_is_told_of_what_happened_before_it_asked: transport,
    14 a_watch_is_told_of_each_claim_that_a_look_has_seen: transport,
    14 a_watch_is_told_of_a_body_that_starts_after_finding_out: transport,
    14 a_look_of_who_waits_changes_nothing_for_others: transport,
    14 many_keys_are_watched_at_once: transport,
}

async fn assert_notified(p: &Probe, watch: &mut Watch, of: &str) {
    let notified = in_time(p, watch.changed()).await;
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

async fn a_watch_is_told_of_a_release(p: Probe) {
    for (n, remains) in REMAINS.into_iter().enumerate() {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        let Some(mut watch) = p.watch().await else {
            return;
        };
        assert_eq!(p.release(A, remains).await, RELEASED);
        assert_notified(&p, &mut watch, "a release").await;
        expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ());
    }
}

async fn a_watch_is_told_of_a_resolution(p: Probe) {
    for (n, seen) in [done(OutcomeKind::Unknown), pending()]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        let seen = header(seen);
        // Long ago, so that a claim has lapsed.
        p.plant(&seen, b"", seen.retain / 2).await;
        let Some(mut watch) = p.watch().await else {
            return;
        };
        let found = with!(seen, state: done(OutcomeKind::Value), owner: Owner::from_bytes(*b"who found it out"), retain: TTL);
        let resolved = p.resolve(&seen, &record(&found, b"it landed")).await;
        assert_eq!(resolved, ResolveReply::Resolved);
        assert_notified(&p, &mut watch, "a resolution").await;
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

async fn a_watch_is_told_of_what_happened_before_it_asked(p: Probe) {
    p.take(&request_by(A)).await;
    let (Some(mut first), Some(mut second)) = (p.watch().await, p.watch().await) else {
        return;
    };
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    assert_notified(&p, &mut first, "a release").await;
    // It was in transit before any call here waited for it.
    assert_notified(&p, &mut second, "a release").await;
    assert_eq!(p.header().await.state, State::Released);
}

async fn a_watch_is_told_of_each_claim_that_a_look_has_seen(p: Probe) {
    p.take(&request_by(A)).await;
    let Some(mut watch) = p.watch().await else {
        return;
    };
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    assert_notified(&p, &mut watch, "a release").await;
    let claim = p.take(&request_by(B)).await;
    expect!(p.poll().await, ReadReply::Found { .. } => ());
    expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { .. } => ()); // sent again
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    let stored = p.complete(&answer(&claim, b"done")).await;
    assert_eq!(stored, IN_TIME);
    assert_notified(&p, &mut watch, "a completion").await;
}

/// The watcher has read only the reconciling claim, and not that of the body, when the body completes.
async fn a_watch_is_told_of_a_body_that_starts_after_finding_out(p: Probe) {
    for (n, needs) in [Needs::Verdict, Needs::Nothing].into_iter().enumerate() {
        let p = p.at(n);
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        p.look_into(&ask_to_find_out(B)).await;
        let Some(mut watch) = p.watch().await else {
            return;
        };
        expect!(p.poll().await, ReadReply::Found { .. } => ());
        let start = with!(request_by(B), needs: needs);
        let claim = p.take(&start).await;
        let stored = p.complete(&answer(&claim, b"done")).await;
        assert_eq!(stored, IN_TIME);
        assert_notified(&p, &mut watch, "a completion").await;
    }
}

/// A watched claim is unaffected: it is sent again, renewed, and ends in each way; and one that lapsed is taken over or
/// resolved.
async fn a_look_of_who_waits_changes_nothing_for_others(p: Probe) {
    let ends = 5;
    for n in 0..ends {
        let p = p.at(n);
        let claim = p.take(&request_by(A)).await;
        let _watch = p.watch().await;
        expect!(p.poll().await, ReadReply::Found { .. } => ());
        let seen = expect!(p.read().await, ReadReply::Found { record, .. } => record.header);
        assert_eq!(seen, claim);
        let again =
            expect!(p.claim(&request_by(A)).await, ClaimReply::Granted { fence, .. } => fence);
        assert_eq!(again, claim.fence);
        expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
        expect!(p.poll().await, ReadReply::Found { .. } => ());
        match n {
            0 => {
                let stored = p.complete(&answer(&claim, b"done")).await;
                assert_eq!(stored, IN_TIME);
            }
            1 => {
                let stored = p.complete_claim(&claim, &answer(&claim, b"done")).await;
                assert_eq!(stored, IN_TIME);
            }
            2 => {
                assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
                assert_eq!(p.header().await.attempts, 1);
            }
            3 => {
                p.advance(LEASE).await;
                let next = p.take(&request_by(B)).await;
                assert_eq!(next.attempts, 2);
                assert!(next.fence > claim.fence);
                let late = p.complete(&answer(&claim, b"late")).await;
                superseded!(late);
            }
            _ => {
                p.advance(LEASE).await;
                let found = with!(claim, state: done(OutcomeKind::Value), owner: Owner::from_bytes(*b"who found it out"));
                let resolved = p.resolve(&claim, &record(&found, b"it landed")).await;
                assert_eq!(resolved, ResolveReply::Resolved);
            }
        }
    }
}

async fn many_keys_are_watched_at_once(p: Probe) {
    let mut watches = Vec::new();
    for n in 0..200 {
        let p = p.at(n);
        p.take(&request_by(A)).await;
        let Some(watch) = p.watch().await else {
            return;
        };
        watches.push((p, watch));
    }
    for (p, watch) in watches.iter_mut().rev() {
        assert_eq!(p.release(A, Remains::Request).await, RELEASED);
        assert_notified(p, watch, "a release").await;
    }
}
