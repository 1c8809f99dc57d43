//! Journals: kept through every transition of a claim, and appended to by its owner alone.

use bytes::Bytes;

use super::probe::{
    A, B, C, IN_TIME, LEASE, OTHER, OUTCOMES, Probe, RELEASED, REMAINS, RETAIN, SCHEMA, TTL,
    answer, ask_to_find_out, by, done, ended, finished, header, kept_for, pending, reconciling,
    record, request_by, request_with, unlimited,
};
use idem_runtime::store::{
    AnswerTypes, AppendReply, ClaimReply, CompleteReply, Fence, Header, Journal, JournalKind,
    Needs, OutcomeKind, Owner, Record, ReleaseReply, Remains, RenewReply, ResolveReply, State,
    Unreadable,
};

/// The owner of resolutions.
const R: Owner = Owner::from_bytes(*b"who knows better");
/// Bytes that a text protocol, or a comparison that ends at a NUL, would corrupt.
const ONE: &[u8] = b"\0\r\n$1\r\n\xff\xfe one";
const TWO: &[u8] = b"\0\r\n$1\r\n\xff\xfe one\0two\r\n";

cases! {
    18 a_journal_comes_with_the_next_grant: transport,
    18 a_journal_grows_from_attempt_to_attempt,
    18 an_append_that_is_sent_again_has_no_further_effect,
    18 an_append_that_arrives_late_takes_nothing_away,
    18 a_long_journal_is_kept_whole: transport,
    18 a_journal_is_kept_by_a_release,
    18 a_release_writes_the_journal_that_it_brings: transport,
    18 a_release_keeps_the_request_of_a_journal,
    2 a_release_by_another_owner_writes_no_journal,
    2 a_release_by_an_operator_takes_nothing_that_was_appended_since,
    18 a_journal_is_kept_by_a_renewal,
    18 a_journal_is_kept_by_a_claim_that_is_sent_again,
    18 a_journal_is_kept_while_its_outcome_is_unknown,
    18 a_late_unknown_outcome_keeps_the_journal_of_its_successors,
    18 an_unknown_outcome_of_a_shorter_journal_keeps_the_longer,
    18 an_unknown_outcome_brings_no_journal_over_a_reset,
    18 a_journal_is_kept_by_a_reconciliation_and_its_verdict,
    18 a_lapsed_reconciliation_with_a_long_journal_is_unknown: transport,
    18 an_answer_replaces_the_journal: transport,
    18 a_resolution_replaces_the_journal,
    18 a_reset_keeps_the_journal_that_it_brings,
    2 a_resolution_of_another_journal_changes_nothing,
    18 a_reset_brings_its_journal,
    5 an_append_starts_lease_and_life_again,
    5 an_append_to_a_lapsed_claim_takes_it_back_if_nobody_took_it,
    2 an_append_by_another_owner_changes_nothing,
    2 a_superseded_owner_appends_nothing,
    2 an_append_after_its_own_end_changes_nothing,
    2 a_claim_that_was_lost_is_written_again_with_its_whole_journal: transport,
    10 an_answer_behind_a_journal_is_not_replaced,
    10 an_append_does_not_replace_an_unreadable_record,
}

/// The case passes on a store that keeps no journals.
macro_rules! journals {
    ($p:expr) => {
        if !$p.keeps_journals().await {
            return;
        }
    };
}

/// Claims for A, and appends.
async fn claim_with(p: &Probe, journal: &[u8]) -> Header {
    let claim = p.take(&request_by(A)).await;
    assert_eq!(p.append(&claim, journal, 0).await, AppendReply::Appended);
    claim
}

/// The stored journal.
async fn stored(p: &Probe) -> Bytes {
    p.found().await.0.journal().as_bytes().clone()
}

/// The record of a reset that keeps this journal.
fn reset(journal: &[u8]) -> Bytes {
    let header = with!(kept_for(TTL, Header::new(State::Released, R, Fence::default(), TTL)), types: AnswerTypes::UNKNOWN, journal: kind_of(journal));
    record(&header, journal)
}

fn kind_of(journal: &[u8]) -> JournalKind {
    Journal::new(Bytes::copy_from_slice(journal)).kind()
}

fn of(claim: Header) -> Header {
    with!(claim, journal: JournalKind::Steps)
}

