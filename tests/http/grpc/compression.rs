//! Compressed messages, of either side.

use http::HeaderMap;
use idem_runtime::grpc::GrpcLayer;
use tonic::Code;
use tonic::codec::CompressionEncoding::Gzip;

use super::layer;
use super::payments::{CHARGE, Client, KEY, Payments, Shop, frame, numbered, order, raw, refused};
use crate::client::Fixture;

/// A client that sends and accepts gzip.
fn compressed(mut client: Client) -> Client {
    client.grpc = client.grpc.send_compressed(Gzip).accept_compressed(Gzip);
    client
}

#[tokio::test]
async fn a_compressed_call_is_replayed_to_the_client_that_repeats_it() {
    let fixture = Fixture::new();
    let shop = Shop::open(Payments::numbered(), layer(fixture.layer())).await;
    let client = compressed(shop.client().await);
    assert_eq!(numbered(client.charge(order("rum")).await), (1, false));
    assert_eq!(
        numbered(compressed(shop.client().await).charge(order("rum")).await),
        (1, true)
    );
    // Its bytes are others.
    let plain = shop.client().await.charge(order("rum")).await;
    let reused = (Code::FailedPrecondition, "KEY_REUSED".to_owned());
    assert_eq!((refused(plain), shop.payments.runs()), (reused, 1));
}

fn encoding(headers: &HeaderMap) -> Option<&str> {
    Some(headers.get("grpc-encoding")?.to_str().unwrap())
}

/// A client that accepts compression gets none: another client may repeat the call.
#[tokio::test]
async fn the_answer_of_a_protected_call_is_not_compressed_and_that_of_another_one_is() {
    type Set = fn(GrpcLayer) -> GrpcLayer;
    let cases: [(Set, bool); 3] = [
        (|it| it.unary([CHARGE]), false),
        (|it| it.pass([CHARGE]), true),
        (GrpcLayer::pass_unlisted, true),
    ];
    for (set, is_compressed) in cases {
        let fixture = Fixture::new();
        let grpc = set(GrpcLayer::new(fixture.layer()));
        let shop = Shop::open(Payments::numbered(), grpc).await;
        let client = shop.client().await;
        let accepting = || {
            let mut call = raw(KEY, frame(order("rum").get_ref()));
            let gzip = "gzip".parse().unwrap();
            call.headers_mut().insert("grpc-accept-encoding", gzip);
            call
        };
        let first = client.raw(accepting()).await;
        assert_eq!(encoding(&first.headers), is_compressed.then_some("gzip"));
        assert_eq!(first.data[0], u8::from(is_compressed));
        if !is_compressed {
            let plain = client.raw(raw(KEY, frame(order("rum").get_ref()))).await;
            assert_eq!(plain.data, first.data);
            assert_eq!(numbered(client.charge(order("rum")).await), (1, true));
        }
    }
}

/// Without a key nothing is stored.
#[tokio::test]
async fn the_answer_of_a_call_without_a_key_is_compressed() {
    let fixture = Fixture::new();
    let http = fixture.layer().optional();
    let shop = Shop::open(Payments::numbered(), layer(http)).await;
    let mut call = raw(KEY, frame(order("rum").get_ref()));
    let headers = call.headers_mut();
    headers.remove("idempotency-key");
    headers.insert("grpc-accept-encoding", "gzip".parse().unwrap());
    let answer = shop.client().await.raw(call).await;
    assert_eq!(encoding(&answer.headers), Some("gzip"));
}
