//! `idem doctor`: what holds the guarantee on this server, what does not, and what to set.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::{
    Finding, FindingLevel, ListRequest, RecordKey, Store, StoreError, StoreErrorKind,
};
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
    let store = connected.store();
    for warning in store
        .warnings()
        .into_iter()
        .filter(|text| text.contains("without TLS"))
    {
        let finding = Finding::warn("transport", "a connection without TLS to another machine");
        let meaning =
            "on the way, records can be read and answers planted, and the password be read";
        let remedy = warning.rsplit("; ").next().unwrap_or_default().to_owned();
        findings.push((None, finding.means(meaning).remedy(remedy)));
    }
    let has_table = !findings
        .iter()
        .any(|(_, finding)| finding.topic == "table" && finding.level == FindingLevel::Fail);
    if has_table {
        let latency = latency(&store, &connection.prefix, connecting).await;
        findings.push((None, latency));
        findings.push((None, listing(&store, &connection.prefix).await));
    }
    if json {
        output::document(&document(connection, &findings))?;
    } else {
        output::text(|out| report(out, connection, &findings))?;
    }
    let fails = count(&findings, FindingLevel::Fail);
    Ok(ExitCode::from(u8::from(fails > 0)))
}

/// Reads a record that does not exist, again and again.
async fn latency(store: &Arc<dyn Store>, prefix: &str, connecting: Duration) -> Finding {
    const TOPIC: &str = "latency";
    let key = key(prefix);
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

/// Makes one step of a listing, which takes a right of its own.
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

fn key(prefix: &str) -> RecordKey {
    let digest = KeyDigest::from_bytes([0; 32]);
    RecordKey::new(prefix.into(), Operation::new(OPERATION), digest)
}

fn count(findings: &Findings, level: FindingLevel) -> usize {
    let of_level = findings
        .iter()
        .filter(|(_, finding)| finding.level == level);
    of_level.count()
}

fn report(out: &mut dyn Write, connection: &Connection, findings: &Findings) -> io::Result<()> {
    writeln!(
        out,
        "{}, prefix `{}`\n",
        connection.shown(),
        connection.prefix
    )?;
    let mut node = &None;
    for (at, finding) in findings {
        if at != node {
            if let Some(at) = at {
                writeln!(out, "node {at}")?;
            }
            node = at;
        }
        writeln!(
            out,
            "{:<4}  {:<12} {}",
            finding.level, finding.topic, finding.fact
        )?;
        let remedy = match finding.level {
            FindingLevel::Ok => "tip",
            _ => "do",
        };
        for (name, text) in [("means", &finding.meaning), (remedy, &finding.remedy)] {
            if !text.is_empty() {
                wrapped(out, name, text)?;
            }
        }
    }
    let [ok, warn, fail] = [FindingLevel::Ok, FindingLevel::Warn, FindingLevel::Fail]
        .map(|level| count(findings, level));
    let verdict = match (fail, warn) {
        (0, 0) => "the guarantee holds",
        (0, _) => "the guarantee holds but for the warnings",
        _ => "the guarantee does not hold, or calls are refused",
    };
    writeln!(out, "\n{ok} ok, {warn} warn, {fail} fail: {verdict}")
}

/// A consequence or a remedy, in lines of 80 characters.
fn wrapped(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    let mut line = String::new();
    let mut name = format!("{name}:");
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() > 80 {
            writeln!(out, "      {name:<12} {line}")?;
            (line, name) = (String::new(), String::new());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "      {name:<12} {line}")
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
    json!({
        "store": connection.shown(),
        "prefix": connection.prefix,
        "timeout_ms": millis(connection.timeout),
        "findings": listed.collect::<Vec<_>>(),
        "ok": count(findings, FindingLevel::Ok),
        "warn": count(findings, FindingLevel::Warn),
        "fail": count(findings, FindingLevel::Fail),
    })
}
