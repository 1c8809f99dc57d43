//! The flaws: the rule that each breaks, what finds it, and where it is.

use std::time::Duration;

use idem_runtime::admin::EntryFilter;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{
    AnswerTypes, AppendReply, ClaimReply, CompleteReply, Header, Journal, JournalKind, ListReply,
    ListRequest, Needs, ReleaseReply, Remains, RenewReply, ResolveReply, State, Unreadable,
};
use idem_runtime::store::{Fence, OutcomeKind, RecordKey};

use self::At::{
    Apart, ApartOfOwner, Ask, DeniesJournals, FirstWatch, Key, List, Listeners, NeverHears,
    OneListener, OwnersTwice, Put, Room, Say, See, Unsent, Watches,
};
use self::By::{Both, Cases, Sequences};
use self::Seen::{As, AsClaim, Attempts, Early, Gone, Lapsed, Late, OfCaller, OfNobody, Readable};
use crate::store::{Op, Reply, Step, Write};

type Ops = &'static [Op];
type When = fn(&Step) -> bool;

/// Where a flaw is.
#[derive(Clone, Copy)]
pub(crate) enum At {
    /// These operations see the record otherwise.
    See(Ops, When, Seen),
    /// The request of these operations is taken for another one.
    Ask(Ops, When, fn(&mut Step)),
    /// These operations reply without a decision.
    Say(Ops, When, &'static Reply),
    /// These operations write another record, or for another time.
    Put(Ops, When, fn(&mut Write, &Step)),
    /// In the name of a record.
    Key(fn(&RecordKey) -> RecordKey),
    /// These operations need room, and no other.
    Room(Ops),
    /// These operations look, and write a moment later.
    Apart(Ops),
    /// The same, unless another owner has the record by then.
    ApartOfOwner(Ops),
    /// Watches are notified by these operations only.
    Watches(When),
    /// Only the first watch of a key is notified.
    FirstWatch,
    /// Listeners are notified by these operations only.
    Listeners(When),
    OneListener,
    NeverHears,
    /// In a listing: called with the request, and with the reply.
    List(fn(&mut ListRequest, Option<&mut ListReply>)),
    OwnersTwice,
    DeniesJournals,
    /// A claim is granted that was not sent.
    Unsent,
    Nowhere,
}

/// The record as a flaw presents it.
#[derive(Clone, Copy)]
pub(crate) enum Seen {
    OfCaller,
    OfNobody,
    As(State),
    /// In the state of the claim that the operation is about.
    AsClaim,
    /// With as many attempts less, and no fence.
    Attempts(u16),
    Early,
    Late,
    Lapsed,
    Gone,
    Readable,
    /// Without a fingerprint.
    NoPrint,
    /// With a journal of steps.
    Steps,
}

/// What finds a flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Cases,
    Sequences,
    Both,
}

const MS: Duration = Duration::from_millis(1);
const RELEASED: State = State::Released;
const PENDING: State = State::Pending { lease: MS };
const ANSWERED: State = State::Done {
    outcome: OutcomeKind::Value,
    schema: 7,
};
const OVERTAKEN: &Reply = &Reply::Complete(CompleteReply::Superseded { lease_left: MS });
const WAIT: &Reply = &Reply::Claim(ClaimReply::Running { lease_left: MS });

const ALL: Ops = &[];
const CLAIM: Ops = &[Op::Claim];
const COMPLETE: Ops = &[Op::Complete, Op::CompleteClaim];
const BARE: Ops = &[Op::Complete];
const PASSED: Ops = &[Op::CompleteClaim];
const RELEASE: Ops = &[Op::Release, Op::ReleaseWithJournal];
const PLAIN: Ops = &[Op::Release];
const WITH: Ops = &[Op::ReleaseWithJournal];
const RENEW: Ops = &[Op::Renew];
const APPEND: Ops = &[Op::Append];
const RESOLVE: Ops = &[Op::Resolve];
const POLL: Ops = &[Op::Poll];
const HAND: Ops = &[Op::AtHand];

fn any(_: &Step) -> bool {
    true
}

fn absent(s: &Step) -> bool {
    s.before.is_none() && s.unreadable.is_none()
}

