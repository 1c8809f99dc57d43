//! A history that a store and the model do not agree on, printed as the code of a test.

use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::store::{
    ClaimReply, CompleteReply, Fence, Header, Journal, JournalKind, Owner, ReadReply, Record,
    ResolveReply, State,
};

use super::call::{Call, Reply};
use super::model::{Expected, is_claim};
use super::setting::OWNERS;

/// A call, and the reply that the model expects.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) call: Call,
    pub(super) expected: Expected,
    /// The steps that have begun to watch a key.
    pub(super) watches: Vec<usize>,
}

/// The shortest history found in which a store replies otherwise than the contract says.
///
/// Its [`Display`](fmt::Display) is the code of a function that makes the same calls, with the expected replies. The
/// last step fails on the store in which it was found.
#[derive(Debug)]
pub struct History {
    code: String,
    calls: usize,
}

impl History {
    pub(super) fn new(
        owners: [Owner; OWNERS],
        label: Journal,
        steps: &[Step],
        observed: &str,
    ) -> Self {
        let mut printer = Printer {
            code: String::new(),
            owners,
            fences: Vec::new(),
            journals: vec![(label, "s.label".to_owned())],
        };
        printer
            .print(steps, observed)
            .expect("a string has room for it");
        let (code, calls) = (printer.code, steps.len());
        Self { code, calls }
    }

    /// The number of its calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)
    }
}

impl std::error::Error for History {}

const PREAMBLE: &str = "\
/// The shortest history found by `idem_conformance::sequences`.
#[allow(unused)]
async fn history(fixture: &std::sync::Arc<dyn idem_conformance::Fixture>) {
    use bytes::Bytes;
    use idem_conformance::{Fixture, Plant, Setting};
    use idem_runtime::admin::EntryFilter;
    use idem_runtime::fingerprint::Fingerprint;
    use idem_runtime::store::*;
    use std::num::NonZeroU16;
    use std::time::Duration;

    let s = Setting::new(fixture);
    let ms = Duration::from_millis;
";

struct Printer {
    code: String,
    owners: [Owner; OWNERS],
    fences: Vec<(Fence, String)>,
    journals: Vec<(Journal, String)>,
}

fn ms(duration: Duration) -> String {
    format!("ms({})", duration.as_millis())
}

fn print(fingerprint: Fingerprint) -> String {
    match fingerprint.as_bytes() {
        [0, ..] => "Fingerprint::NONE".to_owned(),
        [n, ..] => format!("Fingerprint::from_bytes([{n}; 16])"),
    }
}

/// Runs of one byte.
fn bytes(mut rest: &[u8]) -> Vec<String> {
    let mut runs = Vec::new();
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|byte| *byte == first).count();
        if run > 8 || run == rest.len() {
            runs.push(format!("&[0x{first:02x}; {run}][..]"));
            rest = &rest[run..];
        } else {
            let end = rest.len().min(run.max(64));
            runs.push(format!("&b\"{}\"[..]", rest[..end].escape_ascii()));
            rest = &rest[end..];
        }
    }
    runs
}

impl Printer {
    fn print(&mut self, steps: &[Step], observed: &str) -> fmt::Result {
        self.code.push_str(PREAMBLE);
        for (n, step) in steps.iter().enumerate() {
            let is_last = n + 1 == steps.len();
            writeln!(self.code, "\n    // Step {}.", n + 1)?;
            self.call(n, &step.call)?;
            if is_last {
                for line in observed.lines() {
                    writeln!(self.code, "    // Observed: {line}")?;
                }
            }
            self.reply(n, &step.expected)?;
            self.notifications(steps, step)?;
        }
        self.code.push_str("}\n");
        Ok(())
    }

    fn owner(&self, owner: Owner) -> String {
        let known = self.owners.iter().position(|known| *known == owner);
        known.map_or_else(
            || format!("Owner::from_bytes({:?})", owner.as_bytes()),
            |n| format!("s.owners[{n}]"),
        )
    }

