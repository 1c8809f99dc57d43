//! The books balance behind a network that loses and doubles messages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use idem_harness::TcpProxy;
use idem_services::Service;
use idem_services::bank::{Bank, Order, Receipt};
use idem_services::client::{call_tool, transfer};

use crate::{on_each_framework, order};

const CLIENTS: [&str; 3] = ["ann", "bob", "cat"];

/// The transfers of each client.
const TRANSFERS: u64 = 30;

/// A service, and the number of calls that it got.
#[derive(Clone, Copy)]
struct Line<'a> {
    service: Service,
    calls: &'a AtomicUsize,
}

impl Line<'_> {
    /// Sends an order. `None`: call again.
    fn send(
        self,
        to: SocketAddr,
        client: &str,
        key: &str,
        order: &Order,
    ) -> io::Result<Option<Receipt>> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.service != Service::Mcp {
            let reply = transfer(to, client, Some(key), order)?;
            return match reply.status() {
                "201" => Ok(Some(serde_json::from_str(&reply.body)?)),
                "409" => Ok(None),
                _ => panic!("{reply:?}"),
            };
        }
        let arguments = serde_json::to_value(order)?;
        let mut response = call_tool(to, id, client, Some(key), &arguments)?;
        assert_eq!(response["id"], id);
        let result = response["result"].take();
        if result["isError"] == true {
            assert!(result.to_string().contains("Call again in"), "{result}");
            return Ok(None);
        }
        Ok(Some(serde_json::from_value(
            result["structuredContent"].clone(),
        )?))
    }

    /// Sends an order through the bad network until there is a receipt.
    fn insist(self, proxy: &TcpProxy, client: &str, key: &str, order: &Order) -> Receipt {
        // Every request of this client has it, and the client has one at a time.
        let mark = format!("Bearer {client}");
        for attempt in 0.. {
            let passed = proxy.stats().passed_bytes;
            let fault = order.cents + attempt;
            if fault.is_multiple_of(2) {
                proxy.double_next(&mark);
            }
            if fault.is_multiple_of(3) {
                proxy.drop_next_reply_to(&mark);
            }
            let reply = thread::scope(|scope| {
                if fault.is_multiple_of(5) {
                    scope.spawn(move || {
                        proxy.wait_until(|seen| seen.passed_bytes > passed);
                        proxy.cut();
                    });
                }
                self.send(proxy.addr(), client, key, order)
            });
            if let Ok(Some(receipt)) = reply {
                return receipt;
            }
        }
        unreachable!("it tries for ever")
    }
}

/// The orders of a client, with the same keys as other clients.
fn orders(client: usize) -> impl Iterator<Item = (String, Order)> {
    (0..TRANSFERS).map(move |number| {
        let to = CLIENTS[(client + 1 + usize::from(number % 4 == 0)) % 3];
        // Different amounts have different faults.
        (format!("k{number}"), order(to, 100 + 7 * number))
    })
}

fn the_books_balance(service: Service) {
    let bank = Bank::open();
    let server = service.start(Arc::clone(&bank)).unwrap();
    let proxy = &TcpProxy::start(server);
    let calls = &AtomicUsize::new(0);
    let line = Line { service, calls };
    let receipts: Vec<Vec<Receipt>> = thread::scope(|scope| {
        let clients = CLIENTS.iter().enumerate().map(|(number, client)| {
            let transfers = move || {
                orders(number)
                    .map(|(key, order)| line.insist(proxy, client, &key, &order))
                    .collect()
            };
            scope.spawn(transfers)
        });
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });

    // The network was as bad as it was meant to be.
    let seen = proxy.wait_until(|seen| seen.answered_copies > 20);
    assert!(seen.dropped_replies > 20, "{seen:?}");
    let wanted = receipts.iter().flatten().count();
    assert!(calls.load(Ordering::Relaxed) > wanted + 20);

    // One transfer for each order, and each client holds its receipt, which it gets again.
    let mut accounts = BTreeMap::from(CLIENTS.map(|client| (client.to_owned(), 100_000)));
    let mut numbers = BTreeSet::new();
    for (number, receipts) in receipts.iter().enumerate() {
        for ((key, order), receipt) in orders(number).zip(receipts) {
            let Receipt {
                from, to, cents, ..
            } = receipt;
            assert_eq!(
                (&**from, to, *cents),
                (CLIENTS[number], &order.to, order.cents)
            );
            assert!(
                numbers.insert(receipt.number),
                "{receipt:?} is of two orders"
            );
            let again = line.send(server, from, &key, &order).unwrap();
            assert_eq!(again.as_ref(), Some(receipt));
            *accounts.get_mut(from).unwrap() -= cents;
            *accounts.get_mut(to).unwrap() += cents;
        }
    }
    let ledger = bank.ledger.blocking_lock();
    assert_eq!(ledger.transfers.len(), wanted);
    for receipt in receipts.iter().flatten() {
        assert_eq!(&ledger.transfers[receipt.number - 1], receipt);
    }
    assert_eq!(BTreeMap::from_iter(ledger.accounts.clone()), accounts);
}

#[test]
fn of_a_tool() {
    the_books_balance(Service::Mcp);
}

#[test]
fn of_each_framework() {
    on_each_framework(the_books_balance);
}
