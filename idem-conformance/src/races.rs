//! Concurrent operations: each operation on a key is atomic.

use super::listings::list;
use super::probe::{
    A, B, C, IN_TIME, LEASE, Probe, RELEASED, RETAIN, answer, ask_to_find_out, at_most, by,
    finished, header, owner, pending, record, request_by, undecided, unlimited,
};
use idem_runtime::store::author::{
    AppendReply, ClaimReply, CompleteReply, Header, ListRequest, ReleaseReply, Remains, RenewReply,
    ResolveReply, State,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

cases! {
    1 clients_have_different_owners,
    1 of_many_claimers_one_is_granted: transport,
    1 of_many_takers_of_a_lapsed_claim_one_is_granted,
    3 one_claim_sent_many_times_at_once_is_one_attempt,
    1 a_completion_and_a_takeover_do_not_both_happen: transport,
    1 a_renewal_and_a_takeover_do_not_both_happen,
    1 an_append_and_a_takeover_do_not_both_happen,
    1 a_renewal_does_not_undo_the_end_of_its_claim: transport,
    1 a_step_is_kept_beside_a_renewal_or_a_release,
    1 a_release_and_a_takeover_do_not_both_happen,
    1 a_resolution_and_a_reconciling_claim_do_not_both_happen,
    4 of_many_late_answers_one_counts,
    3 one_answer_sent_many_times_at_once_is_stored_once: transport,
    7 fences_of_racing_claims_differ_and_attempts_add_up,
    1 claims_of_many_keys_do_not_wait_for_each_other: transport,
}

const CLAIMERS: usize = 32;
const ROUNDS: usize = 25;

/// Runs one future per client concurrently, and returns their results.
async fn at_once<T, F>(p: &Probe, clients: usize, work: impl Fn(Probe, usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(clients));
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let (start, work) = (Arc::clone(&start), work(p.client(), client));
        tasks.spawn(async move {
            start.wait().await;
            (client, work.await)
        });
    }
    let mut replies = tasks.join_all().await;
    replies.sort_by_key(|(client, _)| *client);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// Runs two operations at once, in alternating order.
async fn both<T, U>(
    round: usize,
    one: impl Future<Output = T> + Send + 'static,
    two: impl Future<Output = U> + Send + 'static,
) -> (T, U)
where
    T: Send + 'static,
    U: Send + 'static,
{
    let start = Arc::new(Barrier::new(2));
    let first = Arc::clone(&start);
    let one = async move {
        first.wait().await;
        one.await
    };
    let two = async move {
        start.wait().await;
        two.await
    };
    let (one, two) = if round.is_multiple_of(2) {
        let one = tokio::spawn(one);
        (one, tokio::spawn(two))
    } else {
        let two = tokio::spawn(two);
        (tokio::spawn(one), two)
    };
    let failed = "an operation of the race panicked";
    (one.await.expect(failed), two.await.expect(failed))
}

async fn clients_have_different_owners(p: Probe) {
    let clients = [p.client(), p.client()];
    let owners: Vec<_> = (0..32).map(|n| clients[n % 2].new_owner()).collect();
    for (n, owner) in owners.iter().enumerate() {
        assert!(!owners[..n].contains(owner), "two clients have one owner");
    }
}

async fn race(p: &Probe, max_attempts: u16) -> (usize, Header) {
    let replies = at_once(p, CLAIMERS, |p, client| async move {
        let request = at_most(max_attempts, owner(client));
        p.claim(&request).await
    })
    .await;
    let mut winners = Vec::new();
    for (client, reply) in replies.into_iter().enumerate() {
        match reply {
            ClaimReply::Granted { .. } => winners.push(client),
            ClaimReply::Running { .. } => {}
            other => panic!("claimer {client} of {CLAIMERS} received {other:?}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?} were granted the same claim");
    let header = p.header().await;
    assert_eq!(
        header.owner,
        owner(winners[0]),
        "the record is the winner's"
    );
    (winners[0], header)
}

async fn of_many_claimers_one_is_granted(p: Probe) {
    for round in 0..ROUNDS {
        let (_, header) = race(&p.at(round), 5).await;
        assert_eq!(header.attempts, 1);
    }
}

async fn of_many_takers_of_a_lapsed_claim_one_is_granted(p: Probe) {
    for _ in 0..ROUNDS {
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let (_, taken) = race(&p, 5).await;
        assert_eq!(taken.attempts, header(pending()).attempts + 1);
    }
}

async fn one_claim_sent_many_times_at_once_is_one_attempt(p: Probe) {
    for round in 0..ROUNDS {
        let p = p.at(round);
        let claim = |p: Probe, _| async move { p.take(&request_by(A)).await };
        let replies = at_once(&p, CLAIMERS, claim).await;
        assert!(replies.iter().all(|claim| *claim == replies[0]));
        assert_eq!(replies[0].attempts, 1);
        assert_eq!(p.header().await, replies[0]);
    }
}

async fn a_completion_and_a_takeover_do_not_both_happen(p: Probe) {
    for round in 0..ROUNDS * 4 {
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let (one, two) = (p.clone(), p.client());
        let completion = async move {
            let answer = answer(&header(pending()), b"first");
            if round % 8 < 4 {
                one.complete(&answer).await
            } else {
                one.complete_without_claim(&answer).await
            }
        };
        let takeover = async move { two.claim(&request_by(B)).await };
        match both(round, completion, takeover).await {
            (CompleteReply::Stored { late: false }, ClaimReply::Done { record, .. }) => {
                assert_eq!(record.body(), b"first");
            }
            (CompleteReply::Superseded { .. }, ClaimReply::Granted { .. }) => {
                assert_eq!(p.header().await.owner, B);
            }
            other => panic!("no order of the two explains {other:?}"),
        }
    }
}

async fn a_renewal_and_a_takeover_do_not_both_happen(p: Probe) {
    for round in 0..ROUNDS * 4 {
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let (one, two) = (p.clone(), p.client());
        let renewal = async move { one.renew(&header(pending())).await };
        let takeover = async move { two.claim(&request_by(B)).await };
        let holder = match both(round, renewal, takeover).await {
            (RenewReply::Renewed, ClaimReply::Running { .. }) => A,
            (RenewReply::Lost, ClaimReply::Granted { .. }) => B,
            other => panic!("no order of the two explains {other:?}"),
        };
        assert_eq!(p.header().await.owner, holder);
    }
}

async fn an_append_and_a_takeover_do_not_both_happen(p: Probe) {
    if !p.keeps_journals().await {
        return;
    }
    for round in 0..ROUNDS * 4 {
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let (one, two) = (p.clone(), p.client());
        let append = async move { one.append(&header(pending()), b"step", 0).await };
        let takeover = async move { two.claim(&request_by(B)).await };
        let holder = match both(round, append, takeover).await {
            (AppendReply::Appended, ClaimReply::Running { .. }) => A,
            (AppendReply::Lost, ClaimReply::Granted { .. }) => B,
            other => panic!("no order of the two explains {other:?}"),
        };
        assert_eq!(p.header().await.owner, holder);
    }
}

/// An engine renews on its own thread, concurrently with the call's operations.
async fn a_renewal_does_not_undo_the_end_of_its_claim(p: Probe) {
    let claim = header(pending());
    for round in 0..ROUNDS * 4 {
        p.plant(&claim, b"", RETAIN).await;
        let (one, two) = (p.clone(), p.client());
        let completes = round % 4 < 2;
        let renewal = async move { one.renew(&claim).await };
        let end = async move {
            if completes {
                assert_eq!(two.complete(&answer(&claim, b"first")).await, IN_TIME);
            } else {
                assert_eq!(two.release(A, Remains::Request).await, RELEASED);
            }
        };
        let (renewed, ()) = both(round, renewal, end).await;
        assert!(matches!(renewed, RenewReply::Renewed | RenewReply::Lost));
        let (record, _) = p.found().await;
        if completes {
            assert_eq!(record.header.state, finished(&claim).state);
            assert_eq!(record.body(), b"first");
        } else {
            assert_eq!(record.header.state, State::Released);
        }
    }
}

async fn a_step_is_kept_beside_a_renewal_or_a_release(p: Probe) {
    if !p.keeps_journals().await {
        return;
    }
    let claim = header(pending());
    for round in 0..ROUNDS * 4 {
        p.plant(&claim, b"", RETAIN).await;
        let (one, two) = (p.clone(), p.client());
        let renews = round % 4 < 2;
        let append = async move { one.append(&claim, b"step", 0).await };
        let other = async move {
            if renews {
                assert_eq!(two.renew(&claim).await, RenewReply::Renewed);
            } else {
                assert_eq!(two.release(A, Remains::Request).await, RELEASED);
            }
        };
        let kept: &[u8] = match both(round, append, other).await.0 {
            AppendReply::Appended => b"step",
            AppendReply::Lost if !renews => b"",
            other => panic!("no order of the two explains {other:?}"),
        };
        let (record, _) = p.found().await;
        assert_eq!(&record.journal().as_bytes()[..], kept);
        assert_eq!(record.header.state == State::Released, !renews);
    }
}

async fn a_release_and_a_takeover_do_not_both_happen(p: Probe) {
    for round in 0..ROUNDS * 4 {
        p.plant(&header(pending()), b"", RETAIN - LEASE).await;
        let (one, two) = (p.clone(), p.client());
        let release = async move {
            if round % 8 < 4 {
                one.release(A, Remains::Request).await
            } else {
                one.release_with_journal(A, Remains::Request, b"").await
            }
        };
        let takeover = async move { two.claim(&request_by(B)).await };
        let (released, taken) = both(round, release, takeover).await;
        let attempt = expect!(taken, ClaimReply::Granted { attempt, .. } => attempt);
        let expected = match released {
            ReleaseReply::Released => 3,
            ReleaseReply::Superseded => 4,
            other => panic!("no order of the two explains {other:?}"),
        };
        assert_eq!(
            attempt, expected,
            "A's attempt, {released:?}, counts or not"
        );
        assert_eq!(p.header().await.owner, B);
    }
}

async fn a_resolution_and_a_reconciling_claim_do_not_both_happen(p: Probe) {
    let seen = header(undecided());
    for round in 0..ROUNDS * 4 {
        p.plant(&seen, b"", RETAIN).await;
        let (one, two) = (p.clone(), p.client());
        let end = by(C, finished(&seen));
        let resolution = async move { one.resolve(&seen, &record(&end, b"resolved")).await };
        let claim = async move { two.claim(&ask_to_find_out(B)).await };
        let holder = match both(round, resolution, claim).await {
            (ResolveReply::Resolved, ClaimReply::Done { .. }) => C,
            (ResolveReply::Changed, ClaimReply::Reconcile { .. }) => B,
            other => panic!("no order of the two explains {other:?}"),
        };
        assert_eq!(p.header().await.owner, holder);
    }
}

async fn of_many_late_answers_one_counts(p: Probe) {
    for round in 0..ROUNDS {
        let state = if round % 2 == 0 {
            pending()
        } else {
            State::Released
        };
        p.plant(&header(state), b"", RETAIN - LEASE).await;
        let replies = at_once(&p, CLAIMERS, |p, client| async move {
            let done = by(owner(client), finished(&header(pending())));
            let body = client.to_string();
            p.complete(&record(&done, body.as_bytes())).await
        })
        .await;
        let (stored, _) = p.found().await;
        let mut winners = 0;
        for (client, reply) in replies.into_iter().enumerate() {
            match reply {
                CompleteReply::Stored { late: true } => {
                    winners += 1;
                    assert_eq!(stored.body(), client.to_string().as_bytes());
                }
                CompleteReply::Adopted { record, .. } => assert_eq!(record, stored),
                other => panic!("answer {client} received {other:?}"),
            }
        }
        assert_eq!(winners, 1, "one answer counts");
    }
}

async fn one_answer_sent_many_times_at_once_is_stored_once(p: Probe) {
    for round in 0..ROUNDS {
        let p = p.at(round);
        let bytes = answer(&p.take(&request_by(A)).await, b"once");
        let replies = at_once(&p, CLAIMERS, |p, client| {
            let bytes = bytes.clone();
            async move {
                // Reads and listings get a header and a life of one moment: all of the life, before and after. A
                // database takes the time when a statement begins, which may be before a completion that it then sees.
                let began = Instant::now();
                let assert_whole = |left: Duration, retain| {
                    let beyond = left.saturating_sub(retain).min(began.elapsed());
                    p.assert_left(left - beyond, retain);
                };
                if client % 4 == 1 {
                    let (record, left) = p.found().await;
                    assert_whole(left, record.header.retain);
                }
                if client == CLAIMERS - 1 {
                    let request = ListRequest::new(p.fixture.prefix());
                    let (found, _) = list(&p, &request).await.unwrap_or_default();
                    // The records of earlier rounds have less.
                    if let Some(it) = found.get(&p.key.name()) {
                        assert_whole(it.left, it.header.retain);
                    }
                }
                p.complete(&bytes).await
            }
        })
        .await;
        for reply in replies {
            assert_eq!(reply, IN_TIME);
        }
        p.unchanged(&bytes, "its completion, sent again").await;
    }
}

async fn fences_of_racing_claims_differ_and_attempts_add_up(p: Probe) {
    let granted = at_once(&p, 8, |p, client| async move {
        let mut granted = Vec::new();
        for n in 0..40 {
            let owner = owner(client * 1_000 + n);
            let request = unlimited(owner);
            if let ClaimReply::Granted { fence, attempt, .. } = p.claim(&request).await {
                granted.push((fence, attempt));
                assert_eq!(p.release(owner, Remains::Attempt).await, RELEASED);
            }
        }
        granted
    })
    .await;
    let mut granted = granted.concat();
    granted.sort_unstable();
    for (claim, number) in granted.windows(2).zip(1..) {
        assert!(claim[0].0 < claim[1].0, "two claims have one fence");
        assert_eq!(claim[0].1, number, "attempts grow with the fences");
    }
    let counted = usize::from(p.header().await.attempts);
    assert_eq!(counted, granted.len(), "every claim counts");
}

async fn claims_of_many_keys_do_not_wait_for_each_other(p: Probe) {
    let claims = at_once(&p, 200, |p, client| async move {
        p.at(client).take(&request_by(owner(client))).await
    })
    .await;
    for (client, claim) in claims.into_iter().enumerate() {
        assert_eq!(claim.attempts, 1);
        assert_eq!(p.at(client).header().await, claim);
    }
}
