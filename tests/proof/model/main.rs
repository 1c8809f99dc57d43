//! Random sequences of operations against a model of the record, on the memory store and on a real Redis: every
//! reply, and the stored record at the end, equals the model's. In a full run they are ten thousand.
//!
//! The model is written independently: absolute milliseconds, no code of the store or its transitions.

mod drive;
mod operation;
mod record;
mod subject;
mod translation;

use std::cell::Cell;
use std::time::Instant;

use proptest::collection::vec;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};

use idem_tests::bounds::bound;
use operation::Operation;
use subject::{Memory, Redis, Subject};

/// Runs the sequences, and stops at the shortest that diverges.
fn check<S: Subject>(regressions: &'static str, subject: &S) {
    let cases = bound(2_500, 10_000);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    });
    let (sequences, operations) = (Cell::new(0), Cell::new(0));
    let start = Instant::now();
    let outcome = runner.run(&vec(Operation::any(), 1..=25), |sequence| {
        sequences.set(sequences.get() + 1);
        operations.set(operations.get() + sequence.len());
        drive::run(subject, &sequence).map_err(TestCaseError::fail)
    });
    eprintln!(
        "{}: {} sequences of {} operations in {:?}",
        S::NAME,
        sequences.get(),
        operations.get(),
        start.elapsed()
    );
    if let Err(error) = outcome {
        panic!("{} and the model disagree: {error}", S::NAME);
    }
    assert!(sequences.get() >= cases);
}

#[test]
fn the_memory_store_matches_the_model() {
    check("proof/model/memory.regressions", &Memory::default());
}

#[test]
fn the_redis_store_matches_the_model() {
    check("proof/model/redis.regressions", &Redis::start());
}
