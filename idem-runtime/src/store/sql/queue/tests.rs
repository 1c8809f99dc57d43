use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use super::*;
use crate::store::sql::argument::SqlArgument;
use crate::store::sql::dialect::StatementKind;
use crate::store::sql::statement::{BatchStatement, Statement};

const LONG: Duration = Duration::from_secs(60 * 60);

type PermitFuture<'a> = Pin<Box<dyn Future<Output = Result<Turn, NoPermit>> + 'a>>;

/// The permit, if there is one.
fn poll(taking: &mut PermitFuture<'_>) -> Option<ConnectionPermit> {
    match poll_turn(taking)? {
        Turn::Permit(permit, _) => Some(permit),
        _ => panic!("it was taken along"),
    }
}

fn poll_turn(taking: &mut PermitFuture<'_>) -> Option<Turn> {
    let mut cx = Context::from_waker(Waker::noop());
    match taking.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(turn) => Some(turn.expect("a seat")),
        std::task::Poll::Pending => None,
    }
}

/// Queued, unless a permit is free.
fn take<'a>(
    permits: &'a Arc<PermitQueue>,
    priority: Priority<'a>,
) -> (PermitFuture<'a>, Option<ConnectionPermit>) {
    queue(permits, (priority, false), None)
}

fn queue<'a>(
    permits: &'a Arc<PermitQueue>,
    priority: (Priority<'a>, bool),
    call: Option<QueuedCall>,
) -> (PermitFuture<'a>, Option<ConnectionPermit>) {
    let mut taking: PermitFuture<'a> = Box::pin(permits.take(priority, LONG, || call));
    let permit = poll(&mut taking);
    (taking, permit)
}

/// A statement with batches of 1 MiB at most, or a read.
fn statement(kind: StatementKind) -> Statement {
    let of = |kind| Statement::new(kind, "", Vec::new());
    let batch = match kind {
        StatementKind::Fetch => BatchStatement::of_reads(vec![of(StatementKind::Several)]),
        _ => BatchStatement::new(of(kind), 1 << 20),
    };
    Statement {
        batch: Some(batch),
        ..of(kind)
    }
}

fn call(statement: &Statement, key: usize, bytes: usize) -> Option<QueuedCall> {
    let (key, body) = (key.to_be_bytes(), vec![0; bytes]);
    QueuedCall::new(
        statement,
        &[SqlArgument::Bytes(&key), SqlArgument::Bytes(&body)],
    )
}

/// Queues these calls behind the only permit, and returns that: the number of calls in the batch of the first, and the
/// others.
fn first_batch<'a>(
    permits: &'a Arc<PermitQueue>,
    admission: &'a Admission,
    calls: impl IntoIterator<Item = Option<QueuedCall>>,
) -> (usize, Vec<PermitFuture<'a>>) {
    let (_, before) = take(permits, Priority::Ending);
    let claim = (Priority::Claim(admission), false);
    let mut waiting: Vec<_> = (calls.into_iter())
        .map(|call| queue(permits, claim, call).0)
        .collect();
    drop(before);
    let batch = batch_of(&mut waiting.remove(0));
    (batch.map_or(1, |batch| batch.len()), waiting)
}

/// The batch of a call that has the permit.
fn batch_of(taking: &mut PermitFuture<'_>) -> Option<Vec<BatchMember>> {
    let Some(Turn::Permit(mut permit, call)) = poll_turn(taking) else {
        panic!("it has the permit");
    };
    permit.take_along(call).map(|(batch, _)| batch)
}

/// Whether it was in a batch, which is dropped.
fn is_taken(taking: &mut PermitFuture<'_>) -> bool {
    matches!(poll_turn(taking), Some(Turn::Alone))
}

#[tokio::test]
async fn endings_go_first() {
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
    let (_, first) = take(&permits, Priority::Claim(&admission));
    let [(mut claim, _), (mut read, _), (mut ending, none)] = [
        Priority::Claim(&admission),
        Priority::Other,
        Priority::Ending,
    ]
    .map(|priority| take(&permits, priority));
    assert!(none.is_none());
    drop(first);
    assert!(poll(&mut claim).is_none() && poll(&mut read).is_none());
    let permit = poll(&mut ending).expect("it came last, and goes first");
    drop(permit);
    let permit = poll(&mut claim).expect("then the others, in their order");
    assert!(poll(&mut read).is_none());
    drop(permit);
    assert!(poll(&mut read).is_some());
}

#[tokio::test]
async fn claims_leave_a_connection_to_endings() {
    let (permits, admission) = (PermitQueue::new(3, 1), Admission::new(LONG));
    let held = [(); 2].map(|()| take(&permits, Priority::Claim(&admission)).1);
    let (mut claim, none) = take(&permits, Priority::Claim(&admission));
    assert!(none.is_none() && held.iter().all(Option::is_some));
    let (_, ending) = take(&permits, Priority::Ending);
    assert!(ending.is_some());
    drop(ending);
    assert!(poll(&mut claim).is_none(), "the third is not for claims");
    drop(held);
    assert!(poll(&mut claim).is_some());
}

