//! Records left by calls with leases, and records left to them by calls in transactions.

use tokio::sync::Notify;

use super::prelude::*;

on_each_database!(each_state_of_a_record_that_a_call_with_a_lease_has_left);

/// A call with a lease, whose body ends like this. `None`: it is dropped.
async fn leased<D: Database>(fixture: &Fixture<D>, end: Option<Answer>) {
    let begun = Notify::new();
    let call = fixture.order().run(|_| async {
        if let Some(end) = end {
            return end;
        }
        begun.notify_one();
        std::future::pending().await
    });
    tokio::select! {
        _ = call => {}
        () = begun.notified() => {}
    }
}

/// What a call in a transaction does with a record.
enum Verdict {
    Runs,
    Replays,
    Running,
    Unknown,
}

async fn each_state_of_a_record_that_a_call_with_a_lease_has_left<D: Database>() {
    const NOW: Duration = Duration::ZERO;
    let years = Duration::from_hours(24 * 365 * 5);
    let down = Err(OrderError::Down);
    let timed_out = Err(OrderError::TimedOut);
    for (case, end, age, verdict) in [
        ("released", Some(down), NOW, Verdict::Runs),
        ("leased", None, NOW, Verdict::Running),
        ("lapsed", None, Duration::from_mins(1), Verdict::Runs),
        ("answered", Some(Ok(77)), NOW, Verdict::Replays),
        ("expired", Some(Ok(77)), years, Verdict::Runs),
        ("unknown", Some(timed_out), NOW, Verdict::Unknown),
    ] {
        let fixture = Fixture::<D>::new().await;
        leased(&fixture, end).await;
        fixture.age(age).await;
        let mut tx = fixture.begin().await;
        insert::<D>(&mut tx, "around").await.done();
        let answer = fixture.ordered(&mut tx).await;
        insert::<D>(&mut tx, "around").await.done();
        D::commit(tx).await.done();
        assert_eq!(fixture.kept("around").await, (2, 1), "{case}");
        match verdict {
            Verdict::Runs => {
                assert_eq!(answer, Ok(1), "{case}");
                assert_eq!(fixture.orders("mine").await, 1, "{case}");
                let again: Answer = fixture.order().run(|_| async { Ok(2) }).await;
                assert_eq!(again, Ok(1), "{case}: with a lease");
                continue;
            }
            Verdict::Replays => assert_eq!(answer, Ok(77), "{case}"),
            Verdict::Running => {
                let error = refusal(answer);
                assert_running(&error);
                let left = error.retry_after().expect("it says when");
                assert!(left > Duration::from_secs(1), "{left:?}");
            }
            Verdict::Unknown => {
                assert_unknown(&refusal(answer));
                let entry = fixture.order().entry().await.unwrap().unwrap();
                entry.reset().await.expect("the record is unchanged");
                assert_eq!(fixture.committed(fixture.order()).await, Ok(1));
                continue;
            }
        }
        assert_eq!((fixture.orders("mine").await, fixture.runs.count()), (0, 0));
    }
}
