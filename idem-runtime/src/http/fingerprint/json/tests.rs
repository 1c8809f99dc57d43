use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn of(document: &str) -> Option<String> {
    without(document, &[])
}

fn without(document: &str, pointers: &[&str]) -> Option<String> {
    let pointers: Vec<_> = pointers
        .iter()
        .filter_map(|text| Pointer::read(text))
        .collect();
    let text = canonical(document.as_bytes(), &pointers, Numbers::AsWritten)?;
    Some(String::from_utf8(text).unwrap())
}

fn by_value(document: &str) -> Option<String> {
    let text = canonical(document.as_bytes(), &[], Numbers::ByValue)?;
    Some(String::from_utf8(text).unwrap())
}

#[test]
fn what_is_written_is_frozen() {
    let document = r#" { "b" : [1, 2.50 ,{}], "a":"\u0041\/\n\ud83d\ude00ä", "":null } "#;
    let written = "{\"\":null,\"a\":\"A/\\n😀ä\",\"b\":[1,2.50,{},],}";
    assert_eq!(of(document).unwrap(), written);
}

#[test]
fn what_is_written_of_values_is_frozen() {
    for (number, written) in [
        ("0", "0"),
        ("-0", "0"),
        ("0.00", "0"),
        ("-0.0e+9", "0"),
        ("0e99999999999999999999", "0"),
        ("1", "1"),
        ("1.0", "1"),
        ("1e0", "1"),
        ("10E-1", "1"),
        ("-0.10", "-1e-1"),
        ("1200", "12e2"),
        ("12.50e+003", "125e2"),
        ("9007199254740993.0", "9007199254740993"),
        ("1e999999999", "1e999999999"),
        ("0.001e1000000002", "1e999999999"),
        ("10e9223372036854775807", "1e9223372036854775808"),
        ("0.1e-9223372036854775808", "1e-9223372036854775809"),
        // Beyond 64 bits.
        ("10.0e9223372036854775808", "10.0e9223372036854775808"),
        ("-1E-99999999999999999999", "-1E-99999999999999999999"),
    ] {
        assert_eq!(by_value(number).unwrap(), written, "{number}");
    }
    let document = r#" { "b" : [1.0, 2.50 ,{}], "1.0":"1.0", "":null, "t":true } "#;
    let written = r#"{"":null,"1.0":"1.0","b":[1,25e-1,{},],"t":true,}"#;
    assert_eq!(by_value(document).unwrap(), written);
}

#[test]
fn whatever_else_than_notation_differs_counts_by_value_too() {
    let documents = "1|-1|10|0|0.1|0.01|1.1|11|9007199254740993|9007199254740992|1e400|1e401|-1e400|1e-400|1e99999999999999999999|
        0.30000000000000004|0.3|0.300000000000000040000000001|'1'|'1.0'|null|false|true|''|{}|[]|[[]]|[null]|[1,2]|[2,1]|[12]|
        {'a':1}|{'a':null}|{'a':0}|{'a':''}|{'1':1}|{'1.0':1}|[1,0]|[10]|[1,null]|[1]";
    let documents = documents.replace('\'', "\"");
    let mut written: Vec<_> = documents
        .split('|')
        .map(|document| by_value(document).unwrap())
        .collect();
    let number = written.len();
    written.sort();
    written.dedup();
    assert_eq!(written.len(), number);
}

#[test]
fn whatever_else_differs_counts() {
    let documents = "1|1.0|1e0|1E0|10|-0|0|9007199254740993|9007199254740992|'1'|null|false|true|''|{}|[]|[[]]|[null]|[1,2]|\
        [2,1]|[12]|['1,2']|{'a':1}|{'a':2}|{'A':1}|{'a':{}}|{'a':[]}|{'a':1,'b':2}|{'a':2,'b':1}|'a'|'a '|'\\n'|'\\\\n'|\
        '\u{e9}'|'e\u{301}'|{'a':null}|[1,[2]]|[[1],2]|[[1,2]]|1e400|1e401";
    let documents = documents.replace('\'', "\"");
    let documents: Vec<_> = documents.split('|').collect();
    let mut written: Vec<_> = documents
        .iter()
        .map(|document| of(document).unwrap())
        .collect();
    written.sort();
    written.dedup();
    assert_eq!(written.len(), documents.len());
}