    fn fence(&self, fence: Fence) -> String {
        let known = |of: Fence| self.fences.iter().rev().find(|(known, _)| *known == of);
        if let Some((_, name)) = known(fence) {
            return name.clone();
        }
        let ahead = fence.get().checked_sub(5).map(Fence::new);
        match ahead.and_then(known) {
            Some((_, name)) => format!("Fence::new({name}.get() + 5)"),
            None => format!("Fence::new({})", fence.get()),
        }
    }

    fn journal(&self, journal: &Journal) -> String {
        if journal.is_empty() {
            return "Journal::default()".to_owned();
        }
        let exact = self
            .journals
            .iter()
            .rev()
            .find(|(known, _)| known == journal);
        if let Some((_, name)) = exact {
            return format!("{name}.clone()");
        }
        let (mut rest, mut parts) = (&journal.as_bytes()[..], Vec::new());
        loop {
            let known = self.journals.iter().filter_map(|(known, name)| {
                let bytes = known.as_bytes();
                (!bytes.is_empty() && rest.starts_with(bytes)).then_some((bytes.len(), name))
            });
            let Some((length, name)) = known.max_by_key(|(length, _)| *length) else {
                break;
            };
            parts.push(format!("&{name}.as_bytes()[..]"));
            rest = &rest[length..];
        }
        let label = self.journals[0].0.as_bytes();
        let tail = rest.strip_suffix(&label[..]);
        parts.extend(bytes(tail.unwrap_or(rest)));
        if tail.is_some() {
            parts.push("&s.label.as_bytes()[..]".to_owned());
        }
        format!("Journal::new([{}].concat().into())", parts.join(", "))
    }

    fn header(&mut self, name: &str, header: &Header) -> fmt::Result {
        let state = match header.state {
            State::Pending { lease } => format!("State::Pending {{ lease: {} }}", ms(lease)),
            State::Reconciling { lease } => {
                format!("State::Reconciling {{ lease: {} }}", ms(lease))
            }
            other => format!("State::{other:?}").replace("outcome: ", "outcome: OutcomeKind::"),
        };
        let (owner, fence) = (self.owner(header.owner), self.fence(header.fence));
        let retain = ms(header.retain);
        let code = &mut self.code;
        writeln!(
            code,
            "    let mut {name} = Header::new({state}, {owner}, {fence}, {retain});"
        )?;
        writeln!(code, "    {name}.attempts = {};", header.attempts)?;
        writeln!(
            code,
            "    {name}.fingerprint = {};",
            print(header.fingerprint)
        )?;
        let types = header.types.to_bytes();
        writeln!(
            code,
            "    {name}.types = AnswerTypes::from_bytes({types:?});"
        )?;
        if header.journal != JournalKind::None {
            writeln!(
                code,
                "    {name}.journal = JournalKind::{:?};",
                header.journal
            )?;
        }
        Ok(())
    }

    /// The variable `record`.
    fn record(&mut self, encoded: &Bytes) -> fmt::Result {
        let record = Record::decode(encoded.clone()).expect("it was encoded here");
        self.header("header", &record.header)?;
        let (body, journal) = self.parts(&record);
        writeln!(
            self.code,
            "    let record = Setting::record(&header, {body}, &{journal});"
        )
    }

    fn parts(&self, record: &Record) -> (String, String) {
        let body = match record.header.state {
            State::Done { .. } => record.body(),
            _ => &[],
        };
        let body = bytes(body).pop().unwrap_or_else(|| "&[]".to_owned());
        (body, self.journal(&record.journal()))
    }

