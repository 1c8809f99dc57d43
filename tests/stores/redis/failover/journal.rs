//! The calls of two processes, and their answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use idem_tests::history::History;

/// One call of the library. A refused caller makes another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) process: usize,
    pub(crate) shard: usize,
    pub(crate) key: u64,
    id: u64,
    pub(crate) began: Instant,
}

/// An attempt that the library refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) shard: usize,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    history: History,
    next: u64,
    /// How often each body ran.
    runs: HashMap<u64, u32>,
    open: HashMap<u64, Attempt>,
    /// The answers of each key, and the first return of each.
    answers: HashMap<u64, BTreeMap<String, Instant>>,
    ended: usize,
    refused: Vec<Refused>,
    permanent: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) calls: usize,
    /// Keys with more than one answer.
    pub(crate) differing: Vec<String>,
    /// Bodies that ran again although the run before had not failed.
    pub(crate) again: Vec<String>,
    /// Any other violation.
    pub(crate) wrong: Vec<String>,
}

impl Journal {
    pub(crate) fn invoke(&self, process: usize, shard: usize, key: u64) -> Attempt {
        let mut inner = self.lock();
        inner.next += 1;
        let attempt = Attempt {
            process,
            shard,
            key,
            id: inner.next,
            began: Instant::now(),
        };
        inner.open.insert(attempt.id, attempt);
        inner.line(attempt, "invoke", &now());
        attempt
    }

    /// Records the start of a body. Returns the number of its runs, this one included.
    pub(crate) fn start(&self, attempt: Attempt, fence: u64) -> u32 {
        let mut inner = self.lock();
        inner.line(attempt, "start", &format!("{} {fence}", now()));
        inner.line(attempt, "effect", "");
        let runs = inner.runs.entry(attempt.key).or_default();
        *runs += 1;
        *runs
    }

    /// Records the end of a body with a system error.
    pub(crate) fn failed(&self, attempt: Attempt) {
        self.lock().line(attempt, "failed", "");
    }

    /// Records the answer that the caller received.
    pub(crate) fn answered(&self, attempt: Attempt, answer: &str) {
        self.end(attempt, "return", &format!("{} {answer}", now()));
        let mut inner = self.lock();
        let answers = inner.answers.entry(attempt.key).or_default();
        answers
            .entry(answer.to_owned())
            .or_insert_with(Instant::now);
    }

    /// Returns of answers that the servers did not have later.
    pub(crate) fn forgotten(&self) -> Vec<(u64, Instant)> {
        let inner = self.lock();
        let differing = inner.answers.iter().filter(|(_, told)| told.len() > 1);
        differing
            .flat_map(|(key, told)| {
                let last = told.values().max().copied();
                let earlier = told.values().copied();
                earlier
                    .filter(move |at| Some(*at) != last)
                    .map(|at| (*key, at))
            })
            .collect()
    }

    /// Records the error of the body that the caller received.
    pub(crate) fn stumbled(&self, attempt: Attempt) {
        self.end(attempt, "end", "down");
    }

    /// Records a refusal by the library.
    pub(crate) fn refuse(&self, attempt: Attempt, error: &idem_runtime::Error) {
        self.end(attempt, "end", "refused");
        let mut inner = self.lock();
        let Attempt {
            key, shard, began, ..
        } = attempt;
        if !error.is_retryable() {
            inner.permanent.push(format!("{key}: {error:?}"));
        }
        inner.refused.push(Refused {
            shard,
            began,
            ended: Instant::now(),
        });
    }

    /// Calls that have not ended yet.
    pub(crate) fn open(&self) -> Vec<String> {
        let inner = self.lock();
        let open = inner.open.values();
        open.map(|attempt| {
            let (key, since) = (attempt.key, attempt.began.elapsed());
            format!("key {key} of shard {} for {since:?}", attempt.shard)
        })
        .collect()
    }

    pub(crate) fn refused(&self) -> Vec<Refused> {
        self.lock().refused.clone()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let inner = self.lock();
        let effects = |key: &str| {
            let key = key.parse().ok().and_then(|key: u64| inner.runs.get(&key));
            key.map_or(0, |runs| u64::from(*runs))
        };
        let mut verdict = Verdict {
            calls: inner.ended,
            differing: Vec::new(),
            again: Vec::new(),
            wrong: inner.permanent.clone(),
        };
        for violation in inner.history.violations(effects) {
            let again = ["is not explained", "after an answer"];
            if violation.contains("different answers") {
                verdict.differing.push(violation);
            } else if again.iter().any(|words| violation.contains(words)) {
                verdict.again.push(violation);
            } else {
                verdict.wrong.push(violation);
            }
        }
        verdict
    }

    fn end(&self, attempt: Attempt, what: &str, rest: &str) {
        let mut inner = self.lock();
        inner.line(attempt, what, rest);
        inner.open.remove(&attempt.id);
        inner.ended += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn line(&mut self, attempt: Attempt, what: &str, rest: &str) {
        let Attempt {
            process, id, key, ..
        } = attempt;
        self.history
            .line(process, &format!("{what} {id} {key} {rest}"));
    }
}

/// Microseconds of the clock that all servers of this machine share.
fn now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_micros().to_string()
}
