//! The example `observability`: its exporter has every metric that its dashboard shows.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use idem_harness::Worker;
use serde_json::Value;

const DASHBOARD: &str = include_str!("../observability/dashboard.json");

/// The exporter's metrics after the load, and the example's printed traces.
fn exported() -> String {
    let example = Worker::program(support::built("observability"));
    let example = example.args(["--port", "0", "--rounds", "40", "--trace", "off"]);
    let mut example = example.spawn();
    let first = example.line();
    let address = first.strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    assert!(example.line().starts_with("the load is done"));
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    reply
}

/// Every query of the dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(query)) = fields.get("expr") {
                found.push(query.clone());
            }
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The metrics that a query names.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("idem_"))
}

#[test]
fn the_exporter_has_every_metric_of_the_dashboard() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let shown: BTreeSet<_> = found.iter().flat_map(|query| names(query)).collect();
    assert!(shown.len() >= 14, "{shown:?}");
    let exported = exported();
    let samples: BTreeSet<_> = exported
        .lines()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for name in &shown {
        assert!(samples.contains(name), "{name} is not in\n{exported}");
    }
    // Of each outcome that the load is made for.
    for outcome in [
        r#"operation="payments.pay",outcome="executed",result="value""#,
        r#"operation="payments.pay",outcome="executed",result="unknown""#,
        r#"operation="payments.pay",outcome="replayed",result="value""#,
        r#"operation="payments.pay",outcome="refused",result="mismatch""#,
        r#"operation="codes.send",outcome="refused",result="duplicate""#,
    ] {
        assert!(
            exported.contains(outcome),
            "{outcome} is not in\n{exported}"
        );
    }
}