    fn call(&mut self, n: usize, call: &Call) -> fmt::Result {
        let reply = |operation: &str, key: &usize, rest: &str| {
            format!("    let reply = s.store.{operation}(&s.keys[{key}]{rest}).await.unwrap();\n")
        };
        let optional = |journal: Option<String>| {
            journal.map_or("None".to_owned(), |journal| format!("Some(&{journal})"))
        };
        let sent = match call {
            Call::Claim {
                key,
                request,
                admits,
            } => {
                self.request(request)?;
                if *admits {
                    let admission = ", &request, &Admission::new(fixture.patience())";
                    reply("admit", key, admission)
                } else {
                    reply("claim", key, ", &request")
                }
            }
            Call::Complete { key, claim, record } => {
                self.record(record)?;
                if let Some(claim) = claim {
                    self.header("claim", claim)?;
                    reply("complete_claim", key, ", &claim, &record")
                } else {
                    reply("complete", key, ", &record")
                }
            }
            Call::Release {
                key,
                owner,
                remains,
                journal,
                seen,
            } => {
                let rest = format!(", &{}, Remains::{remains:?}", self.owner(*owner));
                if let Some(journal) = journal {
                    let journal = self.journal(journal);
                    let seen = optional(seen.as_ref().map(|seen| self.journal(seen)));
                    reply(
                        "release_with_journal",
                        key,
                        &format!("{rest}, &{journal}, {seen}"),
                    )
                } else {
                    reply("release", key, &rest)
                }
            }
            Call::Renew { key, claim } => {
                self.header("claim", claim)?;
                reply("renew", key, ", &claim")
            }
            Call::Append {
                key,
                claim,
                journal,
                known,
            } => {
                self.header("claim", claim)?;
                let journal = self.journal(journal);
                reply("append", key, &format!(", &claim, &{journal}, {known}"))
            }
            Call::Resolve {
                key,
                seen,
                journal,
                record,
            } => {
                self.record(record)?;
                self.header("seen", seen)?;
                let journal = optional(journal.as_ref().map(|journal| self.journal(journal)));
                reply("resolve", key, &format!(", &seen, {journal}, &record"))
            }
            Call::Read { key } => reply("read", key, ""),
            Call::Poll { key } => reply("poll", key, ""),
            Call::AtHand { key, print: of } => {
                let of = print(*of);
                format!("    let reply = s.store.at_hand(&s.keys[{key}], {of});\n")
            }
            Call::List(listing) => format!(
                "    let reply = s.listed(EntryFilter::{:?}, {}, {}).await;\n",
                listing.filter, listing.min_attempts, listing.limit
            ),
            Call::Watch { key } => {
                format!(
                    "    let mut watch{} = s.store.watch(&s.keys[{key}]).await.unwrap();\n",
                    n + 1
                )
            }
            Call::Listen => "    s.listen().await;\n".to_owned(),
            Call::Plant {
                key,
                bytes: of,
                life,
            } => self.plant(*key, of, *life)?,
            Call::Advance { by } => format!("    fixture.advance({}).await;\n", ms(*by)),
        };
        self.code.push_str(&sent);
        Ok(())
    }

    fn plant(&mut self, key: usize, of: &Bytes, life: Duration) -> Result<String, fmt::Error> {
        if Record::decode(of.clone()).is_ok() {
            self.record(of)?;
        } else {
            let parts = bytes(of).join(", ");
            writeln!(
                self.code,
                "    let record: Vec<u8> = [b\"\" as &[u8], {parts}].concat();"
            )?;
        }
        let life = ms(life);
        let plant = format!("Plant::Bytes {{ bytes: record.to_vec(), life: {life} }}");
        Ok(format!(
            "    fixture.plant(&s.keys[{key}], {plant}).await;\n"
        ))
    }

