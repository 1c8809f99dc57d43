//! Invariants of every record, every owner and every request: each operation on each of some
//! thousand combinations.

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;

use super::*;

const LEASE: Duration = Duration::from_secs(30);
const RETAIN: Duration = Duration::from_hours(24);
const NOW_US: u64 = 2_000;

const A: Owner = Owner::from_bytes([1; 16]);
const B: Owner = Owner::from_bytes([2; 16]);
const ASKED: Fingerprint = Fingerprint::from_bytes([3; 16]);
const OTHER: Fingerprint = Fingerprint::from_bytes([4; 16]);

const fn done(outcome: OutcomeKind, schema: u32) -> State {
    State::Done { outcome, schema }
}

const STATES: [State; 8] = [
    State::Pending { lease: LEASE },
    State::Reconciling { lease: LEASE },
    State::Released,
    done(OutcomeKind::Value, 7),
    done(OutcomeKind::Error, 7),
    done(OutcomeKind::Tombstone, 7),
    done(OutcomeKind::Unknown, 1),
    done(OutcomeKind::Unknown, UNDECIDED),
];

/// A record of A and the life that it has left: fresh, and with its lease over.
fn records() -> impl Iterator<Item = (Record, Duration)> {
    STATES.into_iter().flat_map(|state| {
        [0, 1, 3].into_iter().flat_map(move |attempts| {
            [ASKED, Fingerprint::NONE]
                .into_iter()
                .flat_map(move |fingerprint| {
                    [RETAIN, RETAIN.saturating_sub(LEASE)].map(|left| {
                        let header = Header {
                            state,
                            owner: A,
                            fence: Fence::new(NOW_US + 9),
                            attempts,
                            retain: RETAIN,
                            fingerprint,
                            types: AnswerTypes::UNKNOWN,
                        };
                        (record(&header), left)
                    })
                })
        })
    })
}

fn record(header: &Header) -> Record {
    Record::decode(Bytes::copy_from_slice(&header.encode())).expect("a header is a record")
}

fn requests() -> impl Iterator<Item = ClaimRequest> {
    [A, B].into_iter().flat_map(|owner| {
        [ASKED, Fingerprint::NONE, OTHER]
            .into_iter()
            .flat_map(move |fingerprint| {
                [
                    None,
                    NonZeroU16::new(1),
                    NonZeroU16::new(3),
                    NonZeroU16::new(4),
                ]
                .into_iter()
                .flat_map(move |max_attempts| {
                    [false, true].map(|reconciles| ClaimRequest {
                        owner,
                        fingerprint,
                        types: AnswerTypes::UNKNOWN,
                        any_type: false,
                        lease: LEASE,
                        retain: RETAIN,
                        max_attempts,
                        reconciles,
                        needs: Needs::Nothing,
                        dated: true,
                    })
                })
            })
    })
}

/// Every claim of every record: the record, its life, the request, and the result.
fn each_claim(
    mut check: impl FnMut(&Header, Duration, &ClaimRequest, &ClaimReply, Option<&Header>),
) {
    for (record, left) in records() {
        for request in requests() {
            let current = Some(Current {
                record: &record,
                left,
            });
            let (reply, write) = claim(current, &request, NOW_US);
            check(&record.header, left, &request, &reply, write.as_ref());
        }
    }
}

#[test]
fn a_claim_is_written_exactly_where_it_is_granted() {
    each_claim(|header, left, request, reply, write| {
        let Some(write) = write else {
            assert!(!matches!(
                reply,
                ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }
            ));
            return;
        };
        let expected = match write.state {
            State::Pending { .. } => ClaimReply::Granted {
                fence: write.fence,
                attempt: write.attempts,
                fresh: header.fingerprint.is_none(),
            },
            State::Reconciling { .. } => ClaimReply::Reconcile {
                fence: write.fence,
                attempts: write.attempts,
            },
            other => panic!("{request:?} wrote {other:?}"),
        };
        assert_eq!(*reply, expected);
        assert_eq!((write.owner, write.retain), (request.owner, request.retain));
        assert!(header.lapsed(left) || header.owner == request.owner);
        assert!(header.fingerprint.is_none() || write.fingerprint == header.fingerprint);
    });
}

