//! The same requests to each web framework, and the same responses.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use idem_harness::TcpProxy;
use idem_services::bank::{Bank, Order, Receipt};
use idem_services::client::{Reply, post, transfer};
use serde_json::Value;

use crate::{on_each_framework, order};

/// Runs a story on each framework, with a bank of its own.
fn on_each(story: fn(SocketAddr, &Bank)) {
    on_each_framework(|service| {
        let bank = Bank::open();
        story(service.start(Arc::clone(&bank)).unwrap(), &bank);
    });
}

/// The response to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A receipt of this number.
    Done(usize),
    /// The same, marked as a replay.
    Replayed(usize),
    /// A problem document with this status and code.
    Problem(u16, &'static str),
    /// Another refusal.
    Refused(u16),
}
use Seen::{Done, Problem, Refused, Replayed};

/// Fails unless the response is this one, in all its parts.
fn check(reply: &Reply, seen: Seen, order: &Order) {
    let status: u16 = reply.status().parse().unwrap();
    let content = reply.header("content-type");
    let replayed = reply.header("idempotent-replayed");
    match seen {
        Done(number) | Replayed(number) => {
            let receipt: Receipt = serde_json::from_str(&reply.body).unwrap();
            assert_eq!((status, content), (201, Some("application/json")));
            assert_eq!((receipt.number, receipt.cents), (number, order.cents));
            let expected = (seen == Replayed(number)).then_some("true");
            assert_eq!(replayed, expected, "{reply:?}");
        }
        Problem(expected, code) => {
            let document: Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(content, Some("application/problem+json"), "{reply:?}");
            assert_eq!((status, document["code"].as_str()), (expected, Some(code)));
            assert_eq!(document["status"], expected);
            assert!(reply.header("link").unwrap().contains("describedby"));
            let retry_after = reply.header("retry-after");
            assert_eq!(retry_after.is_some(), document["retryable"] == true);
        }
        Refused(expected) => assert_eq!(status, expected, "{reply:?}"),
    }
}

#[test]
fn each_request_has_the_response_of_the_draft() {
    on_each(|address, bank| {
        for (client, key, cents, seen) in [
            ("ann", Some("k1"), 30, Done(1)),
            ("ann", Some("k1"), 30, Replayed(1)),
            ("ann", Some("k1"), 31, Problem(422, "key-reused")),
            ("cat", Some("k1"), 30, Done(2)),
            ("cat", Some("k1"), 30, Replayed(2)),
            ("ann", None, 30, Problem(400, "key-missing")),
            ("ann", Some(""), 30, Problem(400, "key-invalid")),
            ("ann", Some("k2"), 200_000, Refused(409)),
            ("ann", Some("k2"), 200_000, Refused(409)),
            ("ann", Some("k2"), 30, Problem(422, "key-reused")),
        ] {
            let order = order("bob", cents);
            check(
                &transfer(address, client, key, &order).unwrap(),
                seen,
                &order,
            );
        }
        // Two keys are not one of them.
        let order = order("bob", 30);
        let sent = serde_json::to_value(&order).unwrap();
        let key = |key: &str| ("idempotency-key", format!("{key:?}"));
        let ann = ("authorization", "Bearer ann".to_owned());
        let headers = [ann, key("k3"), key("k4")];
        let reply = post(address, "/transfers", &headers, &sent).unwrap();
        check(&reply, Problem(400, "key-invalid"), &order);
        // A key without a client.
        let reply = post(address, "/transfers", &[key("k5")], &sent).unwrap();
        check(&reply, Refused(401), &order);
        let ledger = bank.ledger.blocking_lock();
        assert_eq!(ledger.transfers.len(), 2);
        assert_eq!(ledger.accounts["ann"], 99_970);
        assert_eq!(ledger.accounts["bob"], 100_060);
    });
}

#[test]
fn a_transfer_of_unknown_outcome_is_not_repeated() {
    on_each(|address, bank| {
        bank.ledger.blocking_lock().confirms = false;
        let order = order("bob", 30);
        for seen in [Refused(504), Problem(500, "outcome-unknown")] {
            check(
                &transfer(address, "ann", Some("k1"), &order).unwrap(),
                seen,
                &order,
            );
        }
        assert_eq!(bank.ledger.blocking_lock().transfers.len(), 1);
    });
}

/// Of two requests at once, one holds the key, one is refused; also when the client of the first has left, where a
/// framework may drop its handler, as salvo does.
fn two_at_once(address: SocketAddr, bank: &Bank, leaves: bool) {
    let order = &order("bob", 30);
    let send = |to| transfer(to, "ann", Some("k1"), order);
    let proxy = TcpProxy::start(address);
    let running = Problem(409, "request-running");
    thread::scope(|scope| {
        let ledger = bank.ledger.blocking_lock();
        let (replies, reply) = mpsc::channel();
        for replies in [replies.clone(), replies] {
            let to = proxy.addr();
            scope.spawn(move || replies.send(send(to)).unwrap());
        }
        // The second call: the first is waiting for the ledger.
        check(&reply.recv().unwrap().unwrap(), running, order);
        if leaves {
            proxy.cut();
            reply.recv().unwrap().unwrap_err();
            // It still holds the key, and the server has time to see that its client is gone.
            check(&send(address).unwrap(), running, order);
        }
        assert_eq!(ledger.transfers.len(), 0);
        drop(ledger);
        if !leaves {
            check(&reply.recv().unwrap().unwrap(), Done(1), order);
        }
    });
    check(&send(address).unwrap(), Replayed(1), order);
    assert_eq!(bank.ledger.blocking_lock().transfers.len(), 1);
}

#[test]
fn a_concurrent_duplicate_is_refused_until_the_first_is_done() {
    on_each(|address, bank| two_at_once(address, bank, false));
}

#[test]
fn a_client_that_leaves_has_its_transfer() {
    on_each(|address, bank| two_at_once(address, bank, true));
}
