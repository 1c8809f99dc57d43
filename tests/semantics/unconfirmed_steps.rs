//! Steps during a silent store and after a lost lease: their beginnings, their records, and the refusals of the body.

use idem_runtime::on_error::Keep;
use idem_runtime::{OnUnconfirmed, step};

use crate::prelude::*;
use crate::rows::{FORGOTTEN, Row};
use crate::steps::{appends, assert_charged_once, charged, counted, polled_until, two_steps};

on_every_store! {
    an_append_without_a_reply_hands_over_the_value, a_lenient_call_goes_on_without_a_confirmed_step,
    a_system_error_is_told_although_it_could_not_be_recorded,
    a_step_whose_beginning_was_not_confirmed_did_not_begin,
    a_refusal_of_a_step_is_no_answer_of_the_call, a_step_that_is_not_polled_holds_no_other_back,
    a_lost_record_is_written_again_with_its_steps,
    a_record_that_is_lost_before_its_release_is_written_again_with_its_steps,
    a_late_release_of_an_expired_record_writes_nothing,
}

/// Does the work while the next append misses its deadline.
async fn without_reply<T>(fixture: &Fixture, work: impl Future<Output = T>) -> T {
    let next = appends(fixture) + 1;
    let late = async {
        sent(fixture, StoreOperation::Append, next).await;
        others().await;
        fixture.clock.advance(THIRD);
    };
    let (output, ()) = tokio::join!(work, late);
    output
}

async fn an_append_without_a_reply_hands_over_the_value(fixture: Fixture) {
    fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
    let call = fixture.pay().run(async |_| {
        let error = refusal(step("charge", async |_| receipt(3)).await);
        assert_eq!(error.kind(), &ErrorKind::Unconfirmed);
        assert_eq!(error.unconfirmed::<u64>(), None);
        Ok::<_, PayError>(error.unconfirmed::<Receipt>().unwrap())
    });
    assert_eq!(until(&fixture, call).await, receipt(3));
}

async fn a_lenient_call_goes_on_without_a_confirmed_step(fixture: Fixture) {
    fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
    let call = fixture.pay().on_unconfirmed(OnUnconfirmed::Return);
    let charge = Runs::default();
    let call = charged(call, &charge, receipt(3));
    assert_eq!(until(&fixture, call).await, receipt(3));
}

/// The part says that nothing happened, and only that cannot be recorded.
async fn a_system_error_is_told_although_it_could_not_be_recorded(fixture: Fixture) {
    let part = async |_| {
        fixture.fail(StoreOperation::Append, [Fault::Lost; 1_000]);
        Err(PayError::Down) as Answer
    };
    let call = fixture.pay().run(|_| step("mail", part).once());
    assert_eq!(until(&fixture, call).await, Err(PayError::Down));
}

/// The beginning arrives, and its reply does not; the body waits for it in vain, or drops the step.
async fn a_step_whose_beginning_was_not_confirmed_did_not_begin(fixture: Fixture) {
    for waits in [true, false] {
        let _row = Row::new(&fixture, ("waits", waits));
        let (mail, before) = (Runs::default(), appends(&fixture));
        fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
        let call = fixture.pay().run(async |_| {
            let mut begins = Box::pin(counted("mail", &mail).once());
            if waits {
                let refused = refusal(begins.await);
                assert_eq!(*refused.kind(), ErrorKind::StoreUnavailable, "{refused}");
            } else {
                polled_until(begins.as_mut(), || appends(&fixture) > before).await;
            }
            Err(PayError::Down) as Answer
        });
        let answer = if waits {
            without_reply(&fixture, call).await
        } else {
            call.await
        };
        assert_eq!((answer, mail.count()), (Err(PayError::Down), 0));
        let again = fixture.pay_far().run(|_| counted("mail", &mail).once());
        assert_eq!(again.await, receipt(1));
    }
}

/// Nothing was started: the customer has paid, and the repeat is to finish the order.
async fn a_refusal_of_a_step_is_no_answer_of_the_call(fixture: Fixture) {
    let [charge, mail] = &[Runs::default(), Runs::default()];
    let call = async |fails| {
        let body = async |_| {
            counted("charge", charge).await?;
            let mail = counted("mail", mail).once();
            if fails {
                fixture.fail(StoreOperation::Append, [Fault::ReplyHangs]);
                return without_reply(&fixture, mail).await;
            }
            mail.await
        };
        fixture.pay_far().on_error(Keep).run(body).await
    };
    assert_refusal(call(true).await, &ErrorKind::StoreUnavailable);
    assert_eq!(call(false).await, receipt(1));
}

/// As in a `select!` whose other branch has steps of its own.
async fn a_step_that_is_not_polled_holds_no_other_back(fixture: Fixture) {
    let [charge, label] = &[Runs::default(), Runs::default()];
    fixture.fail(StoreOperation::Append, [Fault::Hangs]);
    let start = fixture.clock.now();
    let call = fixture.pay().run(async |_| {
        let mut first = Box::pin(counted("charge", charge));
        polled_until(first.as_mut(), || appends(&fixture) > 0).await;
        assert_eq!(counted("label", label).await, receipt(1));
        drop(first);
        Err(PayError::Down) as Answer
    });
    assert_eq!(until(&fixture, call).await, Err(PayError::Down));
    assert!(fixture.clock.now() < start + Duration::from_secs(1));
    let next = fixture.pay_far();
    let next = next.run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(next.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_lost_record_is_written_again_with_its_steps(fixture: Fixture) {
    let [charge, label] = &[Runs::default(), Runs::default()];
    let call = fixture.pay().run(async |_| {
        counted("charge", charge).await?;
        fixture.pass_in_store(FORGOTTEN);
        counted("label", label).await?;
        fixture.pass_in_store(FORGOTTEN);
        renewed(&fixture, THIRD, 1).await;
        Err(PayError::Down) as Answer
    });
    assert_eq!(call.await, Err(PayError::Down));
    let next = fixture.pay_far();
    let next = next.run(|_| two_steps([charge, label], receipt(1)));
    assert_eq!(next.await, receipt(1));
    assert_eq!((charge.count(), label.count()), (1, 1));
}

async fn a_record_that_is_lost_before_its_release_is_written_again_with_its_steps(
    fixture: Fixture,
) {
    let charge = Runs::default();
    let call = fixture.pay().run(async |_| {
        counted("charge", &charge).await?;
        fixture.pass_in_store(FORGOTTEN);
        Err(PayError::Down) as Answer
    });
    assert_eq!(call.await, Err(PayError::Down));
    assert_charged_once(&fixture, &charge).await;
}

/// Another attempt may have run, and its answer may have expired: a later call is another one.
async fn a_late_release_of_an_expired_record_writes_nothing(fixture: Fixture) {
    // It is renewed no longer, and its lease lapses.
    let zombie = fixture.pay().max_run(Duration::from_secs(1));
    let zombie = zombie.on_lease_lost(OnLeaseLost::Continue);
    let call = zombie.run(async |_| {
        counted("charge", &Runs::default()).await?;
        fixture.clock.advance(LEASE_OVER);
        fixture.events.wait_for("lease lost", 1).await;
        fixture.pass_in_store(FORGOTTEN);
        Err(PayError::Down) as Answer
    });
    assert_eq!(call.await, Err(PayError::Down));
    assert!(fixture.pay_far().entry().await.unwrap().is_none());
}