    fn request(&mut self, request: &idem_runtime::store::ClaimRequest) -> fmt::Result {
        let owner = self.owner(request.owner);
        let (lease, retain) = (ms(request.lease), ms(request.retain));
        let code = &mut self.code;
        writeln!(
            code,
            "    let mut request = ClaimRequest::new({owner}, {lease}, {retain});"
        )?;
        writeln!(
            code,
            "    request.fingerprint = {};",
            print(request.fingerprint)
        )?;
        let types = request.types.to_bytes();
        writeln!(
            code,
            "    request.types = AnswerTypes::from_bytes({types:?});"
        )?;
        if let Some(most) = request.max_attempts {
            writeln!(code, "    request.max_attempts = NonZeroU16::new({most});")?;
        }
        for (name, value, default) in [
            ("any_type", request.any_type, false),
            ("reconciles", request.reconciles, false),
            ("dated", request.dated, true),
            ("records_attempts", request.records_attempts, false),
        ] {
            if value != default {
                writeln!(code, "    request.{name} = {value};")?;
            }
        }
        let needs = format!("{:?}", request.needs);
        if needs != "Nothing" {
            writeln!(code, "    request.needs = Needs::{needs};")?;
        }
        Ok(())
    }

    /// Binds the fields of a reply, or panics.
    fn bind(&mut self, pattern: &str) -> fmt::Result {
        writeln!(
            self.code,
            "    let {pattern} = reply else {{ panic!(\"{{reply:?}}\") }};"
        )
    }

    fn left(&mut self, name: &str, left: Duration, at_most: Option<Duration>) -> fmt::Result {
        let (check, left) = match at_most {
            None => ("is_left", left),
            Some(most) => ("is_at_most", most),
        };
        let left = left.as_millis();
        writeln!(
            self.code,
            "    assert!(s.{check}({name}, {left}), \"{{{name}:?}}\");"
        )
    }

    fn found(&mut self, record: &Record, check: &str) -> fmt::Result {
        self.header("expected", &record.header)?;
        let (body, journal) = self.parts(record);
        writeln!(
            self.code,
            "    assert!(Setting::{check}(&record, &expected, {body}, &{journal}), \"{{record:?}}\");"
        )
    }

    fn reply(&mut self, n: usize, expected: &Expected) -> fmt::Result {
        let equals = |reply: &str| format!("    assert_eq!(reply, {reply});\n");
        let line = match &expected.reply {
            Reply::Claim(ClaimReply::Running { lease_left }) => {
                self.bind("ClaimReply::Running { lease_left }")?;
                return self.left("lease_left", *lease_left, None);
            }
            Reply::Complete(CompleteReply::Superseded { lease_left }) => {
                self.bind("CompleteReply::Superseded { lease_left }")?;
                return self.left("lease_left", *lease_left, None);
            }
            Reply::Resolve(ResolveReply::Running { lease_left }) => {
                self.bind("ResolveReply::Running { lease_left }")?;
                return self.left("lease_left", *lease_left, None);
            }
            Reply::Claim(ClaimReply::Done { record, left }) => {
                self.bind("ClaimReply::Done { record, left }")?;
                self.left("left", *left, expected.at_most)?;
                return self.found(record, "is_answer");
            }
            Reply::Complete(CompleteReply::Adopted { record, left }) => {
                self.bind("CompleteReply::Adopted { record, left }")?;
                self.left("left", *left, None)?;
                return self.found(record, "is_answer");
            }
            Reply::Read(ReadReply::Found { record, left }) => {
                self.bind("ReadReply::Found { record, left }")?;
                self.left("left", *left, expected.at_most)?;
                return self.found(record, "is_record");
            }
            Reply::Poll(ReadReply::Found { record, .. }) if is_claim(&record.header) => {
                self.bind("ReadReply::Found { record, .. }")?;
                return self.found(record, "is_polled");
            }
            Reply::Poll(ReadReply::Found { record, left }) => {
                self.bind("ReadReply::Found { record, left }")?;
                self.left("left", *left, expected.at_most)?;
                return self.found(record, "is_answer");
            }
            Reply::AtHand(Some((record, left))) => {
                writeln!(self.code, "    if let Some((record, left)) = reply {{")?;
                self.left("left", *left, None)?;
                self.found(record, "is_record")?;
                "    }\n".to_owned()
            }
            Reply::Claim(ClaimReply::Granted { .. } | ClaimReply::Reconcile { .. }) => {
                return self.granted(n + 1, expected);
            }
            Reply::Claim(reply) => equals(&format!("ClaimReply::{reply:?}")),
            Reply::Complete(reply) => equals(&format!("CompleteReply::{reply:?}")),
            Reply::Release(reply) => equals(&format!("ReleaseReply::{reply:?}")),
            Reply::Renew(reply) => equals(&format!("RenewReply::{reply:?}")),
            Reply::Append(reply) => equals(&format!("AppendReply::{reply:?}")),
            Reply::Resolve(reply) => equals(&format!("ResolveReply::{reply:?}")),
            Reply::Read(reply) | Reply::Poll(reply) => equals(&format!("ReadReply::{reply:?}")),
            Reply::AtHand(None) => equals("None"),
            Reply::Listed((found, unreadable)) => {
                let keys: Vec<_> = found.keys().collect();
                writeln!(self.code, "    if let Some((found, unreadable)) = reply {{")?;
                writeln!(self.code, "    assert_eq!(unreadable, {unreadable});")?;
                writeln!(
                    self.code,
                    "    assert!(found.keys().eq(&{keys:?}), \"{{found:?}}\");"
                )?;
                for (key, (header, left)) in found {
                    self.header("expected", header)?;
                    writeln!(self.code, "    let (header, left) = found[&{key}];")?;
                    writeln!(self.code, "    assert_eq!(header, expected);")?;
                    self.left("left", *left, None)?;
                }
                "    }\n".to_owned()
            }
            _ => String::new(),
        };
        // An unreadable value is printed without its type.
        let line = line.replace("Unreadable(", "Unreadable(Unreadable::");
        self.code.push_str(&line);
        Ok(())
    }