async fn a_journal_comes_with_the_next_grant(p: Probe) {
    journals!(p);
    let (claim, none) = p.take_with_journal(&request_by(A)).await;
    assert_eq!(none, b""[..]);
    assert_eq!(p.append(&claim, ONE, 0).await, AppendReply::Appended);
    assert_eq!(p.header().await, of(claim));
    assert_eq!(stored(&p).await, ONE);
    assert!(
        p.found().await.0.body().is_empty(),
        "a journal is no answer"
    );
    p.advance(LEASE).await;
    let (next, journal) = p.client().take_with_journal(&request_by(B)).await;
    assert_eq!(journal, ONE);
    assert_eq!(next.attempts, 2);
    assert_eq!(p.header().await, of(next));
}

async fn a_journal_grows_from_attempt_to_attempt(p: Probe) {
    journals!(p);
    let mut journal = Vec::new();
    for attempt in 0..5_u8 {
        let owner = super::probe::owner(attempt.into());
        let (claim, known) = p.take_with_journal(&unlimited(owner)).await;
        assert_eq!(known, journal);
        let known = journal.len();
        journal.extend([attempt; 3]);
        assert_eq!(
            p.append(&claim, &journal, known).await,
            AppendReply::Appended
        );
        assert_eq!(stored(&p).await, journal);
        p.advance(LEASE).await;
    }
}

async fn an_append_that_is_sent_again_has_no_further_effect(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    for known in [0, ONE.len(), 0] {
        assert_eq!(p.append(&claim, ONE, known).await, AppendReply::Appended);
        assert_eq!(stored(&p).await, ONE);
    }
    for known in [ONE.len(), ONE.len(), 0] {
        assert_eq!(p.append(&claim, TWO, known).await, AppendReply::Appended);
        assert_eq!(stored(&p).await, TWO);
    }
}

async fn an_append_that_arrives_late_takes_nothing_away(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, TWO).await;
    assert_eq!(p.append(&claim, ONE, 0).await, AppendReply::Appended);
    assert_eq!(stored(&p).await, TWO);
    assert_eq!(
        p.append(&claim, ONE, ONE.len()).await,
        AppendReply::Appended
    );
    assert_eq!(stored(&p).await, TWO);
}

async fn a_long_journal_is_kept_whole(p: Probe) {
    journals!(p);
    let claim = p.take(&request_by(A)).await;
    let mut journal: Vec<u8> = Vec::new();
    for part in 0..8_u8 {
        let known = journal.len();
        journal.extend((0..32_000_u32).map(|n| (n % 251) as u8 ^ part));
        assert_eq!(
            p.append(&claim, &journal, known).await,
            AppendReply::Appended
        );
    }
    assert_eq!(stored(&p).await, journal);
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let (next, kept) = p.take_with_journal(&request_by(B)).await;
    assert_eq!(kept, journal);
    assert_eq!(p.complete(&answer(&next, b"done")).await, IN_TIME);
    assert_eq!(p.found().await.0.body(), b"done");
}

async fn a_journal_is_kept_by_a_release(p: Probe) {
    journals!(p);
    for (n, remains) in REMAINS.into_iter().enumerate() {
        let p = p.at(n);
        let claim = claim_with(&p, ONE).await;
        p.advance(LEASE / 2).await;
        for _ in 0..2 {
            assert_eq!(p.release(A, remains).await, RELEASED);
            assert_eq!(stored(&p).await, ONE);
        }
        p.assert_left(p.found().await.1, RETAIN - LEASE / 2);
        let (next, journal) = p.take_with_journal(&request_by(B)).await;
        assert_eq!(journal, ONE);
        assert!(next.fence > claim.fence);
    }
}

async fn a_release_writes_the_journal_that_it_brings(p: Probe) {
    journals!(p);
    let long = vec![b'j'; 20 << 10];
    // Shorter than that of the record, longer, and none; each sent twice.
    for (n, brought) in [ONE, b"other", &long, b""].into_iter().enumerate() {
        let p = p.at(n);
        claim_with(&p, TWO).await;
        for _ in 0..2 {
            let released = p.release_with_journal(A, Remains::Request, brought).await;
            assert_eq!(released, RELEASED);
            let header = p.header().await;
            assert_eq!(stored(&p).await, brought);
            assert_eq!(
                (header.state, header.attempts, header.journal),
                (State::Released, 0, kind_of(brought))
            );
            p.assert_left(p.found().await.1, RETAIN);
        }
        let (_, journal) = p.take_with_journal(&request_by(B)).await;
        assert_eq!(journal, brought);
    }
    // The server had lost what was appended.
    let p = p.at(9);
    p.take(&request_by(A)).await;
    let released = p.release_with_journal(A, Remains::Attempt, ONE).await;
    assert_eq!((released, stored(&p).await), (RELEASED, ONE.into()));
}

