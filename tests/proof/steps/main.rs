//! Every fault at every step of every path, on every store: whatever strikes, there is at most one
//! valid claim, every caller gets the same answer, and no answer is lost.
//!
//! `memory::…` and `redis::…` strike once, `pairs::…` twice, and `checker::…` show that the checker finds each
//! violation.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod calls;
mod checker;
mod history;
mod parts;
mod paths;
mod simulation;
mod sweep;
mod tap;

use std::process::ExitCode;

use idem_tests::fixture::Fixture;
use libtest_mimic::{Arguments, Trial, run};
use tokio::runtime::Builder;

use self::sweep::{Path, once, twice};

fn main() -> ExitCode {
    let mut trials = checker::tests::trials();
    for path in paths::all() {
        trials.push(trial("memory", &path, async |path| {
            once(path, async || Fixture::memory(), false).await;
        }));
        trials.push(trial("redis", &path, async |path| {
            once(path, Fixture::redis, true).await;
        }));
        if path.in_pairs {
            trials.push(trial("pairs", &path, twice));
        }
    }
    let mut arguments = Arguments::from_args();
    // Most wait for a server part of the time.
    arguments.test_threads.get_or_insert(4);
    run(&arguments, trials).exit_code()
}

fn trial(kind: &str, path: &Path, sweep: impl AsyncFnOnce(&Path) + Send + 'static) -> Trial {
    let path = path.clone();
    Trial::test(format!("{kind}::{}", path.name), move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(sweep(&path));
        Ok(())
    })
}
