//! The layout is frozen, and values that are no records are refused.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::identity::canonical::vectors::hex;
use crate::identity::fingerprint::Fingerprint;

fn header(state: State) -> Header {
    let (owner, fence) = (
        Owner::from_bytes([7; 16]),
        Fence::new(1_767_225_600_123_456),
    );
    Header {
        attempts: 3,
        fingerprint: Fingerprint::from_bytes([9; 16]),
        types: AnswerTypes::from_bytes([0x3b, 0x72, 0x80, 0x01]),
        ..Header::new(state, owner, fence, Duration::from_hours(24))
    }
}

const LEASE: Duration = Duration::from_secs(30);
const PENDING: State = State::Pending { lease: LEASE };
const RECONCILING: State = State::Reconciling { lease: LEASE };

const fn done(outcome: OutcomeKind) -> State {
    let schema = 0xdead_beef;
    State::Done { outcome, schema }
}

/// The states that have an answer, or had one.
const ANSWERED: [State; 3] = [
    done(OutcomeKind::Value),
    done(OutcomeKind::Error),
    done(OutcomeKind::Tombstone),
];
const UNKNOWN: State = done(OutcomeKind::Unknown);

#[test]
fn each_state_has_its_byte_and_comes_back() {
    let unanswered = [PENDING, RECONCILING, State::Released, UNKNOWN];
    for (state, byte) in (unanswered.into_iter().chain(ANSWERED)).zip(*b"PQRUDET") {
        let bytes = header(state).encode();
        assert_eq!(bytes[1], byte, "{state:?}");
        assert_eq!(Header::decode(&bytes), Ok(header(state)));
    }
}

#[test]
fn the_layout_is_frozen() {
    let hex = hex(&header(PENDING).encode());
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
    let with_steps = |state| Header {
        journal: JournalKind::Steps,
        ..header(state)
    };
    for header in [PENDING, RECONCILING, State::Released, UNKNOWN].map(with_steps) {
        let bytes = [&header.encode()[..], b"steps"].concat();
        assert_eq!(bytes[0], b'3');
        let record = Record::decode(bytes.into()).unwrap();
        assert_eq!((record.header, record.body()), (header, &b""[..]));
        assert_eq!(record.journal().as_bytes(), &b"steps"[..]);
    }
    for (header, byte) in ANSWERED.map(with_steps).iter().zip(*b"DET") {
        let refused = Err(Unreadable::State { byte });
        assert_eq!(Header::decode(&header.encode()), refused);
    }
}

#[test]
fn an_answer_has_its_attempts_behind_it() {
    let attempts = Journal::new(Bytes::from_static(b"\0\0\0\x03a12"));
    for header in ANSWERED.map(header) {
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
    let header = header(ANSWERED[0]);
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
    let (pending, reconciling) = (header(PENDING), header(RECONCILING));
    for (age, lease_left) in [(0, 30_000), (29_999, 1), (30_000, 0), (86_400_000, 0)] {
        let left = pending.retain.saturating_sub(Duration::from_millis(age));
        let lease_left = Duration::from_millis(lease_left);
        for header in [pending, reconciling] {
            assert_eq!(header.lease_left(left), lease_left, "after {age} ms");
            assert_eq!(header.lapsed(left), lease_left.is_zero());
        }
        // A reconciliation is unknown as soon as its lease is over, and a claim never.
        assert_eq!(reconciling.is_unknown(left), lease_left.is_zero());
        assert!(!pending.is_unknown(left) && !header(State::Released).is_unknown(left));
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