#[test]
fn what_is_no_document_is_not_guessed_at() {
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(of(&deep(DEEPEST)).is_some());
    let too_deep = [deep(DEEPEST + 1), "[{\"a\":".repeat(100_000)];
    for document in too_deep {
        assert_eq!(of(&document), None);
    }
    let documents = "| |{|[1|[1,]|[,1]|{'a':1,}|{'a'}|{a:1}|{1:1}|01|1.|.5|+1|-|1e|1e+|--1|0x1|tru|truE|NaN|Infinity|nulll|\
        1 2|[1 2]|{'a':1 'b':2}|`a`|'a|'\\|'\\x41'|'\\u12'|'\\u+123'|'\\u00\u{e9}'|'\\\u{e9}'|'\n'|'\\n\n'|\u{feff}1|// 1|\
        [1]]|1'a'|{'a':1:2}|'\\ud800'|'\\udc00'|'\\ud800\\u0041'|'\\ud800a'|'\\ud800\\n'|'\\ud83d..de00'|\u{a0}1|\
        {'a':1,'a':1}|{'a':1,'b':{},'\\u0061':2}|[{'a':1,'a':2}]";
    for document in documents.replace('\'', "\"").replace('`', "'").split('|') {
        assert_eq!(of(document), None, "{document}");
        assert_eq!(by_value(document), None, "{document}");
    }
    for bytes in [&b"\"\xff\""[..], b"1\0"] {
        assert_eq!(canonical(bytes, &[], Numbers::AsWritten), None);
    }
}