#[tokio::test]
async fn four_reads_are_in_flight_and_the_others_go_together() {
    let (permits, admission) = (PermitQueue::new(9, 1), Admission::new(LONG));
    let statement = statement(StatementKind::Fetch);
    let read = |key| queue(&permits, (Priority::Other, true), call(&statement, key, 0));
    let [one, _two, _three, _four] = [1, 2, 3, 4].map(|key| read(key).1.expect("a seat"));
    let mut waiting = [5, 6, 5, 7].map(|key| read(key).0);
    let (_, claim) = take(&permits, Priority::Claim(&admission));
    assert!(claim.is_some(), "a claim passes reads that wait");
    let (_, ending) = queue(&permits, (Priority::Ending, true), call(&statement, 8, 0));
    assert!(ending.is_some(), "so does a read of a claim that was sent");
    drop(one);
    // Several of them may be about one record.
    assert_eq!(batch_of(&mut waiting[0]).expect("a batch").len(), 4);
    assert!(waiting[1..].iter_mut().all(is_taken));
}

#[tokio::test]
async fn a_read_overtakes_those_in_flight_that_nothing_polls() {
    let permits = PermitQueue::new(6, 1);
    let statement = statement(StatementKind::Fetch);
    let read = |key| {
        let patience = Duration::from_secs(2);
        let call = call(&statement, key, 0);
        permits.take((Priority::Other, true), patience, || call)
    };
    let mut held = Vec::new();
    for key in 0..5 {
        let Ok(Turn::Permit(permit, None)) = read(key).await else {
            panic!("each of them gets a permit, the last one late");
        };
        held.push(permit);
    }
    let none = read(5).await;
    assert!(
        matches!(none, Err(NoPermit::TooLate)),
        "no connection: {none:?}"
    );
    drop(held);
    assert_eq!(permits.used(), 0);
}

#[tokio::test]
async fn reads_that_wait_keep_no_claims_apart() {
    let (permits, admission) = (PermitQueue::new(6, 1), Admission::new(LONG));
    let (read, claim) = (
        statement(StatementKind::Fetch),
        statement(StatementKind::Execute),
    );
    let reads = |key| queue(&permits, (Priority::Other, true), call(&read, key, 0));
    let _in_flight = [0; MAX_READING].map(|key| reads(key).1.expect("a seat"));
    let _waiting: Vec<_> = (0..=MAX_PASSED).map(|key| reads(key).0).collect();
    let (_, first) = take(&permits, Priority::Claim(&admission));
    let claims = (Priority::Claim(&admission), false);
    let mut behind = [1, 2, 3].map(|key| queue(&permits, claims, call(&claim, key, 0)).0);
    drop(first);
    assert_eq!(batch_of(&mut behind[0]).expect("a batch").len(), 3);
}

