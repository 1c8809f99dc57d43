//! Listings return all matching records, and nothing else. A store that cannot list returns an error.

use super::probe::{MS, Probe, RETAIN, header, pending, unknown_outcome};
use idem_runtime::admin::EntryFilter;
use idem_runtime::key::{KeyDigest, Operation};
use idem_runtime::store::author::{ListReply, ListRequest, Listed, State};
use idem_runtime::store::{RecordKey, StoreErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

cases! {
    16 a_listing_gives_every_record_in_however_many_steps: transport,
    16 a_listing_keeps_to_its_prefix: transport,
    16 a_listing_of_an_operation_gives_no_other: transport,
    16 a_listing_goes_on_in_another_client: transport,
    16 a_listing_misses_nothing_while_others_come_and_go: transport,
    16 a_listing_refuses_a_position_that_is_none: transport,
}

/// A store may exceed the limit where its server keeps records together.
const ONE_PLACE: usize = 32;

fn request(p: &Probe) -> ListRequest {
    ListRequest::new(p.fixture.prefix())
}

/// The names of listed records.
fn listed(found: BTreeMap<String, Listed>) -> Vec<String> {
    found.into_keys().collect()
}

/// One step by a client of its own; `None` where the store cannot list.
async fn step(p: &Probe, request: &ListRequest) -> Option<ListReply> {
    match p.fixture.store().list(request).await {
        Ok(reply) => Some(reply),
        Err(error) if error.kind() == StoreErrorKind::Unsupported => None,
        Err(error) => panic!("list failed: {error} ({:?})", error.kind()),
    }
}

/// All steps: the records by name, and the number of unreadable ones. `None` where the store cannot list.
pub(super) async fn list(
    p: &Probe,
    request: &ListRequest,
) -> Option<(BTreeMap<String, Listed>, u64)> {
    let (mut found, mut unreadable) = (BTreeMap::new(), 0);
    let mut request = request.clone();
    for _ in 0..100_000 {
        let reply = step(p, &request).await?;
        assert!(
            reply.found.len() <= request.limit + ONE_PLACE,
            "{} records in a step of {}",
            reply.found.len(),
            request.limit
        );
        unreadable += reply.unreadable;
        let named = reply.found.into_iter();
        found.extend(named.map(|listed| (listed.key.name(), listed)));
        match reply.next {
            Some(next) => request.after = Some(next),
            None => return Some((found, unreadable)),
        }
    }
    panic!("the listing has no end");
}

fn names(probes: &[Probe]) -> Vec<String> {
    let mut names: Vec<_> = probes.iter().map(|p| p.key.name()).collect();
    names.sort();
    names
}

/// The same prefix, with the keys of these numbers under an operation.
fn keys(p: &Probe, operation: &'static str, numbers: std::ops::Range<u64>) -> Vec<Probe> {
    let key = |number: u64| {
        // Spread over the whole range, as the digests of calls are.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let mut digest = [0x2a; 32];
        digest[..8].copy_from_slice(&spread);
        digest[24..].copy_from_slice(&number.to_be_bytes());
        let digest = KeyDigest::from_bytes(digest);
        p.on(RecordKey::new(
            p.fixture.prefix(),
            Operation::new(operation),
            digest,
        ))
    };
    numbers.map(key).collect()
}

async fn planted(p: &Probe, operation: &'static str, numbers: std::ops::Range<u64>) -> Vec<Probe> {
    let probes = keys(p, operation, numbers);
    for p in &probes {
        p.plant(&header(unknown_outcome()), b"", RETAIN).await;
    }
    probes
}

async fn a_listing_gives_every_record_in_however_many_steps(p: Probe) {
    let before = list(&p, &request(&p)).await;
    assert!(before.is_none_or(|(found, _)| found.is_empty()));
    let probes = planted(&p, "pay", 0..70).await;
    for limit in [1, 7, 69, 70, 71, 1_000, usize::MAX / 2] {
        for filter in [EntryFilter::Any, EntryFilter::Unknown] {
            let request = with!(request(&p), filter: filter, limit: limit);
            let Some((found, unreadable)) = list(&p, &request).await else {
                return;
            };
            assert_eq!(listed(found), names(&probes), "in steps of {limit}");
            assert_eq!(unreadable, 0);
        }
    }
}

async fn a_listing_keeps_to_its_prefix(p: Probe) {
    let mine = planted(&p, "pay", 0..5).await;
    let prefix = p.fixture.prefix();
    for more in ["2", "-"] {
        let prefix: Arc<str> = format!("{prefix}{more}").into();
        for other in keys(&p, "pay", 5..9) {
            let digest = *other.key.digest();
            let other = p.on(RecordKey::new(
                Arc::clone(&prefix),
                Operation::new("pay"),
                digest,
            ));
            other.plant(&header(pending()), b"", RETAIN).await;
        }
        let of = |operation| with!(request(&p), operation: operation);
        for operation in [None, Some(Operation::new("pay"))] {
            let Some((found, _)) = list(&p, &of(operation)).await else {
                return;
            };
            assert_eq!(listed(found), names(&mine), "{more}");
        }
        let theirs = ListRequest::new(prefix);
        let (found, _) = list(&p, &theirs).await.expect("this store lists");
        assert_eq!(found.len(), 4);
    }
}

async fn a_listing_of_an_operation_gives_no_other(p: Probe) {
    let operations = ["pay", "pay.refund", "Pay", "pa", "p*", "pay:eu", ""];
    let mut all = Vec::new();
    for (index, operation) in (0_u64..).zip(operations) {
        // Two operations each have the same digests, which a position has to tell apart.
        let first = index / 2 * 10;
        let probes = planted(&p, operation, first..first + 3).await;
        let request = with!(request(&p), operation: Some(Operation::new(operation)), limit: 2);
        let Some((found, _)) = list(&p, &request).await else {
            return;
        };
        assert_eq!(listed(found), names(&probes), "{operation:?}");
        all.extend(probes);
    }
    let request = with!(request(&p), limit: 1);
    let (found, _) = list(&p, &request).await.expect("this store lists");
    assert_eq!(listed(found), names(&all));
}

/// Each step is made twice, by two clients. On a server with other clients the two may differ.
async fn a_listing_goes_on_in_another_client(p: Probe) {
    let probes = planted(&p, "pay", 0..40).await;
    for twin in [0, 1] {
        let mut found = BTreeSet::new();
        let mut request = with!(request(&p), limit: 3);
        loop {
            let Some(first) = step(&p, &request).await else {
                return;
            };
            let second = step(&p, &request).await.expect("this store lists");
            let [taken, _] = if twin == 0 {
                [first, second]
            } else {
                [second, first]
            };
            found.extend(taken.found.into_iter().map(|listed| listed.key.name()));
            match taken.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        assert_eq!(Vec::from_iter(found), names(&probes));
    }
}

/// Each record to be deleted has been listed already. A count-based cursor would therefore miss a remaining one.
async fn a_listing_misses_nothing_while_others_come_and_go(p: Probe) {
    let stay = planted(&p, "pay", 0..40).await;
    let mut go = planted(&p, "pay", 40..80).await;
    let mut come = keys(&p, "pay", 80..180).into_iter();
    let mut found = BTreeSet::new();
    let mut request = with!(request(&p), limit: 5);
    for step_number in 0.. {
        let Some(reply) = step(&p, &request).await else {
            return;
        };
        found.extend(reply.found.into_iter().map(|listed| listed.key.name()));
        let (gone, still) = go
            .into_iter()
            .partition(|probe| found.contains(&probe.key.name()));
        go = still;
        let gone: Vec<Probe> = gone;
        for probe in &gone {
            probe.plant(&header(State::Released), b"", MS).await;
        }
        if !gone.is_empty() {
            p.advance(MS).await;
        }
        if step_number >= 8 {
            for new in come.by_ref().take(9) {
                new.plant(&header(State::Released), b"", RETAIN).await;
            }
        }
        match reply.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    for name in names(&stay) {
        assert!(found.contains(&name), "{name} was there all the time");
    }
}

async fn a_listing_refuses_a_position_that_is_none(p: Probe) {
    for after in ["", "no position", "-1", "\u{1f980}", "9.9.9.9.9"] {
        let request = with!(request(&p), after: Some(after.to_owned()));
        let reply = p.fixture.store().list(&request).await;
        let error = reply.expect_err("no position");
        let kinds = [StoreErrorKind::InvalidCursor, StoreErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{after:?}: {error}");
    }
}
