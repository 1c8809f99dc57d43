//! The record as it stands in a store.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::Criterion;
use idem_runtime::store::{AnswerTypes, Header, Owner, Record, State};
use idem_runtime::{
    fingerprint::Fingerprint,
    store::{Fence, OutcomeKind},
};

fn header() -> Header {
    let mut header = Header::new(
        State::Done {
            outcome: OutcomeKind::Value,
            schema: 0x1234_5678,
        },
        Owner::from_bytes(*b"the one who runs"),
        Fence::new(1_764_000_000_000_000),
        Duration::from_secs(24 * 60 * 60),
    );
    header.fingerprint = Fingerprint::from_bytes(*b"what was asked..");
    header.types = AnswerTypes::from_bytes([0x3b, 0x72, 0x80, 0x01]);
    header
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let header = header();
    let encoded = header.encode();
    let mut group = criterion.benchmark_group("record");
    group.bench_function("encode_header", |bench| {
        bench.iter(|| black_box(&header).encode());
    });
    group.bench_function("decode_header", |bench| {
        bench.iter(|| Header::decode(black_box(&encoded)).unwrap());
    });
    for bytes in [200, 10_240] {
        // As a reply is: owned by nobody else, and shared by what is made of it.
        let whole = Bytes::from([&encoded[..], &vec![b'x'; bytes]].concat());
        group.bench_function(format!("decode/{bytes}"), |bench| {
            bench.iter(|| Record::decode(black_box(&whole).clone()).unwrap());
        });
    }
}
