//! Media types of streams, and a layer without protection.

use idem_runtime::OnOutage;
use idem_runtime::testing::{Fault, StoreOperation};

use super::super::bodies::next;
use super::shop::{BOTH, Shop, TWO};
use crate::client::Fixture;

#[tokio::test]
async fn other_types_are_streams_if_they_are_named() {
    for of_type in [
        "Text/Event-Stream; charset=utf-8",
        "multipart/x-mixed-replace; boundary=b",
        "application/x-ndjson",
        "application/jsonl; charset=utf-8",
    ] {
        let named = ["application/x-ndjson", "application/jsonl"];
        let mut shop = Shop::of_type(of_type, 201, |layer| layer.stream_types(named));
        drop(shop.first().await);
        shop.write(TWO);
        shop.end();
        shop.completed().await;
        let again = shop.repeat().await;
        assert_eq!(again.said(), (201, BOTH));
        assert_eq!(again.header("content-type"), Some(of_type));
    }
}

#[test]
#[should_panic = "`x-ndjson` in `stream_types` is no media type"]
fn a_stream_type_has_a_subtype() {
    let _ = Fixture::new().layer().stream_types(["x-ndjson"]);
}

/// Of a layer without protection, after an outage: nothing is recorded, and the client reads the stream itself.
#[tokio::test]
async fn a_stream_without_protection_reaches_its_client() {
    let shop = Shop::open(|layer| layer.on_outage(OnOutage::Run));
    shop.store
        .fail(StoreOperation::Claim, [Fault::Unreachable; 1_000]);
    let (mut response, ()) = tokio::join!(
        shop.first(),
        shop.passes("it runs", || shop.fixture.events.count("unprotected") == 1)
    );
    shop.write(TWO);
    assert_eq!(next(&mut response).await.unwrap().unwrap(), TWO.as_bytes());
}