async fn a_release_by_another_owner_writes_no_journal(p: Probe) {
    journals!(p);
    assert_eq!(
        p.release_with_journal(A, Remains::Request, TWO).await,
        ReleaseReply::Absent
    );
    claim_with(&p, ONE).await;
    let superseded = p.release_with_journal(B, Remains::Request, TWO).await;
    assert_eq!(superseded, ReleaseReply::Superseded);
    assert_eq!(stored(&p).await, ONE);
}

/// Finds a store in which the last step of a living process is lost to the operator who ended its claim.
async fn a_release_by_an_operator_takes_nothing_that_was_appended_since(p: Probe) {
    journals!(p);
    let long = [TWO, b"by hand"].concat();
    for (n, (seen, is_it)) in [(&b""[..], false), (ONE, false), (&long, false), (TWO, true)]
        .into_iter()
        .enumerate()
    {
        let p = p.at(n);
        claim_with(&p, TWO).await;
        let released = p.release_as_seen(A, seen, &long).await;
        if is_it {
            assert_eq!(
                (released, stored(&p).await),
                (RELEASED, long.clone().into())
            );
            assert_eq!(p.header().await.attempts, 1);
            // Sent again, after its reply was lost.
            assert_eq!(p.release_as_seen(A, seen, &long).await, RELEASED);
        } else {
            assert_eq!(
                (released, stored(&p).await),
                (ReleaseReply::Superseded, TWO.into())
            );
        }
    }
    let p = p.at(9);
    p.take(&request_by(A)).await;
    assert_eq!(
        p.release_as_seen(A, ONE, &long).await,
        ReleaseReply::Superseded
    );
    assert_eq!(p.release_as_seen(A, b"", ONE).await, RELEASED);
    assert_eq!(stored(&p).await, ONE);
}

async fn a_release_keeps_the_request_of_a_journal(p: Probe) {
    journals!(p);
    claim_with(&p, ONE).await;
    assert_eq!(p.release(A, Remains::Nothing).await, RELEASED);
    assert_eq!(p.header().await.attempts, 0);
    assert_eq!(p.claim(&request_with(B, OTHER)).await, ClaimReply::Mismatch);
    expect!(p.claim(&request_by(B)).await, ClaimReply::Granted { fresh: false, .. } => ());
}

async fn a_journal_is_kept_by_a_renewal(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    p.advance(LEASE / 2).await;
    assert_eq!(p.renew(&claim).await, RenewReply::Renewed);
    assert_eq!(stored(&p).await, ONE);
    p.assert_left(p.found().await.1, RETAIN);
}

async fn a_journal_is_kept_by_a_claim_that_is_sent_again(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    let (again, journal) = p.take_with_journal(&request_by(A)).await;
    assert_eq!((again, journal), (claim, Bytes::from_static(ONE)));
    assert_eq!(stored(&p).await, ONE);
}

async fn a_journal_is_kept_while_its_outcome_is_unknown(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    let unknown = of(ended(&claim, OutcomeKind::Unknown));
    for _ in 0..2 {
        assert_eq!(p.complete(&record(&unknown, TWO)).await, IN_TIME);
        assert_eq!(stored(&p).await, TWO);
    }
    let (found, left) = replayed!(p.claim(&request_by(B)).await);
    // A store may leave the journal out of the answer.
    assert_eq!(of(found.header), unknown);
    p.assert_left(left, TTL);
    let (finding, journal) = p.take_with_journal(&ask_to_find_out(B)).await;
    assert_eq!(finding.state, reconciling());
    assert_eq!(journal, TWO);
    assert_eq!(stored(&p).await, TWO);
    // The hook does not decide.
    assert_eq!(p.release(B, Remains::Request).await, RELEASED);
    assert_eq!(stored(&p).await, TWO);
    // A success of any owner settles it.
    assert_eq!(
        p.complete(&answer(&claim, b"late")).await,
        CompleteReply::Stored { late: true }
    );
    let found = p.found().await.0;
    assert_eq!(
        (found.body(), found.journal().is_empty()),
        (&b"late"[..], true)
    );
}