fn is(s: &Step, condition: fn(&Header) -> bool) -> bool {
    s.before.is_some_and(|(header, _)| condition(&header))
}

fn mine(s: &Step) -> bool {
    s.before
        .is_some_and(|(header, _)| header.owner == s.caller())
}

fn theirs(s: &Step) -> bool {
    s.before
        .is_some_and(|(header, _)| header.owner != s.caller())
}

fn pending(s: &Step) -> bool {
    is(s, |header| matches!(header.state, State::Pending { .. }))
}

fn reconciling(s: &Step) -> bool {
    is(s, |header| {
        matches!(header.state, State::Reconciling { .. })
    })
}

fn released(s: &Step) -> bool {
    is(s, |header| header.state == State::Released)
}

fn done(s: &Step) -> bool {
    is(s, |header| matches!(header.state, State::Done { .. }))
}

fn unknown(s: &Step) -> bool {
    is(
        s,
        |header| matches!(header.state, State::Done { outcome, .. } if outcome == OutcomeKind::Unknown),
    )
}

fn lapsed(s: &Step) -> bool {
    s.before.is_some_and(|(header, left)| header.lapsed(left))
}

/// Under a limit that the attempts have reached.
fn spent(s: &Step) -> bool {
    let max = s.asked.max_attempts;
    s.before
        .zip(max)
        .is_some_and(|((header, _), max)| header.attempts >= max.get())
}

fn is_reset(s: &Step) -> bool {
    s.brought.header.state == State::Released
}

fn starts(s: &Step) -> bool {
    mine(s) && reconciling(s) && !s.asked.reconciles
}

fn looks(s: &Step) -> bool {
    s.write
        .as_ref()
        .is_some_and(|write| matches!(write.header.state, State::Reconciling { .. }))
        && theirs(s)
}

fn before(s: &Step) -> Header {
    s.before.map_or(s.claim, |(header, _)| header)
}

fn life_of_claim(w: &mut Write, s: &Step) {
    w.life = before(s).retain;
}

fn life_as_before(w: &mut Write, s: &Step) {
    w.life = s.before.map_or(w.life, |(_, left)| left);
}

fn fence_as_before(w: &mut Write, s: &Step) {
    w.header.fence = before(s).fence;
}

fn attempts_as_before(w: &mut Write, s: &Step) {
    w.header.attempts = before(s).attempts;
}

fn types_as_before(w: &mut Write, s: &Step) {
    w.header.types = before(s).types;
}

fn types_of_caller(w: &mut Write, s: &Step) {
    w.header.types = s.types();
}

fn print_of_caller(w: &mut Write, s: &Step) {
    w.header.fingerprint = s.print();
}

fn no_print(w: &mut Write, s: &Step) {
    if s.remains == Remains::Nothing {
        w.header.fingerprint = Fingerprint::NONE;
    }
}

fn journal(w: &mut Write, bytes: Vec<u8>) {
    w.header.journal = Journal::new(bytes.clone().into()).kind();
    w.tail = bytes;
}

fn journal_as_before(w: &mut Write, s: &Step) {
    let kept = s.found.as_ref().map(|(record, _)| record.journal());
    journal(w, kept.unwrap_or_default().as_bytes().to_vec());
}

/// The given journal from the known bytes on, optionally after the record's.
fn journal_again(w: &mut Write, s: &Step, is_behind: bool) {
    let brought = s.journal.as_bytes();
    let known = s.known.min(brought.len());
    let kept = s.found.as_ref().map(|(record, _)| record.journal());
    let kept = kept.filter(|_| is_behind).unwrap_or_default();
    journal(w, [&kept.as_bytes()[..], &brought[known..]].concat());
}

fn without_labels(w: &mut Write, _: &Step) {
    let (mut kept, mut rest) = (Vec::new(), &w.tail[..]);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = 4 + u32::from_be_bytes(*length) as usize;
        let Some((entry, next)) = rest.split_at_checked(length) else {
            break;
        };
        if behind.first() != Some(&b'k') {
            kept.extend(entry);
        }
        rest = next;
    }
    kept.extend(rest);
    journal(w, kept);
}

fn no_limit(s: &mut Step) {
    s.asked.max_attempts = None;
}

fn one_more(s: &mut Step) {
    s.asked.max_attempts = s.asked.max_attempts.map(|max| max.saturating_add(1));
}

