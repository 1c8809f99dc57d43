//! Records of calls with leases and of calls in transactions, mutually met.

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

async fn each_state_of_a_record_that_a_call_with_a_lease_has_left<D: Database>() {
    const NOW: Duration = Duration::ZERO;
    let years = Duration::from_hours(24 * 365 * 5);
    let down = Err(OrderError::Down);
    let timed_out = Err(OrderError::TimedOut);
    for (case, end, age) in [
        ("released", Some(down), NOW),
        ("lapsed", None, Duration::from_mins(1)),
        ("expired", Some(Ok(77)), years),
        ("leased", None, NOW),
        ("answered", Some(Ok(77)), NOW),
        ("unknown", Some(timed_out), NOW),
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
        let found = (fixture.orders("mine").await, fixture.runs.count());
        match case {
            "leased" => {
                let error = refusal(answer);
                assert_running(&error);
                let left = error.retry_after().expect("it says when");
                assert!(left > Duration::from_secs(1), "{left:?}");
                assert_eq!(found, (0, 0));
            }
            "answered" => assert_eq!((answer, found), (Ok(77), (0, 0))),
            "unknown" => {
                assert_unknown(&refusal(answer));
                assert_eq!(found, (0, 0));
                let entry = fixture.order().entry().await.unwrap().unwrap();
                entry.reset().await.expect("the record is unchanged");
                assert_eq!(fixture.committed(fixture.order()).await, Ok(1));
            }
            runs => {
                assert_eq!((answer, found), (Ok(1), (1, 1)), "{runs}");
                let again: Answer = fixture.order().run(|_| async { Ok(2) }).await;
                assert_eq!(again, Ok(1), "{runs}: with a lease");
            }
        }
    }
}
