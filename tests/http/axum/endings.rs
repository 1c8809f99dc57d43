//! Clients that go away, and servers.

use serde_json::json;

use crate::client::{Pending, post, send};
use crate::shop::Shop;
use idem_harness::HANG_LIMIT;
use idem_runtime::HasEngine;

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer_later() {
    let shop = Shop::new();
    let server = shop.open().await;
    let slow = || post("/orders", "k", &json!({ "item": "slow" }));
    let first = Pending::send(server.at, slow()).await;
    shop.begun().await;
    first.hang_up().await;
    shop.left().await;

    shop.let_end();
    let again = send(server.at, slow()).await;
    assert_eq!(again.status, 201);
    assert_eq!(again.json(), json!({ "run": 1, "item": "slow" }));
    assert!(again.is_replayed());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_server_that_ends_answers_running_requests() {
    let shop = Shop::new();
    let mut server = shop.open().await;
    let other = shop.open().await;
    let slow = |key| post("/orders", key, &json!({ "item": "slow" }));

    // One client waits, one has gone.
    let stays = tokio::spawn(send(server.at, slow("stays")));
    shop.begun().await;
    let leaves = Pending::send(server.at, slow("leaves")).await;
    shop.begun().await;
    leaves.hang_up().await;
    shop.left().await;

    server.close();
    shop.let_end();
    shop.let_end();
    let answered = stays.await.unwrap();
    assert_eq!(
        (answered.status.as_u16(), answered.is_replayed()),
        (201, false)
    );
    server.closed().await;
    let engine = shop.engine();
    assert_eq!(engine.shutdown(HANG_LIMIT).await, Ok(()));

    // The body whose client had gone ran to its end all the same, as the next instance sees.
    let next = shop.successor();
    let successor = next.open().await;
    let found = send(successor.at, slow("leaves")).await;
    assert!(found.is_replayed());
    assert_eq!(next.runs(), 0);

    // A request that comes later is sent to another instance.
    let late = send(other.at, slow("late")).await;
    late.assert_problem(503, "unavailable");
    assert_eq!(late.header("retry-after"), Some("1"));
    assert_eq!(shop.runs(), 2);
}