    fn granted(&mut self, n: usize, expected: &Expected) -> fmt::Result {
        let (fence, journal) = match &expected.reply {
            Reply::Claim(ClaimReply::Granted {
                fence,
                attempt,
                fresh,
                journal,
            }) => {
                self.bind(&format!(
                    "ClaimReply::Granted {{ fence: fence{n}, attempt: {attempt}, fresh: {fresh}, journal: journal{n} }}"
                ))?;
                (*fence, journal)
            }
            Reply::Claim(ClaimReply::Reconcile {
                fence,
                attempts,
                journal,
            }) => {
                self.bind(&format!(
                    "ClaimReply::Reconcile {{ fence: fence{n}, attempts: {attempts}, journal: journal{n} }}"
                ))?;
                (*fence, journal)
            }
            _ => return Ok(()),
        };
        let last = self.fence(expected.last_fence);
        let operator = if expected.new_fence { ">" } else { "==" };
        writeln!(self.code, "    assert!(fence{n} {operator} {last});")?;
        if let Some(lapsed) = &expected.lapsed {
            let (owner, fence) = (self.owner(lapsed.owner), self.fence(lapsed.fence));
            let number = lapsed.attempts;
            writeln!(
                self.code,
                "    assert_eq!(journal{n}.recorded_attempts().last().map(|it| (it.owner, it.fence, it.number)), Some(({owner}, {fence}, {number})));"
            )?;
        } else {
            let expected = self.journal(journal);
            writeln!(self.code, "    assert_eq!(journal{n}, {expected});")?;
        }
        self.fences.push((fence, format!("fence{n}")));
        self.journals.push((journal.clone(), format!("journal{n}")));
        Ok(())
    }

    fn notifications(&mut self, steps: &[Step], step: &Step) -> fmt::Result {
        let key = step.call.key();
        if step.expected.notifies {
            for watch in &step.watches {
                if steps[*watch].call.key() == key {
                    let n = watch + 1;
                    writeln!(
                        self.code,
                        "    if let Some(watch) = &mut watch{n} {{ assert!(s.is_notified(watch).await); }}"
                    )?;
                }
            }
        }
        let listens = steps.iter().any(|step| matches!(step.call, Call::Listen));
        if let (true, Some(key)) = (step.expected.resolves && listens, key) {
            writeln!(self.code, "    assert!(s.is_told({key}).await);")?;
        }
        Ok(())
    }
}