fn no_hook(s: &mut Step) {
    s.asked.reconciles = false;
}

fn nothing_needed(s: &mut Step) {
    s.asked.needs = Needs::Nothing;
}

fn same_print(s: &mut Step) {
    let print = before(s).fingerprint;
    s.asked.fingerprint = print;
    if !print.is_none() {
        s.brought.header.fingerprint = print;
    }
}

fn seen_as_stored(s: &mut Step) {
    s.claim = before(s);
}

fn half(print: Fingerprint) -> Vec<u8> {
    print.as_bytes()[..8].to_vec()
}

fn cut(key: &RecordKey) -> RecordKey {
    let mut digest = *key.digest().as_bytes();
    digest[31] = 0;
    let operation = key.operation().clone();
    RecordKey::new(
        key.prefix().into(),
        operation,
        KeyDigest::from_bytes(digest),
    )
}

fn listed(reply: Option<&mut ListReply>, change: fn(&mut Header, &mut Duration)) {
    for listed in reply.into_iter().flat_map(|reply| &mut reply.found) {
        change(&mut listed.header, &mut listed.left);
    }
}

pub(crate) type Flaw = (u8, &'static str, By, At);

/// Lists the flaws: the rule that each breaks, its name, what finds it, and where it is.
macro_rules! flaws {
    ($($rule:literal $name:ident: $by:ident => $at:expr;)+) => {
        pub(crate) static FLAWS: &[Flaw] = &[$(($rule, stringify!($name), $by, $at)),+];
    };
}

flaws! {
    1 grants_what_it_has_not_sent: Cases => Unsent;
    1 claims_a_moment_after_it_looked: Cases => Apart(CLAIM);
    1 completes_a_moment_after_it_looked: Cases => Apart(PASSED);
    1 completes_without_a_claim_a_moment_after_it_looked: Cases => Apart(BARE);
    1 releases_a_moment_after_it_looked: Cases => Apart(PLAIN);
    1 releases_with_a_journal_a_moment_after_it_looked: Cases => Apart(WITH);
    1 renews_a_moment_after_it_looked: Cases => Apart(RENEW);
    1 appends_a_moment_after_it_looked: Cases => Apart(APPEND);
    1 resolves_a_moment_after_it_looked: Cases => Apart(RESOLVE);
    1 renews_over_what_its_owner_did_meanwhile: Cases => ApartOfOwner(RENEW);
    1 appends_over_what_its_owner_did_meanwhile: Cases => ApartOfOwner(APPEND);
    1 releases_over_what_its_owner_did_meanwhile: Cases => ApartOfOwner(PLAIN);
    1 gives_two_callers_one_owner: Both => OwnersTwice;
    2 completes_for_every_owner: Both => See(COMPLETE, |s| !done(s), OfCaller);
    2 releases_for_every_owner: Both => See(RELEASE, pending, OfCaller);
    2 renews_for_every_owner: Both => See(RENEW, any, OfCaller);
    2 appends_for_every_owner: Both => See(APPEND, any, OfCaller);
    2 renews_what_is_released: Both => See(RENEW, released, AsClaim);
    2 appends_to_what_has_ended: Both => See(APPEND, mine, AsClaim);
    2 refuses_late_answers: Both => Say(COMPLETE, |s| theirs(s) && !done(s), OVERTAKEN);
    2 forgets_lost_claims: Sequences => Say(RENEW, absent, &Reply::Renew(RenewReply::Lost));
    2 forgets_lost_journals: Both => Say(APPEND, absent, &Reply::Append(AppendReply::Lost));
    2 writes_lost_journals_in_part: Cases => Put(APPEND, absent, |w, s| journal_again(w, s, false));
    2 writes_lost_reconciliations_as_claims: Sequences => Put(RENEW, absent, |w, _| w.header.state = PENDING);
    2 writes_the_journal_of_every_owner: Both => See(WITH, pending, OfCaller);
    2 releases_what_its_operator_has_not_seen: Sequences => Ask(WITH, any, |s| s.read = None);
    2 resolves_what_its_operator_has_not_seen: Sequences => Ask(RESOLVE, any, |s| s.read = None);
    2 completes_by_word_alone: Both => See(PASSED, |s| s.claim.owner == s.caller(), As(RELEASED));
    2 refuses_claims_that_are_not_as_said: Both =>
        Say(PASSED, |s| s.before.is_none_or(|(header, _)| header != s.claim), OVERTAKEN);
    2 refuses_completions_without_a_claim: Sequences => Say(BARE, any, OVERTAKEN);
    2 completes_reconciliations_of_others: Sequences => See(COMPLETE, reconciling, OfCaller);
    3 refuses_a_claim_sent_again: Both => See(CLAIM, |s| mine(s) && pending(s), OfNobody);
    3 counts_a_claim_sent_again: Both =>
        Put(CLAIM, |s| mine(s) && pending(s), |w, _| w.header.attempts = w.header.attempts.saturating_add(1));
    3 takes_an_attempt_back_twice: Both => See(RELEASE, released, As(PENDING));
    3 prolongs_an_answer_sent_again: Sequences => See(COMPLETE, |s| mine(s) && done(s), As(RELEASED));
    3 grants_a_claim_after_its_own_release: Sequences => See(CLAIM, released, OfNobody);
    3 refuses_a_reconciliation_sent_again: Sequences =>
        Say(CLAIM, |s| mine(s) && reconciling(s) && s.asked.reconciles, WAIT);
    3 refuses_a_resolution_sent_again: Sequences =>
        Say(RESOLVE, mine, &Reply::Resolve(ResolveReply::Changed));
    3 gives_a_reconciliation_back_once: Sequences =>
        Say(RELEASE, unknown, &Reply::Release(ReleaseReply::Superseded));
    3 looks_into_its_own_unknown_outcome: Sequences => See(CLAIM, unknown, OfNobody);
    4 overwrites_answers: Both => See(COMPLETE, done, As(RELEASED));
    4 releases_answers: Sequences => See(RELEASE, done, As(PENDING));
    4 runs_what_is_done: Both => See(CLAIM, done, As(RELEASED));
    4 cuts_large_answers: Both => Put(COMPLETE, any, |w, _| w.tail.truncate(8 << 10));
    4 keeps_answers_as_text: Both =>
        Put(COMPLETE, any, |w, _| w.tail = String::from_utf8_lossy(&w.tail).into_owned().into());
    4 refuses_a_success_over_an_unknown_outcome: Sequences =>
        Say(COMPLETE, |s| theirs(s) && unknown(s), OVERTAKEN);
    4 replaces_an_unknown_outcome_by_an_error: Sequences =>
        See(COMPLETE, |s| theirs(s) && unknown(s), As(RELEASED));
    4 resolves_what_was_not_seen: Both => Ask(RESOLVE, any, seen_as_stored);
    4 compares_the_owners_of_resolutions_only: Sequences =>
        Ask(RESOLVE, |s| before(s).owner == s.claim.owner, seen_as_stored);
    4 runs_what_was_found_out: Both =>
        See(CLAIM, |s| s.asked.reconciles && done(s) && !unknown(s), As(RELEASED));
    4 has_at_hand_what_was_reset: Sequences =>
        See(HAND, |s| released(s) && before(s).attempts == 0, As(ANSWERED));
    5 grants_a_millisecond_early: Both => See(CLAIM, any, Early);
    5 grants_a_millisecond_late: Both => See(CLAIM, any, Late);
    5 completes_a_millisecond_early: Both => See(COMPLETE, any, Early);
    5 resolves_a_millisecond_early: Sequences => See(RESOLVE, any, Early);
    5 renews_without_effect: Both => Put(RENEW, mine, life_as_before);
    5 appends_without_a_renewal: Both => Put(APPEND, mine, life_as_before);
    5 looks_into_live_claims: Sequences => See(CLAIM, |s| s.asked.reconciles && theirs(s), Lapsed);
    5 resolves_what_is_held: Sequences => See(RESOLVE, any, Lapsed);
    5 renews_no_reconciliation: Sequences => Say(RENEW, reconciling, &Reply::Renew(RenewReply::Lost));
    5 polls_claims_a_millisecond_late: Sequences => See(POLL, |s| !done(s), Late);
    6 keeps_records_for_ever: Both => Put(ALL, any, |w, _| w.life += Duration::from_hours(9_000));
    6 keeps_records_a_millisecond_longer: Both => Put(ALL, any, |w, _| w.life += MS);
    6 forgets_records_a_millisecond_early: Both =>
        See(ALL, |s| s.before.is_some_and(|(_, left)| left <= MS), Gone);
    6 prolongs_by_a_release: Both => Put(RELEASE, any, life_of_claim);
    6 keeps_what_nothing_remains_of: Both => Put(RELEASE, any, life_as_before);
    6 shortens_every_release: Sequences =>
        Put(RELEASE, any, |w, _| w.life = w.life.min(Duration::from_mins(1)));
    6 keeps_answers_like_claims: Both => Put(COMPLETE, |s| !absent(s), life_of_claim);
    6 keeps_resolutions_like_claims: Sequences => Put(RESOLVE, any, life_of_claim);
    6 has_answers_at_hand_too_long: Sequences => See(HAND, any, Late);
    7 forgets_on_release: Both => Put(RELEASE, any, |w, _| w.life = Duration::ZERO);
    7 gives_one_fence: Both => Put(CLAIM, |s| !mine(s), |w, _| w.header.fence = Fence::new(7));
    7 takes_fences_from_the_clock: Both => See(CLAIM, any, Attempts(0));
    7 lowers_fences_by_late_answers: Sequences =>
        Put(COMPLETE, |s| !absent(s), |w, s| w.header.fence = s.brought.header.fence);
    7 looks_into_an_attempt_under_its_fence: Both => Put(CLAIM, looks, fence_as_before);
    7 lowers_the_fence_of_a_reconciliation_sent_again: Sequences =>
        Put(CLAIM, |s| mine(s) && reconciling(s) && s.asked.reconciles, |w, _| w.header.fence = Fence::default());
    7 starts_under_the_fence_of_a_reconciliation: Sequences => Put(CLAIM, starts, fence_as_before);
    7 lowers_fences_by_resolutions: Both => Put(RESOLVE, any, |w, _| w.header.fence = Fence::default());
    8 counts_no_takeover: Both => See(CLAIM, |s| theirs(s) && pending(s), Attempts(1));
    8 counts_every_release: Both => Ask(RELEASE, any, |s| s.remains = Remains::Attempt);
    8 never_exhausts: Both => Ask(CLAIM, any, no_limit);
    8 allows_one_attempt_more: Both => Ask(CLAIM, any, one_more);
    8 exhausts_while_a_body_runs: Both =>
        Say(CLAIM, |s| theirs(s) && pending(s) && spent(s), &Reply::Claim(ClaimReply::Exhausted { attempts: 1 }));
    8 exhausts_reconciliations: Sequences =>
        Say(CLAIM, |s| s.asked.reconciles && lapsed(s) && spent(s), &Reply::Claim(ClaimReply::Exhausted { attempts: 1 }));
    8 forgets_attempts_by_answers: Sequences =>
        Put(COMPLETE, |s| !absent(s), |w, s| w.header.attempts = s.brought.header.attempts);
    8 counts_reconciliations: Sequences =>
        Put(CLAIM, looks, |w, _| w.header.attempts = w.header.attempts.saturating_add(1));
    8 starts_without_counting: Sequences => Put(CLAIM, starts, attempts_as_before);
    8 starts_without_a_limit: Sequences => Ask(CLAIM, starts, no_limit);
    8 takes_an_attempt_back_by_a_reconciliation: Sequences =>
        Put(RELEASE, |s| reconciling(s) && !s.remains.counts(), |w, _| w.header.attempts = w.header.attempts.saturating_sub(1));
    8 keeps_attempts_over_a_reset: Sequences => Put(RESOLVE, is_reset, attempts_as_before);
    8 forgets_attempts_by_resolutions: Both => Put(RESOLVE, any, |w, _| w.header.attempts = 0);
    9 ignores_the_fingerprints_of_claims: Both => Ask(CLAIM, pending, same_print);
    9 ignores_the_fingerprints_of_released_keys: Sequences => Ask(CLAIM, released, same_print);
    9 ignores_the_fingerprints_of_answers: Sequences => Ask(CLAIM, done, same_print);
    9 answers_another_request: Both => Ask(COMPLETE, any, same_print);
    9 compares_half_a_fingerprint: Cases =>
        Ask(CLAIM, |s| half(before(s).fingerprint) == half(s.print()), same_print);
    9 takes_no_fingerprint_for_another: Sequences =>
        Say(CLAIM, |s| s.print().is_none() && !absent(s), &Reply::Claim(ClaimReply::Mismatch));
    9 forgets_fingerprints_by_a_claim_without: Sequences => Put(CLAIM, any, print_of_caller);
    9 forgets_fingerprints_by_an_answer_without: Sequences => Put(COMPLETE, any, print_of_caller);
    9 forgets_fingerprints_by_resolutions: Sequences => Put(RESOLVE, any, print_of_caller);
    9 keeps_every_request: Both => Ask(RELEASE, any, |s| s.remains = s.remains.max(Remains::Request));
    9 frees_requests_that_stay: Sequences =>
        Ask(RELEASE, |s| s.remains == Remains::Request, |s| s.remains = Remains::Nothing);
    9 frees_requests_of_attempts_that_count: Sequences => Put(RELEASE, any, no_print);
    9 takes_every_claim_for_the_first: Both => See(CLAIM, any, Seen::NoPrint);
    9 ignores_types: Both => Ask(CLAIM, any, |s| s.asked.any_type = true);
    9 refuses_every_other_type: Sequences => Ask(CLAIM, any, |s| s.asked.any_type = false);
    9 compares_the_types_of_errors: Both =>
        Say(CLAIM, |s| released(s) && before(s).types != s.types(), &Reply::Claim(ClaimReply::OtherType));
    9 forgets_types_by_a_claim_without: Sequences => Put(CLAIM, any, types_of_caller);
    9 forgets_types_by_an_answer_without: Sequences => Put(COMPLETE, any, types_of_caller);
    9 keeps_the_types_of_the_first: Sequences => Put(CLAIM, |s| !absent(s), types_as_before);
    9 keeps_the_types_of_releases: Sequences => Put(RELEASE, any, types_as_before);
    9 forgets_the_types_of_releases: Sequences =>
        Put(RELEASE, any, |w, _| w.header.types = AnswerTypes::UNKNOWN);
    9 keeps_types_over_a_reset: Sequences => Put(RESOLVE, is_reset, types_as_before);
    9 has_answers_to_other_requests_at_hand: Both => Ask(HAND, any, same_print);
    10 overwrites_the_unreadable: Both => See(&[Op::Claim, Op::Complete, Op::Renew], any, Readable);
    10 overwrites_a_newer_layout: Both =>
        See(CLAIM, |s| matches!(s.unreadable, Some(Unreadable::Layout { .. })), Readable);
    10 polls_the_unreadable_as_absent: Both => See(POLL, any, Readable);
    10 releases_the_unreadable: Both =>
        Say(RELEASE, |s| s.unreadable.is_some(), &Reply::Release(ReleaseReply::Absent));
    10 resolves_the_unreadable: Both =>
        Say(RESOLVE, |s| s.unreadable.is_some(), &Reply::Resolve(ResolveReply::Resolved));
    11 ignores_prefixes: Cases =>
        Key(|key| RecordKey::new("flawed".into(), key.operation().clone(), *key.digest()));
    11 ignores_operations: Both =>
        Key(|key| RecordKey::new(key.prefix().into(), Operation::new("one"), *key.digest()));
    11 cuts_digests: Both => Key(cut);
    12 is_never_full: Cases => Room(&[]);
    12 refuses_answers_when_full: Cases => Room(&[Op::Claim, Op::Complete, Op::CompleteClaim]);
    12 refuses_resolutions_when_full: Cases => Room(&[Op::Claim, Op::Resolve]);
    12 refuses_renewals_when_full: Cases => Room(&[Op::Claim, Op::Renew]);
    13 runs_what_is_unknown: Sequences =>
        See(CLAIM, |s| unknown(s) && theirs(s) && !s.asked.reconciles, As(RELEASED));
    13 runs_what_was_to_be_found_out: Cases =>
        See(CLAIM, |s| reconciling(s) && lapsed(s) && !s.asked.reconciles, As(RELEASED));
    13 asks_no_caller_to_find_out: Both => Ask(CLAIM, any, no_hook);
    13 asks_no_caller_about_lapsed_claims: Sequences => Ask(CLAIM, pending, no_hook);
    13 asks_no_caller_about_released_attempts: Sequences => Ask(CLAIM, released, no_hook);
    13 starts_on_a_stale_verdict: Sequences =>
        Ask(CLAIM, |s| s.asked.needs == Needs::Verdict, nothing_needed);
    13 releases_reconciliations: Sequences => See(RELEASE, |s| mine(s) && reconciling(s), As(PENDING));
    13 has_at_hand_what_is_not_final: Sequences => See(HAND, unknown, As(ANSWERED));
    14 notifies_no_watch: Both => Watches(|_| false);
    14 notifies_no_watch_of_answers: Both => Watches(|s| !COMPLETE.contains(&s.op));
    14 notifies_no_watch_of_resolutions: Sequences => Watches(|s| s.op != Op::Resolve);
    14 notifies_no_watch_of_lapsed_claims: Sequences => Watches(|s| !lapsed(s) || done(s));
    14 notifies_the_first_watch_only: Both => FirstWatch;
    15 notifies_no_listener: Both => Listeners(|_| false);
    15 notifies_one_listener: Cases => OneListener;
    15 notifies_of_resets_only: Sequences => Listeners(is_reset);
    15 never_begins_to_notify: Both => NeverHears;
    16 lists_every_state: Sequences => List(|request, _| request.filter = EntryFilter::Any);
    16 lists_every_attempt: Sequences => List(|request, _| request.min_attempts = 0);
    16 lists_other_operations: Both => List(|request, _| request.operation = None);
    16 lists_no_unreadable_ones: Sequences =>
        List(|_, reply| reply.into_iter().for_each(|reply| reply.unreadable = 0));
    16 lists_all_but_the_last_of_a_step: Both =>
        List(|_, reply| reply.into_iter().for_each(|reply| drop(reply.found.pop())));
    16 lists_the_full_life: Sequences => List(|_, reply| listed(reply, |header, left| *left = header.retain));
    16 lists_one_step: Both => List(|_, reply| reply.into_iter().for_each(|reply| reply.next = None));
    16 lists_from_the_start_where_lost: Both =>
        List(|request, _| request.after = request.after.take().filter(|at| at.len() == 64));
    16 lists_claims_without_their_journals: Sequences =>
        List(|_, reply| listed(reply, |header, _| header.journal = JournalKind::None));
    17 begins_a_record_where_one_is_needed: Both =>
        Ask(CLAIM, |s| absent(s) && s.asked.needs == Needs::Record, nothing_needed);
    18 denies_its_journals: Both => DeniesJournals;
    18 appends_again: Both => Put(APPEND, any, |w, s| journal_again(w, s, true));
    18 cuts_journals_by_late_appends: Sequences =>
        Put(APPEND, any, |w, s| journal(w, s.journal.as_bytes().to_vec()));
    18 cuts_long_journals: Both => Put(APPEND, any, |w, _| w.tail.truncate(8 << 10));
    18 ends_with_the_journal_that_it_is_given: Both =>
        Put(COMPLETE, |s| !absent(s), |w, s| w.tail = s.brought.as_bytes()[56..].to_vec());
    18 forgets_journals_by_claims: Both => Put(CLAIM, any, |w, _| journal(w, Vec::new()));
    18 forgets_journals_by_renewals: Both => Put(RENEW, any, |w, _| journal(w, Vec::new()));
    18 forgets_journals_by_releases: Both => Put(PLAIN, any, |w, _| journal(w, Vec::new()));
    18 keeps_the_old_journal_over_a_release: Both => Put(WITH, any, journal_as_before);
    18 frees_requests_of_journals: Sequences =>
        Put(RELEASE, |s| before(s).journal == JournalKind::Steps, no_print);
    18 records_no_lapsed_attempts: Both => Ask(CLAIM, any, |s| s.asked.records_attempts = false);
    18 records_attempts_that_were_released: Both =>
        See(CLAIM, |s| s.asked.records_attempts && released(s) && theirs(s), As(PENDING));
    18 forgets_labels_by_claims: Both => Put(CLAIM, any, without_labels);
    18 takes_recorded_attempts_for_steps: Cases => See(RELEASE, any, Seen::Steps);
}
