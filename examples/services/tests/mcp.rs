//! The tool's replies to a model: by the SDK's client and on the wire.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use idem_harness::TcpProxy;
use idem_services::Service;
use idem_services::bank::{Bank, Receipt};
use idem_services::client::{call_tool, post};
use idem_services::mcp::KEY;
use rmcp::model::{CallToolRequestParams, ProtocolVersion, RequestMetaObject};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _};
use serde_json::{Value, json};

fn start() -> (Arc<Bank>, SocketAddr) {
    let bank = Bank::open();
    let address = Service::Mcp.start(Arc::clone(&bank)).unwrap();
    (bank, address)
}

/// A transfer of 30 cents to bob, by the SDK's client.
fn call(key: &str) -> CallToolRequestParams {
    let arguments = json!({ "to": "bob", "cents": 30 }).as_object().cloned();
    let mut call = CallToolRequestParams::new("transfer").with_arguments(arguments.unwrap());
    let meta = json!({ KEY: key }).as_object().cloned().unwrap();
    call.meta = Some(RequestMetaObject::from(meta));
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_the_sdk_gets_one_receipt_for_each_key() {
    let (bank, address) = start();
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"));
    let transport = StreamableHttpClientTransport::from_config(config.auth_header("ann"));
    let revision = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let client = ().serve_with_lifecycle(transport, revision).await.unwrap();

    let tools = client.list_all_tools().await.unwrap();
    let hints = tools[0].annotations.as_ref().unwrap();
    assert_eq!(
        (&*tools[0].name, hints.idempotent_hint),
        ("transfer", Some(true))
    );

    let mut receipts = Vec::new();
    for key in ["k1", "k1", "k2"] {
        let result = client.call_tool(call(key)).await.unwrap();
        receipts.push(result.into_typed::<Receipt>().unwrap());
    }
    assert_eq!(receipts[0], receipts[1]);
    assert_eq!((receipts[0].number, &*receipts[0].from), (1, "ann"));
    assert_eq!(receipts[2].number, 2);
    assert_eq!(bank.ledger.lock().await.transfers.len(), 2);
    client.cancel().await.unwrap();
}

/// The text of a tool's error; no JSON-RPC error, which a client need not show to the model.
fn refusal(response: &Value) -> &str {
    assert_eq!(response["result"]["isError"], true, "{response}");
    response["result"]["content"][0]["text"].as_str().unwrap()
}

#[track_caller]
fn number(response: &Value) -> u64 {
    assert_eq!(response["result"]["isError"], false, "{response}");
    response["result"]["structuredContent"]["number"]
        .as_u64()
        .unwrap()
}

#[test]
fn the_key_is_a_member_of_meta_or_an_argument() {
    let (bank, address) = start();
    let order = json!({ "to": "bob", "cents": 30 });
    let with_key = json!({ "to": "bob", "cents": 30, "idempotency_key": "k1" });
    // Another id each, one key.
    assert_eq!(
        number(&call_tool(address, 1, "ann", Some("k1"), &order).unwrap()),
        1
    );
    assert_eq!(
        number(&call_tool(address, 2, "ann", None, &with_key).unwrap()),
        1
    );
    // One id, another client or key.
    assert_eq!(
        number(&call_tool(address, 2, "cat", None, &with_key).unwrap()),
        2
    );
    assert_eq!(
        number(&call_tool(address, 2, "ann", Some("k2"), &order).unwrap()),
        3
    );
    assert_eq!(bank.ledger.blocking_lock().transfers.len(), 3);
}

#[test]
fn a_refusal_says_what_to_do() {
    let (bank, address) = start();
    let call = |key, cents| {
        let arguments = json!({ "to": "bob", "cents": cents });
        call_tool(address, 1, "ann", key, &arguments).unwrap()
    };
    let missing = call(None, 30);
    assert!(refusal(&missing).contains("Call again with `idempotency_key`: a new UUID"));
    let empty = call(Some(""), 30);
    assert!(refusal(&empty).contains("Call again with a UUID as `idempotency_key`"));
    let poor = call(Some("k1"), 200_000);
    assert!(refusal(&poor).contains("not enough money"));
    assert_eq!(number(&call(Some("k2"), 30)), 1);
    let reused = call(Some("k2"), 31);
    assert!(refusal(&reused).contains("Use a new `idempotency_key` for another transfer"));

    bank.ledger.blocking_lock().confirms = false;
    let unknown = call(Some("k3"), 30);
    assert!(refusal(&unknown).contains("Do not call again"));
    let unknown = call(Some("k3"), 30);
    let said = refusal(&unknown);
    assert!(
        said.contains("Do not call again: ask a human to look, and name urn:uuid:"),
        "{said}"
    );
    assert_eq!(bank.ledger.blocking_lock().transfers.len(), 2);
}

#[test]
fn a_request_without_a_client_or_from_a_page_is_refused() {
    let (bank, address) = start();
    let header = |name, value: &str| (name, value.to_owned());
    let ann = header("authorization", "Bearer ann");
    let page = header("origin", "https://evil.example");
    for (headers, status) in [(vec![], "401"), (vec![ann, page], "403")] {
        let reply = post(address, "/mcp", &headers, &json!({})).unwrap();
        assert_eq!(reply.status(), status, "{reply:?}");
    }
    assert!(bank.ledger.blocking_lock().transfers.is_empty());
}

/// Of two calls at once, one holds the key. The other is refused while the first runs; also when the client of the first
/// has left.
#[test]
fn a_call_that_is_still_running_is_to_be_called_again() {
    let arguments = &json!({ "to": "bob", "cents": 30 });
    let send = |to, id| call_tool(to, id, "ann", Some("k1"), arguments);
    for leaves in [false, true] {
        let (bank, address) = start();
        let proxy = TcpProxy::start(address);
        thread::scope(|scope| {
            let ledger = bank.ledger.blocking_lock();
            let (replies, reply) = mpsc::channel();
            for (id, replies) in [(1, replies.clone()), (2, replies)] {
                let to = proxy.addr();
                scope.spawn(move || replies.send(send(to, id)).unwrap());
            }
            let running = reply.recv().unwrap().unwrap();
            let said = refusal(&running);
            let advice = " s with the same `idempotency_key` and arguments";
            assert!(said.contains(advice), "{said}");
            assert!(said.contains("Call again in "), "{said}");
            if leaves {
                proxy.cut();
                reply.recv().unwrap().unwrap_err();
                // It still holds the key.
                refusal(&send(address, 3).unwrap());
            }
            assert_eq!(ledger.transfers.len(), 0);
            drop(ledger);
            if !leaves {
                assert_eq!(number(&reply.recv().unwrap().unwrap()), 1);
            }
        });
        let mut again = send(address, 4).unwrap();
        while again["result"]["isError"] == true {
            assert!(refusal(&again).contains("Call again in "), "{again}");
            again = send(address, 5).unwrap();
        }
        assert_eq!(number(&again), 1);
        assert_eq!(bank.ledger.blocking_lock().transfers.len(), 1);
    }
}