#[test]
fn what_a_pointer_names_does_not_count_nor_whether_it_is_there() {
    let sent_at = &["/sent_at"][..];
    let bare = without(r#"{"amount":1}"#, sent_at);
    assert_eq!(without(r#"{"sent_at":"noon","amount":1}"#, sent_at), bare);
    assert_eq!(
        without(r#"{"amount":1,"sent_at":{"a":[7]}}"#, sent_at),
        bare
    );
    assert_eq!(without(r#"{"sent_\u0061t":7,"amount":1}"#, sent_at), bare);
    for other in [
        r#"{"amount":2}"#,
        r#"{"amount":1,"a":{"sent_at":1}}"#,
        r#"{"amount":1,"SENT_AT":1}"#,
        r#"[{"amount":1}]"#,
    ] {
        assert_ne!(without(other, sent_at), bare, "{other}");
    }
    // The excluded value is parsed nevertheless.
    assert_eq!(without(r#"{"amount":1,"sent_at":nul}"#, sent_at), None);
    assert_eq!(
        without(r#"{"amount":1,"sent_at":1,"sent_at":2}"#, sent_at),
        None
    );
    assert_eq!(
        without(r#"{"amount":1,"sent_at":{"a":1,"a":1}}"#, sent_at),
        None
    );

    let nested = &["/a/b", "/a~1b/~01", "/list/1/x", "/"][..];
    let full = r#"{"a":{"b":1,"c":2},"a/b":{"~1":3,"k":4},"list":[{"x":5},{"x":6}],"":7}"#;
    let rest = r#"{"a":{"c":2},"a/b":{"k":4},"list":[{"x":5},{}]}"#;
    assert_eq!(without(full, nested), of(rest));
    assert_eq!(without("[1,2,3]", &["/1"]), of("[1,3]"));
    assert_eq!(
        without("[1,2,3]", &["/01", "/-", "/1/", "/+1"]),
        of("[1,2,3]")
    );
    assert_eq!(without(r#"{"a":{"b":1}}"#, &["/a", "/a/b"]), of("{}"));
}

#[test]
fn what_is_no_pointer_names_nothing() {
    for text in ["", "a", "#/a", "/a~", "/~2", "/a~~1"] {
        assert_eq!(Pointer::read(text), None, "{text}");
    }
}

/// A document without a fixed notation.
#[derive(Clone, Debug)]
enum JsonTree {
    Plain(String),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

fn tree() -> impl Strategy<Value = JsonTree> {
    let plain = prop_oneof![
        Just("true".to_owned()),
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
    ];
    let leaf = prop_oneof![
        plain.prop_map(JsonTree::Plain),
        "[a\"\\\\/\n\u{1}\u{7f}é😀]{0,4}".prop_map(JsonTree::Text),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        let member = ("[ab\"\\\\/é😀]{0,3}", inner.clone());
        prop_oneof![
            vec(inner, 0..5).prop_map(JsonTree::Array),
            vec(member, 0..5).prop_map(|mut members| {
                members.sort_by(|a, b| a.0.cmp(&b.0));
                members.dedup_by(|a, b| a.0 == b.0);
                JsonTree::Object(members)
            }),
        ]
    })
}

/// Writes the document in a notation that these numbers select.
fn write(tree: &JsonTree, turns: &mut dyn Iterator<Item = u8>, out: &mut String) {
    let blanks = |out: &mut String, turn: u8| {
        out.push_str(["", " ", "\n\t", "\r\n", "\t"][usize::from(turn % 5)]);
    };
    let mut turn = || turns.next().unwrap_or_default();
    blanks(out, turn());
    match tree {
        JsonTree::Plain(text) => out.push_str(text),
        JsonTree::Text(text) => write_text(text, turn(), out),
        JsonTree::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write(element, turns, out);
            }
            out.push(']');
        }
        JsonTree::Object(members) => {
            out.push('{');
            let first = usize::from(turn()) % members.len().max(1);
            let (before, after) = members.split_at(first);
            for (index, (name, value)) in after.iter().chain(before).enumerate() {
                out.push_str(if index > 0 { " ,\n" } else { "" });
                write_text(name, turns.next().unwrap_or_default(), out);
                out.push_str(" :");
                write(value, turns, out);
            }
            out.push('}');
        }
    }
    blanks(out, turns.next().unwrap_or_default());
}

fn write_text(text: &str, turn: u8, out: &mut String) {
    if turn.is_multiple_of(2) {
        out.push_str(&serde_json::to_string(text).unwrap());
        return;
    }
    out.push('"');
    for unit in text.encode_utf16() {
        write!(out, "\\u{unit:04X}").unwrap();
    }
    out.push('"');
}

fn written(tree: &JsonTree, turns: &[u8]) -> String {
    let mut out = String::new();
    write(tree, &mut turns.iter().copied(), &mut out);
    out
}

/// The document with its numbers in another notation.
fn renoted(tree: &JsonTree, moved: i128, zeros: usize) -> JsonTree {
    match tree {
        JsonTree::Plain(text) if text.ends_with(|c: char| c.is_ascii_digit()) => {
            JsonTree::Plain(notation(text, moved, zeros, zeros > 1))
        }
        JsonTree::Array(elements) => {
            let elements = elements.iter().map(|inner| renoted(inner, moved, zeros));
            JsonTree::Array(elements.collect())
        }
        JsonTree::Object(members) => {
            let member = |(name, inner): &(String, _)| (name.clone(), renoted(inner, moved, zeros));
            JsonTree::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

/// The value of a number by another method: sign, digits and powers.
fn value(number: &str) -> (bool, BTreeMap<i128, char>) {
    let lower = number.to_ascii_lowercase();
    let (decimal, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let exponent: i128 = exponent.parse().unwrap();
    let point = decimal.trim_start_matches('-').find('.');
    let digits: Vec<char> = decimal.chars().filter(char::is_ascii_digit).collect();
    let whole = point.unwrap_or(digits.len()) as i128;
    let powers = (0_i128..).map(|place| exponent + whole - 1 - place);
    let digits: BTreeMap<_, _> = powers
        .zip(digits)
        .filter(|(_, digit)| *digit != '0')
        .collect();
    (lower.starts_with('-') && !digits.is_empty(), digits)
}

/// A number of few digits, so that some of them are equal.
const NUMBER: &str = "-?(0|[1-9][01]{0,3})(\\.[01]{1,4})?([eE][+-]?0{0,2}[0-9])?";

/// Another notation of a number: other point, zeros and power of ten.
fn notation(number: &str, moved: i128, zeros: usize, is_upper: bool) -> String {
    let (decimal, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (sign, decimal) = match decimal.strip_prefix('-') {
        Some(decimal) => ("-", decimal),
        None => ("", decimal),
    };
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let exponent = exponent.parse::<i128>().unwrap() + moved;
    // The point goes to the left by `moved`, and to the right if that is less than 0.
    let room = moved.unsigned_abs() as usize;
    let before = format!("{}{whole}", "0".repeat(room));
    let after = format!("{fraction}{}", "0".repeat(room));
    let digits = format!("{before}{after}");
    let point = usize::try_from(before.len() as i128 - moved).unwrap();
    let (whole, fraction) = digits.split_at(point);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = format!("{fraction}{}", "0".repeat(zeros));
    let fraction = if fraction.is_empty() {
        fraction
    } else {
        format!(".{fraction}")
    };
    let power = match (exponent, is_upper) {
        (0, false) => String::new(),
        (0.., true) => format!("E+{exponent}"),
        _ => format!("e{exponent}"),
    };
    format!("{sign}{whole}{fraction}{power}")
}

proptest! {
    /// Two numbers are one exactly if their values are.
    #[test]
    fn a_number_counts_by_its_exact_value(one in NUMBER, other in NUMBER) {
        let is_same = by_value(&one).unwrap() == by_value(&other).unwrap();
        prop_assert_eq!(is_same, value(&one) == value(&other), "{} {}", one, other);
    }

    #[test]
    fn a_long_number_counts_by_its_exact_value(
        number in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,18})?",
        moved in -30_i128..30,
        zeros in 0_usize..30,
        is_upper in any::<bool>(),
        at in any::<prop::sample::Index>(),
        digit in "[0-9]",
    ) {
        let same = notation(&number, moved, zeros, is_upper);
        prop_assert_eq!(value(&same), value(&number), "{} {}", same, number);
        let written = by_value(&number).unwrap();
        prop_assert_eq!(by_value(&same).unwrap(), written.clone(), "{} {}", same, number);
        // It is a number of the same value.
        prop_assert_eq!(value(&written), value(&number), "{} {}", written, number);
        prop_assert_eq!(by_value(&written).unwrap(), written.clone());
        // Another digit at any place makes another number, unless it is one of no value.
        let at = at.index(same.len());
        let changed = format!("{}{digit}{}", &same[..at], &same[at + 1..]);
        if let Some(after) = by_value(&changed) {
            prop_assert_eq!(after == written, value(&changed) == value(&number), "{}", changed);
        }
    }

    /// However it is written, with numbers in other notations too.
    #[test]
    fn however_a_document_is_written_it_has_the_same_value(
        tree in tree(),
        one in vec(any::<u8>(), 0..60),
        other in vec(any::<u8>(), 0..60),
        moved in -5_i128..5,
        zeros in 0_usize..3,
    ) {
        let renoted = renoted(&tree, moved, zeros);
        let (one, other) = (written(&tree, &one), written(&renoted, &other));
        prop_assert!(by_value(&one).is_some(), "{}", one);
        prop_assert_eq!(by_value(&one), by_value(&other), "{} {}", one, other);
        // Documents that are equal as written are equal by value.
        prop_assert!(of(&one) != of(&other) || by_value(&one) == by_value(&other));
    }

    #[test]
    fn however_a_document_is_written_it_is_the_same(
        tree in tree(),
        one in vec(any::<u8>(), 0..60),
        other in vec(any::<u8>(), 0..60),
    ) {
        let (one, other) = (written(&tree, &one), written(&tree, &other));
        prop_assert!(of(&one).is_some(), "{}", one);
        prop_assert_eq!(of(&one), of(&other), "{} {}", one, other);
    }

    /// Two documents that are equal here are equal to `serde_json` as well.
    #[test]
    fn a_change_that_another_parser_sees_counts(
        tree in tree(),
        turns in vec(any::<u8>(), 0..60),
        at in any::<prop::sample::Index>(),
        insert in "[\\[\\]{}:,\"\\\\a0-9.eE+ -]?",
        remove in 0_usize..3,
    ) {
        let document = written(&tree, &turns);
        let bytes = document.as_bytes();
        let at = at.index(bytes.len());
        let end = (at + remove).min(bytes.len());
        let changed = [&bytes[..at], insert.as_bytes(), &bytes[end..]].concat();
        let Some(after) = canonical(&changed, &[], Numbers::AsWritten) else {
            return Ok(());
        };
        let read = serde_json::from_slice::<Value>(&changed);
        match (read, serde_json::from_str::<Value>(&document)) {
            (Ok(changed), Ok(document)) if changed == document => {
                // It may be another notation: `1` and `1.0` are one value to it, and two here.
            }
            (Err(error), _) => prop_assert!(error.to_string().contains("out of range"), "{}", error),
            _ => prop_assert_ne!(after, canonical(bytes, &[], Numbers::AsWritten).unwrap()),
        }
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in vec(any::<u8>(), 0..60), text in "[\\[\\]{}:,\"\\\\utrefalsn0-9.eE+ -]{0,20}") {
        let places = [Pointer::read("/a/0").unwrap()];
        for numbers in [Numbers::AsWritten, Numbers::ByValue] {
            let _ = canonical(&bytes, &places, numbers);
        }
        let read = |numbers| canonical(text.as_bytes(), &places, numbers).is_some();
        prop_assert_eq!(read(Numbers::AsWritten), read(Numbers::ByValue));
        if read(Numbers::AsWritten)
            && let Err(error) = serde_json::from_str::<Value>(&text)
        {
            prop_assert!(error.to_string().contains("out of range"), "{}: {}", text, error);
        }
    }
}
