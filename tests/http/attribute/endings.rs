//! Clients that go away, and servers.

use idem_harness::HANG_LIMIT;
use idem_runtime::HasEngine as _;

use super::shop::{Shop, order};
use crate::client::{Refused, Replayed, leave, patiently, send, spawn};
use crate::server::Server;

const SLOW: &str = r#"{"run":1,"item":"slow"}"#;

/// One client waits over a socket, one has gone.
#[tokio::test]
async fn a_server_that_ends_answers_running_requests() {
    let shop = Shop::new();
    let routes = shop.routes();
    let server = Server::start(routes.clone()).await;
    let mut stays = server.connect().await;
    let body = r#"{"item":"slow"}"#;
    let request = format!(
        "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nIdempotency-Key: \"stays\"\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stays.write(request.as_bytes()).await;
    shop.begun().await;
    let slow = |key| order("/orders", key, "slow");
    let leaves = spawn(&routes, slow("leaves"));
    shop.begun().await;
    leave(leaves).await;
    shop.left().await;

    let stopped = tokio::spawn(server.stop());
    shop.let_end();
    shop.let_end();
    let answered = stays.answer().await;
    assert_eq!(answered.said(), (201, SLOW));
    assert!(!answered.is_replayed());
    patiently("the server ends", stopped).await.unwrap();
    assert_eq!(shop.engine().shutdown(HANG_LIMIT).await, Ok(()));

    // The body whose client had gone ran to its end all the same, as the next instance sees.
    let next = shop.successor();
    let left = r#"{"run":2,"item":"slow"}"#;
    let found = ("left", slow("leaves"), Replayed(201, left));
    next.walk(&next.routes(), [found]).await;

    // A request that comes later is sent to another instance.
    let late = ("late", slow("late"), Refused(503, "unavailable"));
    shop.walk(&routes, [late]).await;
    let late = send(&routes, slow("late")).await;
    assert_eq!(late.header("retry-after"), Some("1"));
    assert_eq!(shop.runs(), 2);
}
