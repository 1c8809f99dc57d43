//! The clock that all processes of a machine share, and a thread for short work.

use nix::time::{ClockId, clock_gettime};

/// Microseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has a clock");
    let micros = time.tv_sec() * 1_000_000 + time.tv_nsec() / 1_000;
    micros.unsigned_abs()
}

/// Runs work that needs no other thread.
pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime starts").block_on(work)
}
