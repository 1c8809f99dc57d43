//! `idem doctor`: what holds the guarantee on this server, what does not, and what to set.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::ListRequest;
use idem_runtime::store::{Finding, FindingLevel, RecordKey, Store, StoreError, StoreErrorKind};
use serde_json::{Value, json};

use crate::arguments::Connection;
use crate::connect::{Connected, Findings};
use crate::failure::Failure;
use crate::output;
use crate::text::millis;

/// Reads that measure the latency.
const READS: usize = 50;
/// An operation that no application has.
const OPERATION: &str = "idem: the doctor";

pub(crate) async fn run(connection: &Connection, json: bool) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let connected = Connected::connect(connection).await?;
    let connecting = began.elapsed();
    let mut findings = connected.durable.findings().await?;
    let (store, prefix) = (connected.store, &connection.prefix);
    for warning in store.warnings() {
        if warning.contains("without TLS") {
            let finding = Finding::warn("transport", "a connection without TLS to another machine");
            let finding = finding.means(
                "on the way, records can be read and answers planted, and the password be read",
            );
            let remedy = warning.rsplit("; ").next().unwrap_or_default();
            findings.push((None, finding.remedy(remedy.to_owned())));
        }
    }
    let lacks_table = |(_, finding): &(_, Finding)| {
        finding.topic == "table" && finding.level == FindingLevel::Fail
    };
    if !findings.iter().any(lacks_table) {
        findings.push((None, latency(&store, prefix, connecting).await));
        findings.push((None, listing(&store, prefix).await));
    }
    let document = document(connection, &findings);
    if json {
        output::document(&document)?;
    } else {
        output::text(|out| report(out, &document, &findings))?;
    }
    Ok(ExitCode::from(u8::from(document["fail"] != 0)))
}

/// Reads a record that does not exist, again and again.
async fn latency(store: &Arc<dyn Store>, prefix: &str, connecting: Duration) -> Finding {
    const TOPIC: &str = "latency";
    let digest = KeyDigest::from_bytes([0; 32]);
    let key = RecordKey::new(prefix.into(), Operation::new(OPERATION), digest);
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let began = Instant::now();
        if let Err(error) = store.read(&key).await {
            return unreadable(TOPIC, &error);
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, slowest) = (times[READS / 2], times[READS - 1]);
    let fact = format!(
        "median {}, slowest of {READS} {}, connecting took {}",
        micros(median),
        micros(slowest),
        micros(connecting)
    );
    if slowest < Duration::from_millis(100) {
        return Finding::ok(TOPIC, fact).means(
            "of a read from this machine; a first call takes two round trips, a replay one",
        );
    }
    Finding::warn(TOPIC, fact)
        .means("a claim is refused after `claim_deadline` (2 s), and a renewal that is late loses the lease")
        .remedy("look at the network, at the load of the server, and at its slow log")
}

fn micros(duration: Duration) -> String {
    let micros = duration.as_micros();
    format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10)
}

/// Makes one step of a listing, which needs its own right.
async fn listing(store: &Arc<dyn Store>, prefix: &str) -> Finding {
    const TOPIC: &str = "listing";
    let mut request = ListRequest::new(prefix.into());
    request.operation = Some(Operation::new(OPERATION));
    match store.list(&request).await {
        Ok(_) => Finding::ok(TOPIC, "records can be listed"),
        Err(error) if error.kind() == StoreErrorKind::Refused => {
            Finding::warn(TOPIC, "refused: a right is missing")
                .means("calls are not affected; `idem ls`, `stats` and `purge` are refused")
                .remedy("grant `+scan` to the operator's user")
        }
        Err(error) => unreadable(TOPIC, &error),
    }
}

fn unreadable(topic: &'static str, error: &StoreError) -> Finding {
    Finding::fail(topic, error.to_string()).means("calls are refused")
}

fn report(out: &mut dyn Write, document: &Value, findings: &Findings) -> io::Result<()> {
    let text = |name| document[name].as_str().unwrap_or_default();
    writeln!(out, "{}, prefix `{}`\n", text("store"), text("prefix"))?;
    let mut node = &None;
    for (at, finding) in findings {
        if at != node {
            if let Some(at) = at {
                writeln!(out, "node {at}")?;
            }
            node = at;
        }
        let Finding { level, topic, .. } = finding;
        writeln!(out, "{level:<4}  {topic:<12} {}", finding.fact)?;
        let remedy = match level {
            FindingLevel::Ok => "tip:",
            _ => "do:",
        };
        for (name, text) in [("means:", &finding.meaning), (remedy, &finding.remedy)] {
            if !text.is_empty() {
                writeln!(out, "      {name:<12} {text}")?;
            }
        }
    }
    let count = |level| document[level].as_u64().unwrap_or_default();
    let [ok, warn, fail] = ["ok", "warn", "fail"].map(count);
    let verdict = match (fail, warn) {
        (0, 0) => "the guarantee holds",
        (0, _) => "the guarantee holds but for the warnings",
        _ => "the guarantee does not hold, or calls are refused",
    };
    writeln!(out, "\n{ok} ok, {warn} warn, {fail} fail: {verdict}")
}

fn document(connection: &Connection, findings: &Findings) -> Value {
    let listed = findings.iter().map(|(node, finding)| {
        json!({
            "node": node,
            "level": finding.level.to_string(),
            "topic": finding.topic,
            "fact": finding.fact,
            "meaning": finding.meaning,
            "remedy": finding.remedy,
        })
    });
    let levels = findings.iter().map(|(_, finding)| finding.level);
    let count = |level| levels.clone().filter(|it| *it == level).count();
    json!({
        "store": connection.shown(),
        "prefix": connection.prefix,
        "timeout_ms": millis(connection.timeout),
        "ok": count(FindingLevel::Ok),
        "warn": count(FindingLevel::Warn),
        "fail": count(FindingLevel::Fail),
        "findings": listed.collect::<Vec<_>>(),
    })
}