#[test]
fn an_unknown_outcome_is_granted_only_to_who_can_find_out_or_has() {
    each_claim(|header, left, request, reply, _| {
        let has_found_out =
            matches!(header.state, State::Reconciling { .. }) && header.owner == request.owner;
        if header.is_unknown(left) && !has_found_out {
            match reply {
                ClaimReply::Done { .. } | ClaimReply::Mismatch => {}
                ClaimReply::Reconcile { .. } => assert!(request.reconciles),
                other => panic!("{request:?} of {header:?} was told {other:?}"),
            }
        }
    });
}

#[test]
fn who_can_find_out_is_granted_the_body_only_where_nobody_ran() {
    each_claim(|header, _, request, reply, _| {
        if let (ClaimReply::Granted { attempt, .. }, true) = (reply, request.reconciles) {
            let again =
                header.owner == request.owner && matches!(header.state, State::Pending { .. });
            assert!(again || *attempt == 1, "{request:?} of {header:?}");
        }
    });
}

#[test]
fn finding_out_counts_no_attempt_and_starting_does() {
    each_claim(|header, _, request, reply, write| {
        let Some(write) = write else { return };
        let again = header.owner == request.owner
            && matches!(
                (header.state, reply),
                (State::Pending { .. }, ClaimReply::Granted { .. })
                    | (State::Reconciling { .. }, ClaimReply::Reconcile { .. })
            );
        let started = matches!(reply, ClaimReply::Granted { .. }) && !again;
        assert_eq!(write.attempts, header.attempts + u16::from(started));
        assert_eq!(
            write.fence > header.fence,
            !again,
            "{request:?} of {header:?}"
        );
        let max = request.max_attempts.map_or(u16::MAX, NonZeroU16::get);
        assert!(!started || write.attempts <= max);
    });
}

#[test]
fn a_claim_sent_again_is_answered_alike() {
    each_claim(|_, _, request, reply, write| {
        let Some(write) = write else { return };
        let record = record(write);
        let current = Some(Current {
            record: &record,
            left: write.retain,
        });
        let (again, kept) = claim(current, request, NOW_US + 100);
        let mut expected = reply.clone();
        // The record has the fingerprint by now, from either claim.
        if let ClaimReply::Granted { fresh, .. } = &mut expected {
            *fresh &= write.fingerprint.is_none();
        }
        assert_eq!((again, kept.as_ref()), (expected, Some(write)));
    });
}

const REMAINS: [Remains; 3] = [Remains::Nothing, Remains::Request, Remains::Attempt];

#[test]
fn nothing_is_granted_to_an_owner_that_gave_its_claim_back() {
    each_claim(|header, left, request, reply, write| {
        let Some(write) = write else { return };
        for remains in REMAINS {
            let claimed = record(write);
            let current = Some(Current {
                record: &claimed,
                left: write.retain,
            });
            let (released, given_back) = release(current, request.owner, remains);
            assert_eq!(released, ReleaseReply::Released);
            let given_back = record(&given_back.expect("a claim is given back"));
            let current = Some(Current {
                record: &given_back,
                left: write.retain,
            });
            let (late, kept) = claim(current, request, NOW_US);
            assert_eq!(kept, None, "{reply:?} of {header:?} with {left:?} left");
            match late {
                ClaimReply::Running { lease_left } => assert!(lease_left.is_zero()),
                ClaimReply::Done { record, .. } => assert_eq!(record, given_back),
                other => panic!("{request:?} was told {other:?}"),
            }
        }
    });
}

