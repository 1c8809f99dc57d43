//! The tools of the cells: bodies that end on request, futures that are polled so many times, and time that
//! moves as long as a task sleeps.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use idem_runtime::__private::KeyBuilder;
use idem_runtime::key::Operation;
use idem_runtime::store::author::{ReadReply, Record};
use idem_runtime::store::{RecordKey, Store as _};
use idem_runtime::{
    CallBuilder, Error, ErrorKind, OnRunning,
    admin::{Entry, EntryState},
    claim::{Acquired, Claim},
};
use idem_tests::faulty::StoreOperation;
use idem_tests::fixture::{Classified, Fixture};
use idem_tests::payment::{PayError, Receipt, Runs};
pub(crate) use idem_tests::shop::patiently;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) type Answer = Result<Receipt, PayError>;

/// A call whose treatment of errors is not set.
pub(crate) type Pay = CallBuilder<Classified>;

/// More than the lease of a claim.
pub(crate) const LEASE_OVER: Duration = Duration::from_secs(31);

/// The body of a call that must not run one.
pub(crate) fn never() -> Answer {
    unreachable!("this body must not run")
}

/// The answer of a body's run.
#[allow(clippy::unnecessary_wraps, reason = "it is what bodies return")]
pub(crate) fn receipt(run: u32) -> Answer {
    Ok(Receipt { run })
}

/// A call whose body is counted and succeeds at once.
pub(crate) async fn paid(call: Pay, runs: &Runs) -> Answer {
    call.run(|_| async { receipt(runs.start()) }).await
}

/// A call that must be answered without its body.
pub(crate) async fn answered(call: Pay) -> Answer {
    call.run(|_| async { never() }).await
}

/// The error with which idem refused a call.
pub(crate) fn refusal(answer: Answer) -> Error {
    match answer {
        Err(PayError::Idem(error)) => error,
        other => panic!("idem did not refuse: {other:?}"),
    }
}

/// The refusal of another process's call that neither waits nor runs.
pub(crate) async fn refused_far(fixture: &Fixture) -> Error {
    let call = fixture.pay_far().on_running(OnRunning::Reject);
    refusal(answered(call).await)
}

/// The refusal of this process's call that neither waits nor runs.
pub(crate) async fn refused(fixture: &Fixture) -> Error {
    let call = fixture.pay().on_running(OnRunning::Reject);
    refusal(answered(call).await)
}

/// A call that waits for five minutes.
pub(crate) fn patient(call: Pay) -> Pay {
    call.on_running(OnRunning::Wait(Duration::from_mins(5)))
}

/// A call whose body ends with a system error.
pub(crate) async fn down(call: Pay) {
    let answer = call.run(|_| async { Err(PayError::Down) as Answer });
    assert_eq!(answer.await, Err(PayError::Down));
}

/// A claim without a body, of a key that has no answer.
pub(crate) async fn claimed(call: Pay) -> Claim {
    match call.begin().await.unwrap() {
        Acquired::Run(claim) => claim,
        other => panic!("the key has an answer: {other:?}"),
    }
}

/// Panics unless every call got this answer.
#[track_caller]
pub(crate) fn assert_each(answers: Vec<Answer>, expected: &Answer) {
    for answer in answers {
        assert_eq!(answer, *expected);
    }
}

/// Panics unless the call was refused because another one runs; returns its `retry_after`.
pub(crate) fn assert_running(error: &Error) -> Duration {
    match error.kind() {
        ErrorKind::Running { retry_after } => *retry_after,
        other => panic!("nobody runs: {other:?}"),
    }
}

/// Panics unless idem refused the call with this kind.
#[track_caller]
pub(crate) fn assert_refusal(answer: Answer, kind: &ErrorKind) {
    assert_eq!(refusal(answer).kind(), kind);
}

/// Panics unless the call was refused as a duplicate; returns its `retry_after`.
#[track_caller]
pub(crate) fn assert_duplicate(error: &Error) -> Duration {
    match error.kind() {
        ErrorKind::Duplicate { retry_after } => *retry_after,
        other => panic!("no duplicate: {other:?}"),
    }
}

/// Panics unless the outcome is unknown.
pub(crate) fn assert_unknown(error: &Error) {
    let unknown = matches!(error.kind(), ErrorKind::Unknown { .. });
    assert!(unknown, "somebody knows: {error:?}");
}

