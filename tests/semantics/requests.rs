//! The requests that a key accepts after an attempt without an answer.

use idem_runtime::step;

use crate::prelude::*;

on_every_store![a_key_keeps_the_request_that_another_system_may_know,];

/// The acts of the first attempt before its failure.
#[derive(Clone, Copy, Debug)]
enum Did {
    Nothing,
    ReleasedItsClaim,
    DerivedAKey,
    MadeACall,
    ClaimedACall,
    BeganAStep,
    LostItsCaller,
    Panicked,
    CountedItsError,
}

/// Makes the first attempt.
async fn fails(fixture: &Fixture, call: Pay, did: Did) {
    let inner = fixture.engine.operation("charge").key(&format!("{did:?}"));
    let failed = match did {
        Did::Nothing => return down(call).await,
        Did::ReleasedItsClaim => return claimed(call).await.release().await,
        Did::LostItsCaller => {
            let call = call.on_cancel(OnCancel::Release);
            Body::start(call, receipt(1)).await.drop_caller().await;
            return comes_to_rest(fixture).await;
        }
        Did::Panicked => return panicked(call).await,
        Did::CountedItsError => return down(call.count_errors(true)).await,
        Did::DerivedAKey => {
            let body = |context: Context| async move {
                // Sent to the bank, say, which did not answer.
                assert_eq!(context.derive_key("charge").len(), 43);
                Answer::Err(PayError::Down)
            };
            call.run(body).await
        }
        Did::MadeACall => {
            let body = |_| async move {
                paid(inner, &Runs::default()).await?;
                Err(PayError::Down)
            };
            call.run(body).await
        }
        // Nothing of it is kept, and the other side may know its key.
        Did::BeganAStep => {
            let part = async |_| Err(PayError::Down);
            call.run(|_| step("charge", part)).await
        }
        Did::ClaimedACall => {
            let body = |_| async move {
                claimed(inner).await.complete(Receipt { run: 1 }).await?;
                Err(PayError::Down)
            };
            call.run(body).await
        }
    };
    assert_eq!(failed, Err(PayError::Down));
}

async fn a_key_keeps_the_request_that_another_system_may_know(mut fixture: Fixture) {
    for (did, later_attempts, is_kept) in [
        (Did::Nothing, 2, false),
        (Did::ReleasedItsClaim, 0, false),
        (Did::DerivedAKey, 0, true),
        (Did::DerivedAKey, 2, true),
        (Did::MadeACall, 0, true),
        (Did::ClaimedACall, 0, true),
        (Did::BeganAStep, 0, true),
        (Did::LostItsCaller, 0, true),
        (Did::Panicked, 1, true),
        (Did::CountedItsError, 0, true),
    ] {
        let row = format!("{did:?} before {later_attempts} later attempts");
        let key = &row;
        let call = |engine: &Engine, asked: &'static str| {
            engine.operation("pay").key(key).fingerprint(&asked)
        };
        fails(&fixture, call(&fixture.engine, "first"), did).await;
        for _ in 0..later_attempts {
            down(call(&fixture.engine, "first")).await;
        }
        let (taken, refused) = if is_kept {
            ("first", "other")
        } else {
            ("other", "first")
        };
        // A key that is kept refuses the other request before its own one is answered, too.
        if is_kept {
            let error = refusal(answered(call(&fixture.far, refused)).await);
            assert_eq!(error.kind(), &ErrorKind::Mismatch, "{row}");
        }
        let answer = paid(call(&fixture.far, taken), &Runs::default()).await;
        assert_eq!(answer, receipt(1), "{row}");
        let error = refusal(answered(call(&fixture.far, refused)).await);
        assert_eq!(error.kind(), &ErrorKind::Mismatch, "{row}");
        fixture = fixture.with(|engine| engine);
    }
}