#[test]
fn an_answer_is_lost_only_to_an_answer_or_to_who_may_run() {
    for (there, left) in records() {
        for owner in [A, B] {
            for state in STATES.into_iter().skip(3) {
                let end = Header {
                    state,
                    owner,
                    fingerprint: ASKED,
                    ..there.header
                };
                let current = Some(Current {
                    record: &there,
                    left,
                });
                let (reply, write) = complete(current, &end);
                let (header, mine) = (&there.header, owner == A);
                let unknown = matches!(
                    header.state,
                    State::Done {
                        outcome: OutcomeKind::Unknown,
                        ..
                    }
                );
                let stored = match header.state {
                    State::Done { .. } => unknown && end.is_success(),
                    State::Released => true,
                    _ => mine || header.lapsed(left) && end.is_success(),
                };
                assert_eq!(write.is_some(), stored, "{end:?} over {header:?}");
                if stored {
                    assert_eq!(reply, CompleteReply::Stored { late: !mine });
                }
            }
        }
    }
}

#[test]
fn a_release_makes_a_body_possible_again_and_an_unknown_outcome_no_less_unknown() {
    for (there, left) in records() {
        let current = Some(Current {
            record: &there,
            left,
        });
        for remains in REMAINS {
            let (_, write) = release(current, A, remains);
            let Some(write) = write else { continue };
            let kept = there.header.fingerprint;
            match there.header.state {
                State::Pending { .. } => {
                    assert_eq!(write.state, State::Released);
                    let uncounted = u16::from(remains != Remains::Attempt);
                    let attempts = there.header.attempts.saturating_sub(uncounted);
                    assert_eq!(write.attempts, attempts);
                    let bare = remains == Remains::Nothing && attempts == 0;
                    let expected = if bare { Fingerprint::NONE } else { kept };
                    assert_eq!(write.fingerprint, expected);
                }
                State::Reconciling { .. } => {
                    assert!(write.is_unknown(left));
                    assert_eq!(
                        (write.attempts, write.fingerprint),
                        (there.header.attempts, kept)
                    );
                }
                other => panic!("{other:?} was given back"),
            }
        }
    }
}

#[test]
fn a_resolution_replaces_what_was_seen_and_nothing_that_is_held() {
    for (there, left) in records() {
        let header = there.header;
        let current = Some(Current {
            record: &there,
            left,
        });
        let near = [
            Header {
                fence: header.fence.next(0),
                ..header
            },
            Header {
                attempts: header.attempts + 1,
                ..header
            },
            Header {
                owner: Owner::from_bytes([9; 16]),
                ..header
            },
            Header {
                fingerprint: OTHER,
                ..header
            },
            Header {
                retain: RETAIN * 2,
                ..header
            },
        ];
        for state in STATES.into_iter().skip(2) {
            let new = Header {
                state,
                owner: B,
                fence: Fence::new(1),
                attempts: 77,
                retain: LEASE,
                fingerprint: OTHER,
                types: AnswerTypes::UNKNOWN,
            };
            for seen in near {
                let changed = (ResolveReply::Changed, None);
                assert_eq!(resolve(current, &seen, &new), changed);
            }
            let (reply, write) = resolve(current, &header, &new);
            let lease_left = header.lease_left(left);
            if !lease_left.is_zero() {
                assert_eq!(reply, ResolveReply::Running { lease_left });
                assert_eq!(write, None);
                continue;
            }
            assert_eq!(reply, ResolveReply::Resolved);
            let write = write.expect("it is resolved");
            let attempts = if state == State::Released {
                0
            } else {
                header.attempts
            };
            let fingerprint = known(header.fingerprint, OTHER);
            let (fence, attempts) = (header.fence, attempts);
            assert_eq!(
                write,
                Header {
                    fence,
                    attempts,
                    fingerprint,
                    ..new
                }
            );
            let there = record(&write);
            let current = Some(Current {
                record: &there,
                left,
            });
            assert_eq!(
                resolve(current, &header, &new),
                (ResolveReply::Resolved, None)
            );
        }
    }
}