/// State and counted attempts of [`Fixture::pay`]'s key, seen by another process.
pub(crate) async fn stands(fixture: &Fixture) -> (EntryState, u16) {
    let entry = until(fixture, fixture.pay_far().entry()).await.unwrap();
    let entry = entry.expect("there is a record");
    (entry.state(), entry.attempts())
}

/// A call in its own task, whose body the test ends.
#[derive(Debug)]
pub(crate) struct Body<A = Answer> {
    gate: Arc<Semaphore>,
    task: JoinHandle<A>,
}

impl Body {
    /// Waits until the body has begun.
    pub(crate) async fn start(call: Pay, answer: Answer) -> Self {
        Self::begun(|gate, begun| tokio::spawn(call.run(move |_| Self::wait(gate, begun, answer))))
            .await
    }

    /// The same for a body that goes on without its caller.
    pub(crate) async fn start_finished(call: Pay, answer: Answer) -> Self {
        Self::begun(|gate, begun| {
            tokio::spawn(call.finish(move |_| Self::wait(gate, begun, answer)))
        })
        .await
    }

    async fn wait(gate: Arc<Semaphore>, begun: Arc<Semaphore>, answer: Answer) -> Answer {
        begun.add_permits(1);
        gate.acquire().await.unwrap().forget();
        answer
    }
}

impl<A: std::fmt::Debug> Body<A> {
    /// A body that begins by `begun`, and ends by `gate`.
    pub(crate) async fn begun(
        spawn: impl FnOnce(Arc<Semaphore>, Arc<Semaphore>) -> JoinHandle<A>,
    ) -> Self {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let task = spawn(Arc::clone(&gate), Arc::clone(&begun));
        begun.acquire().await.unwrap().forget();
        Self { gate, task }
    }

    /// A body that has begun and waits for this.
    pub(crate) fn of(gate: Arc<Semaphore>, task: JoinHandle<A>) -> Self {
        Self { gate, task }
    }

    pub(crate) async fn end(self) -> A {
        self.let_end();
        self.join().await
    }

    /// It ends; what its caller gets may take its time.
    pub(crate) fn let_end(&self) {
        self.gate.add_permits(1);
    }

    /// The outcome of its caller, without ending the body.
    pub(crate) async fn join(self) -> A {
        self.task.await.unwrap()
    }

    /// The caller goes away, and with it the body.
    pub(crate) async fn drop_caller(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// The caller of a finished body goes away; a permit lets the body end.
    pub(crate) async fn leave(self) -> Arc<Semaphore> {
        let gate = Arc::clone(&self.gate);
        self.drop_caller().await;
        gate
    }
}

/// A body that begins and never reports again, until after its lease.
pub(crate) async fn crashed(fixture: &Fixture, call: Pay) {
    let body = Body::start(call, Err(PayError::Down)).await;
    body.drop_caller().await;
    fixture.pass_in_store(LEASE_OVER);
}

/// Two bodies of one key: the first was paused for longer than its lease, and another process has taken the key over.
pub(crate) async fn overtaken(fixture: &Fixture, call: Pay, first: Answer) -> (Body, Body) {
    let first = Body::start(call, first).await;
    fixture.pass_in_store(LEASE_OVER);
    let second = Body::start(fixture.pay_far(), receipt(2)).await;
    (first, second)
}

/// A claim whose process died, and whose lease is over.
pub(crate) async fn abandon(fixture: &Fixture) {
    drop(fixture.pay().begin().await.unwrap());
    fixture.pass_in_store(LEASE_OVER);
}

/// A body whose outcome is unknown.
pub(crate) async fn timed_out(call: Pay) {
    let answer = call.run(|_| async { Err(PayError::TimedOut) as Answer });
    assert_eq!(answer.await, Err(PayError::TimedOut));
}

/// A body that panics.
pub(crate) async fn panicked(call: Pay) {
    let call = call.run(|_| async { std::panic::panic_any("out of paper") as Answer });
    let panic = caught(call).await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of paper"));
}

/// Awaits a future and catches its panic.
pub(crate) async fn caught<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        let polled = AssertUnwindSafe(|| future.as_mut().poll(cx));
        match std::panic::catch_unwind(polled) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Polls this many times, once for each wake, then drops it: `None`. `Some` if it ended.
pub(crate) async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        while polls < times {
            polls += 1;
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => return Poll::Ready(Some(output)),
                Poll::Pending if polls < times => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(None)
    })
    .await
}

