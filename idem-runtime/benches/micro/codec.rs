//! Answers as bytes, and back.

use criterion::{BatchSize, Bencher, Criterion};
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::{
    Engine, EngineBuilder,
    claim::{Acquired, Claim, Completion},
    codec::{Replay, StoredAnswer},
};

use crate::blank::{Blank, at_once};
use crate::order::Receipt;

type Setting = fn(EngineBuilder) -> EngineBuilder;

/// The ways of writing an answer. Those of features are there when the feature is.
fn settings() -> Vec<(&'static str, Setting)> {
    vec![
        ("json", |engine| engine),
        #[cfg(feature = "msgpack")]
        ("msgpack", |engine| {
            engine.answer_format(idem_runtime::codec::AnswerFormat::MessagePack)
        }),
        #[cfg(feature = "zstd")]
        ("zstd", |engine| engine.compress_above(0)),
        #[cfg(feature = "encryption")]
        ("encrypted", |engine| {
            engine.encrypt(idem_runtime::codec::EncryptionKeys::new(1, [7; 32]))
        }),
    ]
}

/// A fresh one: a batch holds all inputs at once.
fn claim(engine: &Engine, number: u64) -> Claim {
    let begun = at_once(engine.operation("payments.pay").key(&number).begin());
    match begun.unwrap() {
        Acquired::Run(claim) => claim,
        other => panic!("not a claim: {other:?}"),
    }
}

/// The answer to a duplicate of this call.
fn stored(engine: &Engine, receipt: &Receipt) -> StoredAnswer {
    at_once(claim(engine, 7).complete(receipt.clone())).unwrap();
    let begun = at_once(engine.operation("payments.pay").key(&7_u64).begin());
    match begun.unwrap() {
        Acquired::Replay(stored) => stored,
        other => panic!("not an answer: {other:?}"),
    }
}

/// Stores an answer where none is kept: the end of a call.
fn complete<T: Replay + Clone>(bench: &mut Bencher<'_>, engine: &Engine, answer: &T) {
    let mut number = 0;
    bench.iter_batched(
        || {
            number += 1;
            (claim(engine, number), answer.clone())
        },
        |(claim, answer)| {
            let completion = at_once(claim.complete(answer));
            assert!(matches!(completion, Ok(Completion::Own(_))));
        },
        BatchSize::SmallInput,
    );
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/encode");
    // The cost of the rest of a call's end, to be subtracted.
    group.bench_function("nothing", |bench| {
        complete(bench, &Engine::new(Blank), &());
    });
    for (name, setting) in settings() {
        let engine = setting(Engine::builder(Blank)).build().unwrap();
        for bytes in [200, 10_240] {
            let receipt = Receipt::of(bytes);
            group.bench_function(format!("{name}/{bytes}"), |bench| {
                complete(bench, &engine, &receipt);
            });
        }
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/decode");
    for (name, setting) in settings() {
        for bytes in [200, 10_240] {
            let engine = setting(Engine::builder(MemoryStore::new()))
                .build()
                .unwrap();
            let receipt = Receipt::of(bytes);
            let stored = stored(&engine, &receipt);
            assert_eq!(stored.decode::<Receipt>(), Ok(receipt));
            group.bench_function(format!("{name}/{bytes}"), |bench| {
                bench.iter(|| stored.decode::<Receipt>().unwrap());
            });
        }
    }
}

pub(crate) fn bench(criterion: &mut Criterion) {
    encode(criterion);
    decode(criterion);
}
