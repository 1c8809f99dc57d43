//! Streams: refused before they run, or passed. A stream that is listed by mistake never runs twice.

use futures_util::stream::{self, StreamExt as _};
use http::uri::PathAndQuery;
use idem_runtime::grpc::GrpcLayer;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::payments::{
    Client, KEY, Order, Payments, Receipt, Shop, UPLOAD, WATCH, frame, order, raw, refused,
};
use crate::client::{Fixture, data, frames};

const SERVICE: &str = "shop.v1.Payments";

/// Opens a stream of requests that stays open after these.
async fn upload(client: &Client, orders: usize) -> super::payments::Charged {
    let orders = stream::iter((0..orders).map(|_| order("rum").into_inner()));
    let mut orders = Request::new(orders.chain(stream::pending()));
    orders
        .metadata_mut()
        .insert("idempotency-key", KEY.parse().unwrap());
    let codec = ProstCodec::<Order, Receipt>::default();
    let mut grpc = client.grpc.clone();
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(UPLOAD);
    grpc.client_streaming(orders, path, codec).await
}

async fn watch(client: &Client) -> Result<Vec<u64>, tonic::Status> {
    watch_until(client, 3, "rum").await
}

/// All of so many receipts of a stream, and how it ended.
async fn watch_until(client: &Client, receipts: u64, end: &str) -> Result<Vec<u64>, tonic::Status> {
    let codec = ProstCodec::<Order, Receipt>::default();
    let mut grpc = client.grpc.clone();
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(WATCH);
    let mut call = order(end);
    call.get_mut().cents = receipts;
    let mut receipts = grpc.server_streaming(call, path, codec).await?.into_inner();
    let mut numbers = Vec::new();
    while let Some(receipt) = receipts.message().await? {
        numbers.push(receipt.number);
    }
    Ok(numbers)
}

#[tokio::test]
async fn a_stream_of_requests_is_refused_before_it_runs_though_it_does_not_end() {
    let fixture = Fixture::new();
    let grpc = GrpcLayer::new(fixture.layer()).unary([SERVICE]);
    let shop = Shop::open(Payments::numbered(), grpc).await;
    let answer = upload(&shop.client().await, 2).await;
    let text = answer.as_ref().unwrap_err().message().to_owned();
    assert!(text.contains("send it without the key"), "{text}");
    assert_eq!(refused(answer), (Code::Unimplemented, "NOT_UNARY".into()));
    assert_eq!((shop.payments.runs(), fixture.events.all()), (0, vec![]));
}

/// However its bytes are cut: none, a part of one, two of which one is empty, one and a part.
#[tokio::test]
async fn a_request_of_none_or_several_messages_is_refused_before_it_runs() {
    let fixture = Fixture::new();
    let grpc = GrpcLayer::new(fixture.layer()).unary([SERVICE]);
    let shop = Shop::open(Payments::numbered(), grpc).await;
    let client = shop.client().await;
    let one = frame(order("rum").get_ref());
    for body in [
        Vec::new(),
        one[..3].to_vec(),
        one[..one.len() - 1].to_vec(),
        [&one[..], &[0; 5]].concat(),
        [&one[..], &one].concat(),
        [&one[..], &[0]].concat(),
    ] {
        let status = client.raw(raw(KEY, body)).await.status();
        assert_eq!(
            refused(Err(status)),
            (Code::Unimplemented, "NOT_UNARY".into())
        );
    }
    assert_eq!((shop.payments.runs(), fixture.events.all()), (0, vec![]));
    let (source, body) = frames();
    for bytes in one.chunks(1) {
        source.send(data(bytes.to_vec())).unwrap();
    }
    drop(source);
    let call = raw(KEY, Vec::new()).map(|_| tonic::body::Body::new(body));
    assert_eq!(client.raw(call).await.status().code(), Code::Ok);
    assert_eq!(shop.payments.runs(), 1);
}

#[tokio::test]
async fn a_stream_that_is_not_listed_is_refused_or_passes() {
    type Set = fn(GrpcLayer) -> GrpcLayer;
    let cases: [(Set, bool); 4] = [
        (|it| it, false),
        (|it| it.pass([WATCH]), true),
        (|it| it.unary([SERVICE]).pass([WATCH]), true),
        (GrpcLayer::pass_unlisted, true),
    ];
    for (set, passes) in cases {
        let fixture = Fixture::new();
        let shop = Shop::open(Payments::numbered(), set(GrpcLayer::new(fixture.layer()))).await;
        let client = shop.client().await;
        for run in 1..=2 {
            match watch(&client).await {
                Ok(numbers) => assert_eq!((numbers, passes), (vec![1, 2, 3], true)),
                Err(status) => {
                    assert!(!passes, "{status:?}");
                    let text = status.message();
                    assert!(
                        text.contains("the answers of a stream cannot be replayed"),
                        "{text}"
                    );
                    let unlisted = (Code::InvalidArgument, "METHOD_NOT_LISTED".to_owned());
                    assert_eq!(refused(Err(status)), unlisted);
                }
            }
            assert_eq!(shop.payments.runs(), if passes { run } else { 0 });
        }
        assert_eq!(fixture.events.all(), [""; 0], "the store was not asked");
    }
}

/// The mistake of a server's author: it has run by the time that it turns out.
#[tokio::test]
async fn a_stream_of_responses_that_is_listed_as_unary_never_runs_twice() {
    let fixture = Fixture::new();
    let grpc = GrpcLayer::new(fixture.layer()).unary([SERVICE]);
    let shop = Shop::open(Payments::numbered(), grpc).await;
    let client = shop.client().await;
    assert_eq!(watch(&client).await.unwrap(), [1, 2, 3]);
    fixture.saw("unsaved", 1).await;
    for _ in 0..2 {
        let lost = watch(&client).await.unwrap_err();
        assert_eq!(refused(Err(lost)), (Code::DataLoss, "ANSWER_LOST".into()));
    }
    assert_eq!(shop.payments.runs(), 1);
}

/// A stream that ends with an error is passed, at any point: a code that says "not tried" says it of a method that has
/// returned its response. A message that is too large to be encoded ends the response in the same way.
#[tokio::test]
async fn an_error_behind_the_beginning_of_a_response_leaves_the_outcome_unknown() {
    let codes = [
        Code::Unavailable,
        Code::OutOfRange,
        Code::ResourceExhausted,
        Code::NotFound,
        Code::PermissionDenied,
    ];
    for code in codes {
        for receipts in [0, 1] {
            let fixture = Fixture::new();
            let grpc = GrpcLayer::new(fixture.layer()).unary([SERVICE]);
            let shop = Shop::open(Payments::numbered(), grpc).await;
            let client = shop.client().await;
            let end = (code as i32).to_string();
            let first = watch_until(&client, receipts, &end).await.unwrap_err();
            assert_eq!(first.code(), code);
            for _ in 0..2 {
                let repeat = watch_until(&client, receipts, &end).await.unwrap_err();
                let unknown = (Code::Unknown, "OUTCOME_UNKNOWN".into());
                assert_eq!(refused(Err(repeat)), unknown, "{code:?} after {receipts}");
            }
            assert_eq!(shop.payments.runs(), 1, "{code:?} after {receipts}");
        }
    }
}
