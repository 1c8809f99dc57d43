//! The layer for gRPC, around a server of tonic.

mod compression;
mod deadlines;
mod payments;
mod refusals;
mod replays;
mod statuses;
mod streams;

use idem_runtime::grpc::GrpcLayer;
use idem_runtime::http::IdempotencyLayer;

use self::payments::{CHARGE, Payments, Shop};
use crate::client::Fixture;

/// A layer that protects `Charge`.
fn layer(layer: IdempotencyLayer) -> GrpcLayer {
    GrpcLayer::new(layer).unary([CHARGE])
}

/// A shop whose layer has an engine in memory.
async fn open(payments: Payments) -> (Fixture, Shop) {
    let fixture = Fixture::new();
    let shop = Shop::open(payments, layer(fixture.layer())).await;
    (fixture, shop)
}
