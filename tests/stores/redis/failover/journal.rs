//! The calls of two processes, and their answers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idem_tests::checker::{
    Call, End, Fault, Faults, History, Promise, Start, Target, Violation, What, check,
};

pub(crate) type Span = Option<Range<Instant>>;

/// One call of the library. A refused caller makes another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) process: u32,
    pub(crate) shard: usize,
    pub(crate) key: u64,
    id: u32,
    pub(crate) began: Instant,
}

/// An attempt that the library refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) shard: usize,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

#[derive(Debug)]
pub(crate) struct Journal {
    /// The beginning of its times.
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    history: History,
    next: u32,
    refused: Vec<Refused>,
    permanent: Vec<String>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) calls: usize,
    /// Keys with more than one answer.
    pub(crate) differing: Vec<String>,
    /// Any other violation: also a body that runs again, if the run before did not fail and its claim was not forgotten.
    pub(crate) wrong: Vec<String>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            inner: Mutex::default(),
        }
    }
}

impl Journal {
    pub(crate) fn invoke(&self, process: u32, shard: usize, key: u64) -> Attempt {
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        let call = Call::new(process, id, 0, self.now());
        inner.history.key(&key.to_string()).calls.push(call);
        Attempt {
            process,
            shard,
            key,
            id,
            began: Instant::now(),
        }
    }

    /// Records the start of a body. Returns the number of its runs, this one included.
    pub(crate) fn start(&self, attempt: Attempt, fence: u64) -> u32 {
        let start = Start {
            at: self.now(),
            fence: Some(fence),
            end: None,
        };
        self.change(attempt, |call| call.start = Some(Box::new(start)));
        let mut inner = self.lock();
        let calls = inner.history.key(&attempt.key.to_string()).calls.iter();
        let runs = calls.filter(|call| call.start.is_some()).count();
        u32::try_from(runs).expect("a few runs")
    }

    /// Records the end of a body with a system error.
    pub(crate) fn failed(&self, attempt: Attempt) {
        let now = self.now();
        self.change(attempt, |call| {
            let start = call.start.as_mut().expect("it has started");
            start.end = Some((now, End::Down));
        });
    }

    /// Records the reply of the caller.
    pub(crate) fn told(&self, attempt: Attempt, end: End) {
        let now = self.now();
        self.change(attempt, |call| call.told = Some((now, end)));
    }

    /// Records a refusal by the library.
    pub(crate) fn refuse(&self, attempt: Attempt, error: &idem_runtime::Error) {
        self.told(attempt, End::refusal(error));
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

    /// Keys and times of calls whose answers were lost later.
    pub(crate) fn forgotten(&self) -> Vec<(String, Range<Instant>)> {
        let mut found = Vec::new();
        let instant = |at| self.began + Duration::from_micros(at);
        for (key, calls) in &self.lock().history.keys {
            let mut first = BTreeMap::new();
            for call in &calls.calls {
                if let Some((ended, text)) = call.answer() {
                    let teller = first.entry(text).or_insert((ended, call.begun));
                    *teller = (ended, call.begun).min(*teller);
                }
            }
            let last = first.values().max().copied();
            let earlier = first.into_values().filter(|one| Some(*one) != last);
            found.extend(
                earlier.map(|(ended, began)| (key.to_string(), instant(began)..instant(ended))),
            );
        }
        found
    }

    /// Calls that have not ended yet.
    pub(crate) fn open(&self) -> Vec<String> {
        let (inner, now) = (self.lock(), self.now());
        let open = |(key, call): (&str, &Call)| {
            let since = Duration::from_micros(now - call.begun);
            (call.told.is_none()).then(|| format!("{call} of key {key} for {since:?}"))
        };
        let keys = inner.history.keys.iter();
        let calls = keys.flat_map(|(name, key)| key.calls.iter().map(|call| (&**name, call)));
        calls.filter_map(open).collect()
    }

    pub(crate) fn refused(&self) -> Vec<Refused> {
        self.lock().refused.clone()
    }

    /// Judges the calls, all of which have ended. The lease lapses in no fault of a run. A body may run again if
    /// its claim may have been forgotten in this span.
    pub(crate) fn verdict(&self, forgets: Span) -> Verdict {
        let mut inner = self.lock();
        inner.history.stopped.extend([0, 1]);
        let promise = Promise {
            lease: 0,
            forgets: &["failover"],
        };
        let fault = |span: Range<Instant>| Fault {
            kind: "failover".to_owned(),
            target: Target::Store,
            from: self.micros(span.start),
            to: self.micros(span.end),
            killed: None,
        };
        let judge = |faults| check(&inner.history, &Faults::new(faults), promise).violations;
        let mut verdict = Verdict {
            calls: inner.history.calls().count(),
            wrong: inner.permanent.clone(),
            ..Verdict::default()
        };
        let is_again =
            |one: &Violation| matches!(one.what, What::Unexplained | What::StartedAfterAnswer);
        let faulted = judge(forgets.map(fault).into_iter().collect()).into_iter();
        let always = judge(Vec::new()).into_iter().filter(|one| !is_again(one));
        for one in always.chain(faulted.filter(is_again)) {
            let kind = match one.what {
                What::Differing | What::Lost => &mut verdict.differing,
                _ => &mut verdict.wrong,
            };
            kind.push(format!("{}: {}", one.key, one.why));
        }
        verdict
    }

    fn change(&self, attempt: Attempt, change: impl FnOnce(&mut Call)) {
        let mut inner = self.lock();
        let key = inner.history.key(&attempt.key.to_string());
        let call = key.call(attempt.process, attempt.id);
        change(call.expect("it was invoked"));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from((at - self.began).as_micros()).expect("a short time")
    }
}

#[test]
fn a_body_runs_again_only_if_its_claim_may_be_forgotten() {
    let journal = Journal::default();
    for process in 0..2 {
        let attempt = journal.invoke(process, 0, 7);
        journal.start(attempt, u64::from(process) + 1);
        journal.told(attempt, End::Answer("ok 1/0".into()));
    }
    let (began, hour) = (journal.began, Duration::from_hours(1));
    let again = |forgets| journal.verdict(forgets).wrong.len();
    assert_eq!(again(Some(began..began + hour)), 0);
    // The second start is one without an explanation, and one after an answer.
    assert_eq!(again(Some(began + hour..began + 2 * hour)), 2);
    assert_eq!(again(None), 2);
}