/// A's lease lapses; B takes over with A's journal, appends, and releases. Returns A's claim.
async fn overtaken_and_released(p: &Probe) -> Header {
    let claim = claim_with(p, ONE).await;
    p.advance(LEASE).await;
    let (next, _) = p.client().take_with_journal(&request_by(B)).await;
    assert_eq!(p.append(&next, TWO, ONE.len()).await, AppendReply::Appended);
    assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
    claim
}

async fn a_late_unknown_outcome_keeps_the_journal_of_its_successors(p: Probe) {
    journals!(p);
    // Longer than that of the successor, and unlike it: what A recorded last was not confirmed.
    let unconfirmed = [ONE, b"what was not confirmed to A".as_slice()].concat();
    let claim = overtaken_and_released(&p).await;
    let unknown = of(ended(&claim, OutcomeKind::Unknown));
    assert_eq!(
        p.complete(&record(&unknown, &unconfirmed)).await,
        CompleteReply::Stored { late: true }
    );
    assert_eq!(stored(&p).await, TWO);
    let (_, journal) = p.take_with_journal(&ask_to_find_out(C)).await;
    assert_eq!(journal, TWO);
    // The same of an attempt without steps.
    let p = p.at(1);
    let claim = overtaken_and_released(&p).await;
    let unknown = ended(&claim, OutcomeKind::Unknown);
    let late = CompleteReply::Stored { late: true };
    assert_eq!(p.complete(&record(&unknown, b"")).await, late);
    assert_eq!(stored(&p).await, TWO);
}

async fn an_unknown_outcome_of_a_shorter_journal_keeps_the_longer(p: Probe) {
    journals!(p);
    for (n, shorter) in [ONE, b""].into_iter().enumerate() {
        let p = p.at(n);
        let claim = claim_with(&p, TWO).await;
        let unknown = with!(ended(&claim, OutcomeKind::Unknown), journal: kind_of(shorter));
        assert_eq!(p.complete(&record(&unknown, shorter)).await, IN_TIME);
        assert_eq!(stored(&p).await, TWO);
    }
}

async fn an_unknown_outcome_brings_no_journal_over_a_reset(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let seen = p.header().await;
    assert_eq!(p.resolve(&seen, &reset(b"")).await, ResolveReply::Resolved);
    let unknown = of(ended(&claim, OutcomeKind::Unknown));
    assert_eq!(
        p.complete(&record(&unknown, ONE)).await,
        CompleteReply::Stored { late: true }
    );
    assert_eq!(stored(&p).await, b""[..]);
}

async fn a_lapsed_reconciliation_with_a_long_journal_is_unknown(p: Probe) {
    journals!(p);
    let journal = vec![b'j'; 20 << 10];
    claim_with(&p, &journal).await;
    p.advance(LEASE).await;
    let (_, found) = p.take_with_journal(&ask_to_find_out(B)).await;
    assert_eq!(found, journal);
    p.advance(LEASE).await;
    // A caller without a hook is answered, and does not ask for ever.
    let (found, _) = replayed!(p.claim(&request_by(C)).await);
    assert_eq!(found.header.state, reconciling());
    assert_eq!(stored(&p).await, journal);
}

async fn a_journal_is_kept_by_a_reconciliation_and_its_verdict(p: Probe) {
    journals!(p);
    claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let (finding, journal) = p.take_with_journal(&ask_to_find_out(B)).await;
    assert_eq!((finding.state, &journal[..]), (reconciling(), ONE));
    // A renewal of the hook's claim.
    assert_eq!(
        p.append(&finding, ONE, ONE.len()).await,
        AppendReply::Appended
    );
    let verdict = with!(request_by(B), needs: Needs::Verdict);
    let (run, journal) = p.take_with_journal(&verdict).await;
    assert_eq!((run.state, &journal[..]), (pending(), ONE));
    assert_eq!(p.append(&run, TWO, ONE.len()).await, AppendReply::Appended);
    assert_eq!(stored(&p).await, TWO);
}

async fn an_answer_replaces_the_journal(p: Probe) {
    journals!(p);
    let answers = OUTCOMES
        .into_iter()
        .filter(|outcome| *outcome != OutcomeKind::Unknown);
    for (n, outcome) in answers.enumerate() {
        let p = p.at(n);
        let claim = claim_with(&p, ONE).await;
        let end = ended(&claim, outcome);
        for _ in 0..2 {
            assert_eq!(p.complete(&record(&end, b"")).await, IN_TIME);
            let (found, left) = p.found().await;
            assert_eq!((found.header, found.journal().is_empty()), (end, true));
            p.assert_left(left, TTL);
        }
    }
}

