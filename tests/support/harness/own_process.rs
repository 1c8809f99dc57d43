//! A test that runs itself in a process of its own.

use std::any::type_name;
use std::env;

use crate::{Worker, WorkerBuilder};

/// Variable that is set in the process of such a test.
const VARIABLE: &str = "IDEM_TESTS_OWN_PROCESS";

/// Runs the calling test's body in its own process, prepared by `set_up`.
///
/// The test does nothing else: in that process this function is called again, and runs the body. The body is a closure
/// written in the test, by whose type the test is found.
pub fn in_own_process<B: FnOnce()>(set_up: impl FnOnce(WorkerBuilder) -> WorkerBuilder, body: B) {
    if env::var_os(VARIABLE).is_some() {
        return body();
    }
    let test = type_name::<B>().trim_end_matches("::{{closure}}");
    let (_, test) = test.split_once("::").expect("a test is in a crate");
    let program = env::current_exe().expect("a process knows its program");
    let process = Worker::program(program).env(VARIABLE, "");
    let process = process.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let mut process = set_up(process).spawn();
    let status = process.wait();
    let lines = process.rest();
    let is_done = lines.iter().any(|line| line.contains("1 passed"));
    assert!(status.success() && is_done, "{test}: {status}, {lines:#?}");
}
