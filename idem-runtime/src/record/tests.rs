//! The layout is frozen, and values that are no records are refused.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::identity::fingerprint::Fingerprint;

fn header(state: State) -> Header {
    Header {
        state,
        owner: Owner::from_bytes([7; 16]),
        fence: Fence::new(1_767_225_600_123_456),
        attempts: 3,
        retain: Duration::from_hours(24),
        fingerprint: Fingerprint::from_bytes([9; 16]),
        types: AnswerTypes::from_bytes([0x3b, 0x72, 0x80, 0x01]),
        journal: JournalKind::None,
    }
}

#[test]
fn every_state_survives_its_bytes() {
    for state in [
        State::Pending {
            lease: Duration::from_secs(30),
        },
        State::Reconciling {
            lease: Duration::from_millis(1),
        },
        State::Released,
        State::Done {
            outcome: OutcomeKind::Value,
            schema: 0xdead_beef,
        },
        State::Done {
            outcome: OutcomeKind::Error,
            schema: 1,
        },
        State::Done {
            outcome: OutcomeKind::Unknown,
            schema: 0,
        },
        State::Done {
            outcome: OutcomeKind::Tombstone,
            schema: u32::MAX,
        },
    ] {
        assert_eq!(Header::decode(&header(state).encode()), Ok(header(state)));
    }
}

#[test]
fn the_layout_is_frozen() {
    let bytes = header(State::Pending {
        lease: Duration::from_secs(30),
    })
    .encode();
    let hex = bytes.map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(
        hex,
        concat!(
            "3250",
            "07070707070707070707070707070707",
            "06474846222240",
            "0003",
            "00007530",
            "0005265c00",
            "09090909090909090909090909090909",
            "3b728001"
        )
    );
}

#[test]
fn each_state_has_its_byte() {
    let lease = Duration::from_secs(30);
    let done = |outcome| State::Done { outcome, schema: 0 };
    for (state, byte) in [
        (State::Pending { lease }, b'P'),
        (State::Reconciling { lease }, b'Q'),
        (State::Released, b'R'),
        (done(OutcomeKind::Value), b'D'),
        (done(OutcomeKind::Error), b'E'),
        (done(OutcomeKind::Unknown), b'U'),
        (done(OutcomeKind::Tombstone), b'T'),
    ] {
        assert_eq!(header(state).encode()[1], byte, "{state:?}");
    }
}

#[test]
fn a_value_that_is_no_record_is_refused() {
    let good = header(State::Released).encode();
    assert_eq!(Header::decode(b""), Err(Unreadable::Short { bytes: 0 }));
    assert_eq!(
        Header::decode(&good[..55]),
        Err(Unreadable::Short { bytes: 55 })
    );
    for byte in [b'1', b'5'] {
        let mut other = good;
        other[0] = byte;
        assert_eq!(Header::decode(&other), Err(Unreadable::Layout { byte }));
    }
    let mut strange = good;
    strange[1] = b'Z';
    assert_eq!(
        Header::decode(&strange),
        Err(Unreadable::State { byte: b'Z' })
    );
    assert_eq!(
        Header::decode(b"{\"status\":\"done\"}"),
        Err(Unreadable::Layout { byte: b'{' })
    );
}

#[test]
fn a_journal_has_a_layout_of_its_own_and_no_answer() {
    for state in [
        State::Pending {
            lease: Duration::from_secs(30),
        },
        State::Reconciling {
            lease: Duration::from_secs(30),
        },
        State::Released,
        State::Done {
            outcome: OutcomeKind::Unknown,
            schema: 3,
        },
    ] {
        let with_journal = Header {
            journal: JournalKind::Steps,
            ..header(state)
        };
        let bytes = [&with_journal.encode()[..], b"steps"].concat();
        assert_eq!(bytes[0], b'3');
        let record = Record::decode(bytes.into()).unwrap();
        assert_eq!((record.header, record.body()), (with_journal, &b""[..]));
        assert_eq!(record.journal().as_bytes(), &b"steps"[..]);
    }
    for (outcome, byte) in [
        (OutcomeKind::Value, b'D'),
        (OutcomeKind::Error, b'E'),
        (OutcomeKind::Tombstone, b'T'),
    ] {
        let answered = Header {
            journal: JournalKind::Steps,
            ..header(State::Done { outcome, schema: 1 })
        };
        assert_eq!(
            Header::decode(&answered.encode()),
            Err(Unreadable::State { byte })
        );
    }
}

