//! An official payment SDK, which repeats its requests on its own, against the layer.

use std::sync::Arc;

use axum::Router;
use axum::extract::Form;
use axum::response::Json;
use axum::routing::post;
use http::StatusCode;
use idem_harness::{HANG_LIMIT, PaymentSdk, TcpProxy};
use idem_runtime::OnRunning;
use idem_runtime::http::{IdempotencyLayer, StatusPolicy};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::client::{Fixture, patiently};
use crate::server::Server;

#[derive(Deserialize)]
struct Payment {
    amount: u64,
    currency: String,
}

/// A payment provider behind a network that loses replies, and its customer.
struct Provider {
    charges: watch::Sender<Vec<u64>>,
    /// How many requests have come to the layer.
    arrived: watch::Receiver<usize>,
    /// A handler that is held goes on.
    go_on: Arc<Notify>,
    proxy: TcpProxy,
    sdk: PaymentSdk,
    _server: Server,
}

impl Provider {
    /// A charge of 9,999 is held, and one of 5,000 fails.
    async fn open() -> Self {
        let (arrivals, arrived) = watch::channel(0);
        let charges = watch::Sender::new(Vec::new());
        let go_on = Arc::new(Notify::new());
        let fixture = Fixture::new();
        let layer = IdempotencyLayer::scoped(&fixture.engine, "provider.api", move |request| {
            arrivals.send_modify(|arrived| *arrived += 1);
            let credential = request.headers.get("authorization")?;
            Some(credential.to_str().ok()?.to_owned())
        });
        let layer = layer
            .status_policy(StatusPolicy::stripe())
            .on_running(OnRunning::Wait(HANG_LIMIT));
        let (book, hold) = (charges.clone(), Arc::clone(&go_on));
        let charge = post(move |Form(payment): Form<Payment>| async move {
            assert_eq!(payment.currency, "eur");
            book.send_modify(|book| book.push(payment.amount));
            let number = book.borrow().len();
            if payment.amount == 9_999 {
                hold.notified().await;
            }
            if payment.amount == 5_000 {
                let error = json!({ "error": { "type": "api_error", "message": "it failed" } });
                return Err((StatusCode::INTERNAL_SERVER_ERROR, Json(error)));
            }
            let id = format!("pi_{number}");
            let paid = json!({ "id": id, "object": "payment_intent", "amount": payment.amount });
            Ok(Json(paid))
        });
        let service = Router::new().route("/v1/payment_intents", charge);
        let server = Server::start(service.layer(layer)).await;
        let proxy = TcpProxy::start(server.addr);
        let base = format!("http://{}", proxy.addr());
        Self {
            charges,
            arrived,
            go_on,
            sdk: tokio::task::spawn_blocking(move || PaymentSdk::start(&base))
                .await
                .unwrap(),
            proxy,
            _server: server,
        }
    }

    fn charges(&self) -> Vec<u64> {
        self.charges.borrow().clone()
    }

    /// The outcome of a payment, in the eyes of the customer.
    fn pay(&mut self, amount: u64) -> Value {
        self.sdk
            .begin(&json!({ "amount": amount, "currency": "eur" }));
        self.outcome()
    }

    fn outcome(&mut self) -> Value {
        // It waits for a process, and the server needs this thread.
        tokio::task::block_in_place(|| self.sdk.outcome())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_payments_of_which_every_second_loses_its_reply_are_twenty_charges() {
    let mut provider = Provider::open().await;
    for number in 1..=20 {
        let is_lost = number % 2 == 0;
        if is_lost {
            provider.proxy.drop_next_reply();
        }
        let paid = provider.pay(number);
        assert_eq!(paid["http_status"], 200, "{paid}");
        assert_eq!(paid["body"]["id"], format!("pi_{number}"));
        assert_eq!(paid["body"]["amount"], number);
        let replayed = &paid["headers"]["idempotent-replayed"];
        assert_eq!(replayed == "true", is_lost, "{paid}");
    }
    assert_eq!(provider.proxy.stats().dropped_replies, 10);
    assert_eq!(*provider.arrived.borrow(), 30);
    let amounts: Vec<_> = (1..=20).collect();
    assert_eq!(provider.charges(), amounts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_is_asked_for_again_while_it_is_made_is_one_charge() {
    let mut provider = Provider::open().await;
    let held = json!({ "amount": 9_999, "currency": "eur" });
    provider.sdk.begin(&held);
    // A request whose connection breaks before its handler runs starts nothing.
    let mut charges = provider.charges.subscribe();
    let first = charges.wait_for(|charges| !charges.is_empty());
    patiently("the first charge", first).await.unwrap();
    // Its connection breaks, and the SDK sends it again.
    provider.proxy.cut();
    let mut arrived = provider.arrived.clone();
    let again = arrived.wait_for(|arrived| *arrived >= 2);
    patiently("the SDK asks again", again).await.unwrap();
    provider.go_on.notify_one();
    let paid = provider.outcome();
    assert_eq!(paid["http_status"], 200, "{paid}");
    assert_eq!(paid["body"]["id"], "pi_1");
    assert_eq!(paid["headers"]["idempotent-replayed"], "true");
    assert_eq!(provider.charges(), [9_999]);
}

/// An official SDK retries on 500 and above, unless the response declares a retry useless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_failed_for_good_is_asked_for_once() {
    let mut provider = Provider::open().await;
    let failed = provider.pay(5_000);
    assert_eq!(failed["http_status"], 500, "{failed}");
    assert_eq!(failed["headers"]["stripe-should-retry"], "false");
    assert_eq!(*provider.arrived.borrow(), 1);
    assert_eq!(provider.charges(), [5_000]);
}