async fn a_resolution_replaces_the_journal(p: Probe) {
    journals!(p);
    claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let seen = p.header().await;
    assert_eq!(seen.journal, JournalKind::Steps);
    let answered = by(R, finished(&header(pending())));
    let reply = p.resolve(&seen, &record(&answered, b"resolved")).await;
    assert_eq!(reply, ResolveReply::Resolved);
    assert_eq!(p.found().await.0.body(), b"resolved");
}

async fn a_reset_keeps_the_journal_that_it_brings(p: Probe) {
    journals!(p);
    for (n, kept) in [&b""[..], ONE].into_iter().enumerate() {
        let p = p.at(n);
        claim_with(&p, ONE).await;
        p.advance(LEASE).await;
        let seen = p.header().await;
        assert_eq!(p.resolve(&seen, &reset(kept)).await, ResolveReply::Resolved);
        assert_eq!(p.header().await.attempts, 0);
        let (_, journal) = p.take_with_journal(&request_by(B)).await;
        assert_eq!(journal, kept);
    }
}

/// Finds a store in which a reset takes a step away that its operator has not seen, or settles another one.
async fn a_resolution_of_another_journal_changes_nothing(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let seen = p.header().await;
    // The owner is alive after all. The header is the same as before.
    assert_eq!(
        p.append(&claim, TWO, ONE.len()).await,
        AppendReply::Appended
    );
    p.advance(LEASE).await;
    let answer = record(&by(R, finished(&header(pending()))), b"resolved");
    for resolution in [&reset(ONE), &reset(b""), &answer] {
        let reply = p.resolve_seen((&seen, ONE), resolution).await;
        assert_eq!(reply, ResolveReply::Changed);
        assert_eq!(stored(&p).await, TWO);
    }
    let settled = reset(TWO);
    for _ in 0..2 {
        let reply = p.resolve_seen((&seen, TWO), &settled).await;
        assert_eq!(reply, ResolveReply::Resolved, "or sent again");
        assert_eq!(stored(&p).await, TWO);
    }
}

/// Finds a store in which an operator's word about a step of unknown outcome has no effect.
async fn a_reset_brings_its_journal(p: Probe) {
    journals!(p);
    for (n, is_unknown) in [(0, true), (1, false)] {
        let p = p.at(n);
        let claim = claim_with(&p, TWO).await;
        if is_unknown {
            let unknown = of(ended(&claim, OutcomeKind::Unknown));
            let reply = p.complete(&record(&unknown, TWO)).await;
            assert_eq!(reply, CompleteReply::Stored { late: false });
        } else {
            assert_eq!(p.release(A, Remains::Attempt).await, RELEASED);
        }
        // Shorter, and then longer.
        for journal in [ONE, TWO] {
            let seen = p.header().await;
            let reply = p.resolve(&seen, &reset(journal)).await;
            assert_eq!(
                (reply, stored(&p).await),
                (ResolveReply::Resolved, journal.into())
            );
            p.take(&request_by(B)).await;
            assert_eq!(p.release(B, Remains::Attempt).await, RELEASED);
        }
    }
}

async fn an_append_starts_lease_and_life_again(p: Probe) {
    journals!(p);
    let claim = p.take(&request_by(A)).await;
    for (journal, known) in [(ONE, 0), (TWO, ONE.len()), (TWO, TWO.len())] {
        p.advance(LEASE / 2).await;
        assert_eq!(
            p.append(&claim, journal, known).await,
            AppendReply::Appended
        );
        p.assert_left(running!(p.claim(&request_by(B)).await), LEASE);
        p.assert_left(p.found().await.1, RETAIN);
    }
}

async fn an_append_to_a_lapsed_claim_takes_it_back_if_nobody_took_it(p: Probe) {
    journals!(p);
    let claim = p.take(&request_by(A)).await;
    p.advance(LEASE * 3).await;
    assert_eq!(p.append(&claim, ONE, 0).await, AppendReply::Appended);
    expect!(p.claim(&request_by(B)).await, ClaimReply::Running { .. } => ());
    assert_eq!(p.header().await, of(claim));
}

