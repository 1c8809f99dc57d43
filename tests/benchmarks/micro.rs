//! `micro`: criterion's cases, each once.

use crate::program;

/// All of them but those of the codec, whose names are made of these.
const CASES: [&str; 11] = [
    "key/one_field",
    "key/three_fields",
    "key/scope_and_field",
    "key/text",
    "fingerprint/number",
    "fingerprint/order",
    "fingerprint/order_and_key",
    "record/encode_header",
    "record/decode_header",
    "record/decode/200",
    "record/decode/10240",
];
const FORMATS: [&str; 4] = ["json", "msgpack", "zstd", "encrypted"];

fn wanted() -> Vec<String> {
    let mut wanted: Vec<_> = CASES.iter().map(|case| (*case).to_owned()).collect();
    wanted.push("codec/encode/nothing".to_owned());
    for way in ["encode", "decode"] {
        for format in FORMATS {
            wanted.extend([200, 10_240].map(|bytes| format!("codec/{way}/{format}/{bytes}")));
        }
    }
    wanted.extend(["cache/uncached", "cache/uncached_keyed"].map(str::to_owned));
    for entries in [1, 1_000] {
        wanted.extend(["hit", "insert", "evict"].map(|case| format!("cache/{case}/{entries}")));
    }
    wanted
}

#[test]
fn every_case_runs() {
    let ran = program::run("micro", "--test");
    let lines: Vec<_> = ran
        .printed()
        .lines()
        .filter(|line| !line.is_empty())
        .collect();
    let ran: Vec<_> = lines
        .chunks(2)
        .map(|lines| {
            assert_eq!(lines[1..], ["Success"], "{lines:?}");
            lines[0].strip_prefix("Testing ").unwrap()
        })
        .collect();
    assert_eq!(ran, wanted());
}

#[test]
fn part_of_a_name_selects() {
    let ran = program::run("micro", "--test key/text");
    assert_eq!(ran.printed().trim_end(), "Testing key/text\nSuccess");
}