#[test]
fn an_answer_has_its_attempts_behind_it() {
    let attempts = Journal::new(Bytes::from_static(b"\0\0\0\x03a12"));
    for outcome in [
        OutcomeKind::Value,
        OutcomeKind::Error,
        OutcomeKind::Tombstone,
    ] {
        let header = header(State::Done { outcome, schema: 1 });
        let mut bytes = [&[0; HEADER][..], b"answer"].concat();
        Record::append_attempts(&mut bytes, header, &attempts, None);
        assert_eq!(bytes[0], b'4');
        let record = Record::decode(bytes.clone().into()).unwrap();
        assert_eq!(
            (record.body(), record.journal()),
            (&b"answer"[..], attempts.clone())
        );
        // A listing has the header alone.
        let listed = Record::new(record.header, Bytes::copy_from_slice(&bytes[..HEADER]));
        assert_eq!(
            (listed.body(), listed.journal()),
            (&b""[..], Journal::default())
        );
        for len in HEADER + 1..HEADER + 4 {
            let cut = Record::decode(Bytes::copy_from_slice(&bytes[..len]));
            assert_eq!(cut, Err(Unreadable::Short { bytes: len }));
        }
        let mut bytes = [&[0; HEADER][..], b"answer"].concat();
        Record::append_attempts(&mut bytes, header, &Journal::default(), None);
        assert_eq!((bytes[0], bytes.len()), (b'2', HEADER + 6));
    }
}

#[test]
fn a_label_gives_way_to_the_attempts_behind_an_answer() {
    let label = label::KeyLabel::new("order …4711").unwrap().entry();
    let attempt = journal::JournalEntry {
        kind: journal::EntryKind::Attempt,
        ..label.clone()
    };
    let attempts = Journal::default().with(&attempt);
    let labelled = Journal::default().with(&label).with(&attempt);
    let header = header(State::Done {
        outcome: OutcomeKind::Value,
        schema: 1,
    });
    let least = HEADER + 6 + 4;
    let with_attempts = least + attempts.as_bytes().len();
    let whole = least + labelled.as_bytes().len();
    for (max, kept) in [
        (whole, labelled.clone()),
        (whole - 1, attempts.clone()),
        (with_attempts, attempts),
        (with_attempts - 1, Journal::default()),
    ] {
        let mut bytes = [&[0; HEADER][..], b"answer"].concat();
        Record::append_attempts(&mut bytes, header, &labelled, Some(max));
        assert!(bytes.len() <= max);
        let record = Record::decode(bytes.into()).unwrap();
        assert_eq!((record.body(), record.journal()), (&b"answer"[..], kept));
    }
}

#[test]
fn a_lease_follows_from_the_remaining_life() {
    let header = header(State::Pending {
        lease: Duration::from_secs(30),
    });
    let day = Duration::from_hours(24);
    assert_eq!(header.lease_left(day), Duration::from_secs(30));
    assert_eq!(
        header.lease_left(day.saturating_sub(Duration::from_millis(29_999))),
        Duration::from_millis(1)
    );
    assert_eq!(
        header.lease_left(day.saturating_sub(Duration::from_secs(30))),
        Duration::ZERO
    );
    assert_eq!(header.lease_left(Duration::ZERO), Duration::ZERO);
}

#[test]
fn a_reconciliation_is_unknown_as_soon_as_its_lease_is_over() {
    let lease = Duration::from_secs(30);
    let header = header(State::Reconciling { lease });
    let day = Duration::from_hours(24);
    for (age, unknown) in [(0, false), (29_999, false), (30_000, true), (30_001, true)] {
        let left = day.saturating_sub(Duration::from_millis(age));
        assert_eq!(header.lapsed(left), unknown, "after {age} ms");
        assert_eq!(header.is_unknown(left), unknown, "after {age} ms");
    }
    let left = header.lease_left(day);
    assert_eq!(left, lease);
}

#[test]
fn a_claim_whose_lease_is_over_is_not_unknown() {
    let lease = Duration::from_secs(30);
    for state in [State::Pending { lease }, State::Released] {
        assert!(!header(state).is_unknown(Duration::ZERO), "{state:?}");
    }
}

#[test]
fn a_fence_grows_even_when_the_clock_steps_back() {
    let fence = Fence::new(500);
    assert_eq!(fence.next(1_000).get(), 1_000);
    assert_eq!(fence.next(3).get(), 501);
}

#[test]
fn an_operators_owner_differs_from_that_of_an_attempt() {
    let operators = [Owner::by_hand(), Owner::by_hand()];
    assert!(operators.iter().all(Owner::is_by_hand));
    assert_ne!(operators[0], operators[1], "a repeat is known by it");
    assert!(!Owner::random().is_by_hand());
}