#[tokio::test]
async fn a_read_that_waits_too_long_is_refused_without_the_pace_of_claims() {
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(Duration::ZERO));
    let past = Instant::now().checked_sub(Duration::from_secs(30));
    permits.lock().pace = Pace::new(past.expect("the machine is up for longer"));
    let (_, _held) = take(&permits, Priority::Ending);
    let reads = (Priority::Claim(&admission), true);
    match permits.take(reads, LONG, || None).await {
        Err(NoPermit::Refused(refused)) => {
            assert_eq!(refused.waiting, 1);
            assert!(refused.retry_after < Duration::from_secs(30), "{refused:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_permit_whose_statement_was_dropped_goes_to_the_next() {
    let permits = PermitQueue::new(1, 0);
    let (_, first) = take(&permits, Priority::Ending);
    let [leaves, given, mut next] = [(); 3].map(|()| take(&permits, Priority::Ending).0);
    drop(leaves);
    drop(first);
    // Dropped after it got the permit, and before it was polled.
    drop(given);
    assert!(poll(&mut next).is_some());
    drop(next);
    assert_eq!(permits.used(), 0);
}

#[tokio::test]
async fn a_claim_that_would_wait_too_long_is_refused_immediately() {
    let (permits, patient) = (PermitQueue::new(1, 0), Admission::new(LONG));
    let (_, first) = take(&permits, Priority::Claim(&patient));
    let _second = take(&permits, Priority::Claim(&patient));
    let hurried = Admission::new(Duration::ZERO);
    let mut claim = pin!(permits.take((Priority::Claim(&hurried), false), LONG, || None));
    let refused = claim.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let std::task::Poll::Ready(Err(NoPermit::Refused(crowded))) = refused else {
        panic!("{refused:?}");
    };
    assert!(crowded.waiting == 1 && !crowded.retry_after.is_zero());
    assert!(!hurried.was_sent());
    drop(first);
}

#[tokio::test]
async fn a_statement_whose_time_is_over_is_refused() {
    const SHORT: Duration = Duration::from_millis(2);
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(SHORT));
    let (_, first) = take(&permits, Priority::Ending);
    let claim = permits.take((Priority::Claim(&admission), false), LONG, || None);
    let refused = claim.await;
    assert!(matches!(refused, Err(NoPermit::Refused(_))), "{refused:?}");
    let late = permits.take((Priority::Other, false), SHORT, || None).await;
    assert!(matches!(late, Err(NoPermit::TooLate)), "{late:?}");
    drop(first);
    assert_eq!(permits.used(), 0);
}

#[tokio::test]
async fn a_statement_takes_those_along_that_wait_behind_it() {
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
    let [claim, other] = [(); 2].map(|()| statement(StatementKind::Execute));
    let calls = [
        call(&claim, 1, 10),
        call(&claim, 2, 10),
        call(&other, 3, 10),
        call(&claim, 2, 10),
        None,
        call(&claim, 4, 10),
    ];
    let (batch, mut waiting) = first_batch(&permits, &admission, calls);
    assert_eq!(batch, 3);
    let taken: Vec<_> = waiting.iter_mut().map(is_taken).collect();
    // Not the other statement, the second claim of a key, nor a statement that is always sent alone.
    assert_eq!(taken, [true, false, false, false, true]);
}

#[tokio::test]
async fn a_batch_is_bounded_in_calls_in_bytes_and_in_passed_statements() {
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
    let claim = statement(StatementKind::Execute);
    let calls = (0..100).map(|key| call(&claim, key, 16_000));
    assert_eq!(first_batch(&permits, &admission, calls).0, 64);
    assert!(call(&claim, 1, 16_384).is_none(), "it is sent alone");
    // Claims of one key are not passed over without end.
    let same = (0..100).map(|_| call(&claim, 1, 10));
    let calls = same.chain([call(&claim, 2, 10)]);
    assert_eq!(first_batch(&permits, &admission, calls).0, 1);
}

#[tokio::test]
async fn a_claim_in_a_batch_counts_as_sent_though_its_future_is_dropped() {
    let permits = PermitQueue::new(1, 0);
    let [first, second, third] = [(); 3].map(|()| Admission::new(LONG));
    let claim = statement(StatementKind::Execute);
    let (_, before) = take(&permits, Priority::Ending);
    let queue = |admission, key| {
        let priority = (Priority::Claim(admission), false);
        queue(&permits, priority, call(&claim, key, 10)).0
    };
    let mut leads = queue(&first, 1);
    let (drops, leaves) = (queue(&second, 2), queue(&third, 3));
    drop(leaves);
    drop(before);
    let batch = batch_of(&mut leads).expect("a batch");
    assert_eq!(batch.len(), 2, "one had left before");
    drop(drops);
    assert!(second.was_sent() && !third.was_sent());
}

#[cfg(feature = "_sqlite")]
#[tokio::test]
async fn a_write_is_sent_alone_unless_others_are_in_progress_or_wait() {
    let (writes, admission) = (PermitQueue::of_writes(), Admission::new(LONG));
    let statement = statement(StatementKind::Execute);
    let write = |key, priority| queue(&writes, (priority, false), call(&statement, key, 10));
    let (_, lone) = write(1, Priority::Other);
    let (_claim, none) = write(2, Priority::Claim(&admission));
    assert!(lone.is_some() && none.is_none());
    // The thread may take it along before it is polled again.
    assert!(admission.was_sent());
    drop(lone);
    let (_ending, none) = write(3, Priority::Ending);
    assert!(none.is_none(), "a write waits");
    let mut other: PermitFuture<'_> =
        Box::pin(writes.take((Priority::Other, false), LONG, || None));
    assert!(is_taken(&mut other), "no thread writes it");
    let (permit, batch) = (writes.overtaking(), writes.take_all(512));
    let keys: Vec<_> = batch
        .iter()
        .map(|member| member.call.primary_key()[7])
        .collect();
    assert_eq!(keys, [3, 2], "endings are written first");
    let (_, none) = write(4, Priority::Ending);
    assert!(none.is_none(), "the thread writes");
    assert_eq!(writes.take_all(512).len(), 1);
    drop(permit);
    assert!(write(5, Priority::Other).1.is_some());
}

#[tokio::test]
async fn the_claims_of_a_batch_are_counted_together() {
    let (permits, admission) = (PermitQueue::new(1, 0), Admission::new(LONG));
    let claim = statement(StatementKind::Execute);
    let (_, before) = take(&permits, Priority::Ending);
    let priority = (Priority::Claim(&admission), false);
    let mut waiting: Vec<_> = (0..128)
        .map(|key| queue(&permits, priority, call(&claim, key, 10)).0)
        .collect();
    std::thread::sleep(Duration::from_millis(64));
    drop(before);
    assert_eq!(batch_of(&mut waiting[0]).expect("a batch").len(), 64);
    let wait = permits.lock().pace.wait(64, Instant::now());
    let least = Duration::from_millis(60);
    assert!(wait >= least, "{wait:?} for another batch");
}
