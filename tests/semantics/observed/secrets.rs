//! No span, event or label has a key or a payload.

use idem_runtime::{OnRunning, step};
use idem_tests::payment::PayError;
use serde::{Deserialize, Serialize};

use crate::support::Shop;

const KEY: &str = "4111-1111-1111-1111";
const PAYLOAD: &str = "hunter2-payload";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Secret(String);

#[tokio::test]
async fn no_span_and_no_label_has_a_key_or_a_payload() {
    let shop = Shop::new("secret.pay");
    let pay = |request: &str| {
        let call = shop.engine.operation(shop.operation).scope("tenant-secret");
        call.key(KEY)
            .fingerprint(request)
            .on_running(OnRunning::Reject)
    };
    let body = |ends: &'static str| async move {
        let charge = async |_| Ok::<_, PayError>(Secret(PAYLOAD.to_owned()));
        let charged = step(("charge", KEY), charge).await?;
        match ends {
            "down" => Err(PayError::Down),
            "late" => Err(PayError::TimedOut),
            _ => Ok(charged),
        }
    };
    let down = pay(PAYLOAD).run(|_| body("down")).await;
    assert_eq!(down, Err(PayError::Down));
    let answer = pay(PAYLOAD).run(|_| body("")).await;
    assert_eq!(answer, Ok(Secret(PAYLOAD.to_owned())));
    let again = pay(PAYLOAD).run(|_| body("")).await;
    assert_eq!(answer, again);
    let other = pay("hunter2-payload of another request").run(|_| body(""));
    assert!(other.await.is_err());
    let wrong = pay(PAYLOAD).run(|_| async { Ok::<u64, PayError>(7) });
    assert!(wrong.await.is_err());
    let late = shop.engine.operation(shop.operation).key(PAYLOAD);
    let late = late.run(|_| body("late")).await;
    assert_eq!(late, Err(PayError::TimedOut));
    let spans = format!("{:?}", shop.closed(6).await);
    let labels = shop.all.exporter.render();
    for secret in ["4111", "hunter2", "tenant-secret"] {
        assert!(!spans.contains(secret), "{secret}: {spans}");
        assert!(!labels.contains(secret), "{secret}: {labels}");
    }
}
