//! Puts many records into the server, faster than calls would.

use std::ops::Range;
use std::time::{Duration, Instant};

use redis::Pipeline;

use super::payments::DAY;
use super::server::Measured;

/// Commands that are sent at once.
const BATCH: u64 = 1_000;

/// Stores the same bytes under each of these names.
pub(crate) fn fill(
    server: &mut Measured,
    numbers: Range<u64>,
    value: &[u8],
    name: impl Fn(u64) -> String,
) {
    let all = numbers.end - numbers.start;
    each_batch(server, numbers, "stored", all, |pipe, number| {
        let set = pipe.cmd("SET").arg(name(number)).arg(value);
        set.arg("PX").arg(DAY).ignore();
    });
}

/// Deletes what stands under these names.
pub(crate) fn delete(server: &mut Measured, numbers: Range<u64>, name: impl Fn(u64) -> String) {
    let all = numbers.end.saturating_sub(numbers.start);
    each_batch(server, numbers, "deleted", all, |pipe, number| {
        pipe.cmd("DEL").arg(name(number)).ignore();
    });
}

fn each_batch(
    server: &mut Measured,
    numbers: Range<u64>,
    what: &str,
    all: u64,
    add: impl Fn(&mut Pipeline, u64),
) {
    let mut told = Instant::now();
    let mut begin = numbers.start;
    while begin < numbers.end {
        let end = numbers.end.min(begin + BATCH);
        let mut pipe = Pipeline::with_capacity(BATCH as usize);
        for number in begin..end {
            add(&mut pipe, number);
        }
        let () = pipe.query(&mut server.control).unwrap();
        begin = end;
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            eprintln!("{} of {all} {what}", all - (numbers.end - end));
        }
    }
}
