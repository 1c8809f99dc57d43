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

const JOURNAL: &[u8] = b"steps";
const ATTEMPTS: &[u8] = b"\0\0\0\x03a12";

/// A record of A and the life that it has left: fresh, and with its lease over; with and without a journal, where it
/// may have one.
fn records() -> impl Iterator<Item = (Record, Duration)> {
    let headers = STATES.into_iter().flat_map(|state| {
        [0, 1, 3].into_iter().flat_map(move |attempts| {
            [ASKED, Fingerprint::NONE].map(|fingerprint| Header {
                state,
                owner: A,
                fence: Fence::new(NOW_US + 9),
                attempts,
                retain: RETAIN,
                fingerprint,
                types: AnswerTypes::UNKNOWN,
                journal: JournalKind::None,
            })
        })
    });
    let with_journal = headers.clone().filter(|header| !answered(header.state));
    let with_journal = with_journal.map(|header| Header {
        journal: JournalKind::Steps,
        ..header
    });
    let with_attempts = headers.clone().map(|header| Header {
        journal: JournalKind::Attempts,
        ..header
    });
    headers
        .chain(with_journal)
        .chain(with_attempts)
        .flat_map(|header| {
            [RETAIN, RETAIN.saturating_sub(LEASE)].map(|left| (record(&header), left))
        })
}

/// Whether a record in this state has an answer, which replaces its journal.
fn answered(state: State) -> bool {
    matches!(state, State::Done { outcome, .. } if outcome != OutcomeKind::Unknown)
}

fn record(header: &Header) -> Record {
    let journal = journal(header);
    let mut bytes = header.encode().to_vec();
    if answered(header.state) {
        Record::append_attempts(&mut bytes, *header, &journal, None);
    } else {
        bytes.extend(journal.as_bytes());
    }
    Record::decode(bytes.into()).expect("it is a record")
}

/// The journal of a record of [`records`].
fn journal(header: &Header) -> Journal {
    let bytes = match header.journal {
        JournalKind::None => b"",
        JournalKind::Attempts => ATTEMPTS,
        JournalKind::Steps => JOURNAL,
    };
    Journal::new(Bytes::from_static(bytes))
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
                        records_attempts: false,
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
            if let Some(write) = &write {
                assert_eq!(write.journal(), journal(&record.header));
            }
            let write = write.as_ref().map(|write| &write.header);
            check(&record.header, left, &request, &reply, write);
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
                journal: journal(header),
            },
            State::Reconciling { .. } => ClaimReply::Reconcile {
                fence: write.fence,
                attempts: write.attempts,
                journal: journal(header),
            },
            other => panic!("{request:?} wrote {other:?}"),
        };
        assert_eq!(*reply, expected);
        assert_eq!((write.owner, write.retain), (request.owner, request.retain));
        assert_eq!(write.journal, header.journal);
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
        let kept = kept.map(|kept| kept.header);
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
                    journal: match there.header.journal {
                        JournalKind::Steps if answered(state) => JournalKind::None,
                        kind => kind,
                    },
                    ..there.header
                };
                let current = Some(Current {
                    record: &there,
                    left,
                });
                let (reply, write) = complete(current, &record(&end));
                if let Some(write) = &write {
                    assert_eq!(
                        write.journal(),
                        journal(&end),
                        "{end:?} over {header:?}",
                        header = there.header
                    );
                }
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
                    let bare = remains == Remains::Nothing
                        && attempts == 0
                        && there.header.journal != JournalKind::Steps;
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
                journal: JournalKind::None,
            };
            let new = record(&new);
            for seen in near {
                let changed = (ResolveReply::Changed, None);
                assert_eq!(resolve(current, &seen, None, &new), changed);
            }
            let (reply, write) = resolve(current, &header, None, &new);
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
                write.header,
                Header {
                    fence,
                    attempts,
                    fingerprint,
                    // Only an answer, and a reset that says so, drop the steps.
                    journal: if new.header.is_done_unknown() && !answered(header.state) {
                        header.journal
                    } else {
                        JournalKind::None
                    },
                    ..new.header
                }
            );
            let there = write;
            let current = Some(Current {
                record: &there,
                left,
            });
            assert_eq!(
                resolve(current, &header, None, &new),
                (ResolveReply::Resolved, None)
            );
        }
    }
}