async fn an_append_by_another_owner_changes_nothing(p: Probe) {
    journals!(p);
    let claim = claim_with(&p, ONE).await;
    let bytes = p.peek().await.expect("the claim is there");
    p.advance(LEASE / 2).await;
    for owner in [B, C] {
        for known in [0, ONE.len()] {
            assert_eq!(
                p.append(&by(owner, claim), TWO, known).await,
                AppendReply::Lost
            );
        }
    }
    p.unchanged(&bytes, "an append by another owner").await;
    p.assert_left(p.found().await.1, RETAIN - LEASE / 2);
}

async fn a_superseded_owner_appends_nothing(p: Probe) {
    journals!(p);
    let first = claim_with(&p, ONE).await;
    p.advance(LEASE).await;
    let second = p.take(&request_by(B)).await;
    let bytes = p.peek().await.expect("the claim is there");
    assert_eq!(p.append(&first, TWO, ONE.len()).await, AppendReply::Lost);
    p.unchanged(&bytes, "an append by an overtaken owner").await;
    assert_eq!(
        p.append(&second, TWO, ONE.len()).await,
        AppendReply::Appended
    );
}

async fn an_append_after_its_own_end_changes_nothing(p: Probe) {
    journals!(p);
    for (n, outcome) in OUTCOMES.into_iter().enumerate() {
        let p = p.at(n);
        let claim = claim_with(&p, ONE).await;
        assert_eq!(
            p.complete(&record(&ended(&claim, outcome), b"")).await,
            IN_TIME
        );
        let bytes = p.peek().await.expect("the answer is there");
        assert_eq!(p.append(&claim, TWO, ONE.len()).await, AppendReply::Lost);
        p.unchanged(&bytes, "an append after the answer").await;
    }
    let claim = claim_with(&p, ONE).await;
    assert_eq!(p.release(A, Remains::Request).await, RELEASED);
    let bytes = p.peek().await.expect("the released record is there");
    assert_eq!(p.append(&claim, TWO, ONE.len()).await, AppendReply::Lost);
    p.unchanged(&bytes, "an append after the release").await;
}

async fn a_claim_that_was_lost_is_written_again_with_its_whole_journal(p: Probe) {
    journals!(p);
    for (n, known) in [0, ONE.len(), TWO.len()].into_iter().enumerate() {
        let p = p.at(n);
        let claim = header(pending());
        assert_eq!(p.append(&claim, TWO, known).await, AppendReply::Reasserted);
        let (found, left) = p.found().await;
        assert_eq!(
            (found.header, &found.journal().as_bytes()[..]),
            (of(claim), TWO)
        );
        p.assert_left(left, RETAIN);
        // A record that lacks confirmed bytes: that of a server that was promoted too early.
        let p = p.at(n + 10);
        p.plant(&of(claim), &ONE[..5], RETAIN).await;
        assert_eq!(p.append(&claim, TWO, known).await, AppendReply::Appended);
        assert_eq!(stored(&p).await, TWO);
    }
}

async fn an_answer_behind_a_journal_is_not_replaced(p: Probe) {
    journals!(p);
    for (n, (byte, outcome)) in [
        (b'D', OutcomeKind::Value),
        (b'E', OutcomeKind::Error),
        (b'T', OutcomeKind::Tombstone),
    ]
    .into_iter()
    .enumerate()
    {
        let p = p.at(n);
        let later = of(header(done(outcome)));
        let bytes = p.plant(&later, b"of a later version", RETAIN).await;
        let error = Unreadable::State { byte };
        for owner in [A, B] {
            assert_eq!(
                p.claim(&request_by(owner)).await,
                ClaimReply::Unreadable(error)
            );
            let claim = by(owner, header(pending()));
            assert_eq!(
                p.append(&claim, ONE, 0).await,
                AppendReply::Unreadable(error)
            );
            assert_eq!(
                p.release(owner, Remains::Request).await,
                ReleaseReply::Unreadable(error)
            );
        }
        p.unchanged(&bytes, "nothing").await;
    }
    // Its layout has room for it: the state decides.
    let known = State::Done {
        outcome: OutcomeKind::Unknown,
        schema: SCHEMA,
    };
    let bytes = record(&of(header(known)), ONE);
    assert!(Record::decode(bytes).is_ok());
}

async fn an_append_does_not_replace_an_unreadable_record(p: Probe) {
    journals!(p);
    let claim = header(pending());
    p.plant_bytes(
        b"5P of a later version, and long enough to be a record of one",
        LEASE,
    )
    .await;
    let error = Unreadable::Layout { byte: b'5' };
    assert_eq!(
        p.append(&claim, ONE, 0).await,
        AppendReply::Unreadable(error)
    );
}