/// Lets every other task run until it needs time or the store.
pub(crate) async fn others() {
    // As often as a runtime of one thread looks after itself: after 61 tasks.
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    for _ in 0..4 * (1 + tasks / 61) {
        tokio::task::yield_now().await;
    }
}

/// Advances time by the tasks' short sleeps until the work is done.
pub(crate) async fn until<T>(fixture: &Fixture, work: impl Future<Output = T>) -> T {
    let short = Duration::from_secs(1);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            output = &mut work => return output,
            () = fixture.clock.sleeper_within(short) => {
                let step = fixture.clock.next_wake().filter(|step| *step <= short);
                fixture.clock.advance(step.unwrap_or_default());
                // Woken tasks go on before more time passes.
                others().await;
            }
        }
    }
}

/// A third of the lease, after which it is renewed.
pub(crate) const THIRD: Duration = Duration::from_secs(10);

/// Waits until a task sleeps for at most this, and skips it.
pub(crate) async fn wakes(fixture: &Fixture, pause: Duration) {
    fixture.clock.sleeper_within(pause).await;
    fixture.clock.advance(pause);
}

/// Lets this time pass here and in the store. Waits for that number of renewals.
pub(crate) async fn renewed(fixture: &Fixture, third: Duration, renewals: usize) {
    fixture.clock.sleeper_within(third).await;
    fixture.pass_in_store(third);
    fixture.clock.advance(third);
    fixture.events.wait_for("renewed", renewals).await;
}

/// The engine comes to an end: nothing runs, nothing is renewed, nothing is being stored.
pub(crate) async fn comes_to_rest(fixture: &Fixture) {
    let rest = fixture.engine.shutdown(Duration::from_hours(1));
    assert_eq!(until(fixture, rest).await, Ok(()));
}

/// Calls that wait, each in a task of its own.
pub(crate) fn duplicates(number: usize, call: impl Fn() -> Pay, runs: &Runs) -> JoinSet<Answer> {
    let mut tasks = JoinSet::new();
    for _ in 0..number {
        let (call, runs) = (call(), runs.clone());
        tasks.spawn(async move { paid(call, &runs).await });
    }
    tasks
}

/// Waiting calls of the key, and the runs of their bodies.
pub(crate) async fn followers(number: usize, fixture: &Fixture) -> (Runs, JoinSet<Answer>) {
    let runs = Runs::default();
    let tasks = duplicates(number, || fixture.pay(), &runs);
    others().await;
    (runs, tasks)
}

pub(crate) async fn record(fixture: &Fixture, key: u32) -> Record {
    let digest = KeyBuilder::new("pay", 1024).key(&key).unwrap();
    let place = RecordKey::new(fixture.key().prefix().into(), Operation::new("pay"), digest);
    match fixture.store.read(&place).await.unwrap() {
        ReadReply::Found { record, .. } => record,
        other => panic!("no record: {other:?}"),
    }
}

/// The bytes of that record.
pub(crate) async fn stored(fixture: &Fixture, key: u32) -> Vec<u8> {
    record(fixture, key).await.as_bytes().to_vec()
}

/// The entry of the key of [`Fixture::pay`], which has a record.
pub(crate) async fn entry(fixture: &Fixture) -> Entry {
    let entry = until(fixture, fixture.pay().entry()).await.unwrap();
    entry.expect("there is a record")
}

/// How many claims were sent so far.
pub(crate) fn claims(fixture: &Fixture) -> usize {
    fixture.count(StoreOperation::Claim)
}

/// Waits until the record of [`Fixture::pay`]'s key is in such a state.
pub(crate) async fn comes_to_stand(fixture: &Fixture, like_this: impl Fn(EntryState) -> bool) {
    let stands = async {
        while !like_this(stands(fixture).await.0) {
            tokio::task::yield_now().await;
        }
    };
    patiently("the record has the expected state", stands).await;
}

/// Waits until so many operations of this kind are on their way.
pub(crate) async fn sent(fixture: &Fixture, operation: StoreOperation, times: usize) {
    let sent = async {
        while fixture.count(operation) < times {
            tokio::task::yield_now().await;
        }
    };
    patiently(&format!("{operation:?} is sent"), sent).await;
}