#[test]
fn a_release_keeps_the_journal_and_its_request() {
    for (record, left) in records() {
        let header = record.header;
        for remains in [Remains::Nothing, Remains::Request, Remains::Attempt] {
            let current = Some(Current::new(&record, left));
            let (_, Some(write)) = release(current, A, remains) else {
                continue;
            };
            assert_eq!(write.journal, header.journal);
            if header.journal == JournalKind::Steps {
                assert_eq!(write.fingerprint, header.fingerprint);
                assert_eq!(released_life(&header, remains), None);
            }
        }
    }
}

#[test]
fn a_lapsed_attempt_is_recorded_by_the_claim_that_takes_over() {
    let mut recorded = 0;
    for (there, left) in records() {
        for request in requests() {
            let current = Some(Current::new(&there, left));
            let plain = claim(current, &request, NOW_US);
            let request = ClaimRequest {
                records_attempts: true,
                ..request
            };
            let (reply, write) = claim(current, &request, NOW_US);
            let Some(write) = write else {
                assert_eq!((reply, None), plain);
                continue;
            };
            let header = there.header;
            let takes_over =
                header.owner != request.owner && matches!(header.state, State::Pending { .. });
            if !takes_over {
                assert_eq!((reply, Some(write)), plain);
                continue;
            }
            recorded += 1;
            let journal = attempt::lapsed(&there.journal(), &header, NOW_US);
            assert_eq!(write.journal(), journal);
            if header.journal != JournalKind::Steps {
                let attempts =
                    Journal::new(journal.as_bytes().slice(there.journal().as_bytes().len()..))
                        .recorded_attempts();
                assert_eq!((attempts.len(), attempts[0].owner), (1, header.owner));
            }
            let (ClaimReply::Granted { journal: told, .. }
            | ClaimReply::Reconcile { journal: told, .. }) = reply
            else {
                panic!("it is written");
            };
            assert_eq!(told, journal);
        }
    }
    assert!(recorded > 0);
}

#[test]
fn only_the_owner_of_a_claim_appends() {
    let longer = Journal::new(Bytes::from_static(b"steps and more"));
    for (record, left) in records() {
        let header = record.header;
        if header.journal == JournalKind::Attempts {
            continue;
        }
        let current = Some(Current::new(&record, left));
        for owner in [A, B] {
            let claim = Header { owner, ..header };
            let (reply, write) = append(current, &claim, &longer);
            let held = matches!(
                header.state,
                State::Pending { .. } | State::Reconciling { .. }
            );
            if held && owner == A {
                let written = Header {
                    journal: JournalKind::Steps,
                    ..header
                };
                assert_eq!(
                    (reply, write),
                    (AppendReply::Appended, Some((written, longer.clone())))
                );
            } else {
                assert_eq!((reply, write), (AppendReply::Lost, None));
            }
        }
        // An earlier append, which arrives late.
        let shorter = Journal::new(Bytes::from_static(b"st"));
        if let (AppendReply::Appended, Some((written, kept))) = append(current, &header, &shorter) {
            let expected = match header.journal {
                JournalKind::None => shorter,
                _ => journal(&header),
            };
            assert_eq!((written.journal, kept), (JournalKind::Steps, expected));
        }
    }
}

#[test]
fn a_lost_claim_is_written_again_with_its_journal() {
    let claim = Header::new(STATES[0], A, Fence::new(1), RETAIN);
    let journal = Journal::new(Bytes::from_static(JOURNAL));
    let written = Header {
        journal: JournalKind::Steps,
        ..claim
    };
    assert_eq!(
        append(None, &claim, &journal),
        (AppendReply::Reasserted, Some((written, journal.clone())))
    );
}
