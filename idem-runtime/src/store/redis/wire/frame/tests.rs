//! Frames, compared with those of the client library.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    let deep = "*1\r\n".repeat(100_000);
    let endless = "+".repeat(100_000);
    for bytes in [
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        "$\r\n",
        "$-2\r\n",
        "$1x\r\n",
        "$?\r\n",
        ":9223372036854775808\r\n",
        ":--1\r\n",
        "$1\r\nabc",
        "$18446744073709551615\r\n",
        "$9223372036854775807\r\n",
        "*-2\r\n",
        "+\n",
        &deep,
        &endless,
    ] {
        let error = first(bytes.as_bytes()).unwrap_err();
        assert!(error.is_connection_dropped(), "{bytes:.40}");
    }
}

#[test]
fn bytes_that_the_client_library_refuses_are_no_reply() {
    for bytes in [
        b"_\xff\r\n" as &[u8],
        b"*1\r\n_\xff\r\n",
        b"+\xff\r\n",
        b"#x\r\n",
        b"%-1\r\n",
    ] {
        assert!(redis::parse_redis_value(bytes).is_err());
        let ours = first(bytes);
        assert!(ours.is_err(), "{ours:?} of {}", bytes.escape_ascii());
    }
}

/// Replies of every type that Redis sends.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let line = |kind: char| "[ -~]{0,12}".prop_map(move |text| format!("{kind}{text}\r\n").into());
    let leaf = prop_oneof![
        line('+'),
        "[A-Z]{1,9}( [ -~]{0,20})?".prop_map(|text| format!("-{text}\r\n").into_bytes()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        Just(format!(":{}\r\n", i64::MIN).into_bytes()),
        Just(b":+7\r\n".to_vec()),
        any::<bool>().prop_map(|bit| format!("#{}\r\n", if bit { 't' } else { 'f' }).into()),
        any::<i32>().prop_map(|number| format!(",{number}.5\r\n").into_bytes()),
        "-?(inf|[0-9]{1,18}([.][0-9]{1,9})?(e-?[0-9]{1,3})?)"
            .prop_map(|number| format!(",{number}\r\n").into_bytes()),
        "-?[0-9]{1,40}".prop_map(|number| format!("({number}\r\n").into_bytes()),
        Just(b"$-1\r\n".to_vec()),
        Just(b"_\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        Just(b"+OK\r\n".to_vec()),
        prop_oneof![
            40 => vec(any::<u8>(), 0..40),
            1 => (any::<u8>(), 10_000_usize..100_000).prop_map(|(byte, length)| vec![byte; length]),
        ]
        .prop_map(|text| {
            let mut frame = format!("${}\r\n", text.len()).into_bytes();
            frame.extend(text);
            frame.extend(b"\r\n");
            frame
        }),
        "[ -~]{0,20}".prop_map(|text| format!("!{}\r\n{text}\r\n", text.len()).into_bytes()),
        "[ -~]{0,20}".prop_map(|text| format!("={}\r\ntxt:{text}\r\n", text.len() + 4).into()),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        (
            prop_oneof![Just(b'*'), Just(b'~'), Just(b'%'), Just(b'|')],
            vec(inner, 0..5),
        )
            .prop_map(|(kind, mut children)| {
                let count = match kind {
                    b'%' => {
                        children.truncate(children.len() / 2 * 2);
                        children.len() / 2
                    }
                    // Attributes are followed by the reply that they describe.
                    b'|' => {
                        children.push(b"+OK\r\n".to_vec());
                        children.truncate((children.len() - 1) / 2 * 2 + 1);
                        children.len() / 2
                    }
                    _ => children.len(),
                };
                let mut frame = format!("{}{count}\r\n", char::from(kind)).into_bytes();
                frame.extend(children.concat());
                frame
            })
    })
}

proptest! {
    #[test]
    fn replies_are_those_of_the_client_library(frame in frames(), rest in vec(any::<u8>(), 0..8)) {
        let theirs = redis::parse_redis_value(&frame);
        let bytes = [&frame[..], &rest].concat();
        match (first(&bytes), theirs) {
            (Ok(Frame::Reply(ours, length)), Ok(theirs)) => {
                prop_assert_eq!(length, frame.len());
                prop_assert_eq!(ours, theirs);
            }
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err(), "{ours:?}, {theirs:?}"),
        }
    }

    #[test]
    fn a_frame_is_partial_until_its_last_byte(frame in frames()) {
        for end in 0..frame.len() {
            let partial = first(&frame[..end]);
            prop_assert!(matches!(partial, Ok(Frame::Partial)), "{end}: {partial:?}");
        }
    }

    #[test]
    fn changed_bytes_are_read_as_by_the_client_library_or_refused(
        mut frame in frames(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(cut.index(2 * frame.len() + 1));
        match first(&frame) {
            Ok(Frame::Reply(value, length)) => {
                let theirs = redis::parse_redis_value(&frame[..length]).unwrap();
                // As text, where a double that is no number equals itself.
                prop_assert_eq!(format!("{value:?}"), format!("{theirs:?}"));
            }
            Ok(Frame::Partial) => prop_assert!(redis::parse_redis_value(&frame).is_err()),
            Ok(Frame::Push(length)) => prop_assert!(length <= frame.len()),
            Err(_) => {}
        }
    }

    #[test]
    fn any_bytes_end_or_are_a_frame(bytes in vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'),
        Just(b'*'), Just(b'$'), Just(b'1'), Just(b'%')], 0..64)) {
        if let Ok(Frame::Reply(_, length) | Frame::Push(length)) = first(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }
}
