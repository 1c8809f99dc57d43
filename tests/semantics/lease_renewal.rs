//! Which leases are renewed, when, and for how long.

use idem_runtime::claim::Claim;

use crate::prelude::*;

on_every_store![
    claims_of_one_moment_are_all_renewed,
    a_renewal_by_hand_starts_the_lease_anew,
    a_renewal_by_hand_waits_for_its_reply_however_short_the_deadline,
    a_renewal_that_outlives_its_body_is_the_last_one,
    a_body_that_starts_because_nothing_landed_has_a_whole_lease,
];

const LEASE: Duration = Duration::from_secs(30);
const THIRD: Duration = Duration::from_secs(10);

async fn claimed(fixture: &Fixture, key: u32) -> Claim {
    let begun = fixture.engine.operation("pay").key(&key).begin().await;
    match begun.unwrap() {
        Acquired::Run(claim) => claim,
        Acquired::Replay(_) => panic!("nothing is stored"),
        _ => unreachable!("there is no third"),
    }
}

/// Lets a third of the lease pass in both places.
async fn third(fixture: &Fixture) {
    fixture.clock.sleeper_within(THIRD).await;
    fixture.pass_in_store(THIRD);
    fixture.clock.advance(THIRD);
}

async fn claims_of_one_moment_are_all_renewed(fixture: Fixture) {
    let mut claims = Vec::new();
    for key in 0..10 {
        claims.push(claimed(&fixture, key).await);
    }
    for thirds in 1..=3 {
        third(&fixture).await;
        let renewed = fixture.events.wait_for("renewed", 10 * thirds);
        patiently("all are renewed", renewed).await;
    }
    for claim in claims {
        assert_eq!(claim.context().lease_remaining(), LEASE);
        claim.release().await;
    }
}

async fn a_renewal_by_hand_starts_the_lease_anew(fixture: Fixture) {
    let claim = claimed(&fixture, 7).await;
    fixture.clock.advance(Duration::from_secs(4));
    assert_eq!(claim.context().lease_remaining(), Duration::from_secs(26));
    claim.renew().await.unwrap();
    assert_eq!(claim.context().lease_remaining(), LEASE);
    claim.release().await;
}

async fn a_renewal_by_hand_waits_for_its_reply_however_short_the_deadline(fixture: Fixture) {
    let fixture = fixture.with(|engine| engine.complete_deadline(Duration::from_millis(100)));
    let claim = claimed(&fixture, 7).await;
    fixture.fail(StoreOperation::Renew, [Fault::ReplyHeld]);
    let renewed = async {
        let renewed = claim.renew().await;
        claim.release().await;
        renewed
    };
    let delivers = async {
        sent(&fixture, StoreOperation::Renew, 1).await;
        fixture.clock.advance(Duration::from_millis(1_900));
        fixture.store.deliver();
    };
    let (renewed, ()) = tokio::join!(renewed, delivers);
    renewed.unwrap();
}

async fn a_renewal_that_outlives_its_body_is_the_last_one(fixture: Fixture) {
    fixture.fail(StoreOperation::Renew, [Fault::ReplyHeld]);
    let body = Body::start(fixture.pay(), receipt(1)).await;
    third(&fixture).await;
    sent(&fixture, StoreOperation::Renew, 1).await;
    let other = Body::start(fixture.engine.operation("other").key(&1), receipt(2)).await;
    body.drop_caller().await;
    fixture.store.deliver();
    fixture.events.wait_for("renewed", 1).await;
    assert_running(&refused_far(&fixture).await);
    for renewed in 2..=4 {
        third(&fixture).await;
        fixture.events.wait_for("renewed", renewed).await;
    }
    others().await;
    assert_eq!(fixture.count(StoreOperation::Renew), 4, "of the other one");
    let again = fixture.pay_far().run(|_| async { receipt(3) });
    assert_eq!(until(&fixture, again).await, receipt(3));
    assert_eq!(other.end().await, receipt(2));
}

async fn a_body_that_starts_because_nothing_landed_has_a_whole_lease(fixture: Fixture) {
    crashed(&fixture, fixture.pay()).await;
    let clock = fixture.clock.clone();
    let hook = |_| async move {
        clock.advance(Duration::from_secs(4));
        Reconciled::<Receipt>::NotLanded
    };
    let call = fixture.pay().run_reconciled(hook, |cx| async move {
        assert_eq!(cx.lease_remaining(), LEASE);
        receipt(2)
    });
    assert_eq!(call.await, receipt(2));
    assert_eq!(answered(fixture.pay_far()).await, receipt(2));
    assert!(fixture.clock.now() < LEASE_OVER);
}
