//! The same operations on every store: replies and records are the same, with recorded attempts and steps.

use std::collections::HashMap;

use bytes::Bytes;
use idem_conformance::Fixture as Place;
use idem_harness::{MariaDbServer, PostgresServer, TestDir};
use idem_runtime::fingerprint::Fingerprint;
use idem_runtime::key::{KeyBuilder, Operation};
use idem_runtime::store::sql::{MySqlStore, PostgresStore, SqliteStore};
use idem_runtime::store::{
    AppendReply, ClaimReply, ClaimRequest, CompleteReply, Header, Journal, OutcomeKind, Owner,
    Record, RecordKey, Remains, ResolveReply, State,
};
use idem_tests::sql::InSql;
use idem_tests::{InMemory, Redis, Shape};

use crate::prelude::*;

const LEASE: Duration = Duration::from_secs(30);
const RETAIN: Duration = Duration::from_hours(1);

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u8) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u8::try_from((self.0 >> 11) % u64::from(n)).unwrap()
    }
}

fn entry(kind: u8, step: u8, label: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let len = 44 + label.len() + body.len();
    out.extend(u32::try_from(len).unwrap().to_be_bytes());
    out.push(kind);
    out.extend([step; 16]);
    out.extend([0; 6]);
    out.extend([0, 0, 0, 3]);
    out.extend([0; 16]);
    out.push(u8::try_from(label.len()).unwrap());
    out.extend(label.as_bytes());
    out.extend(body);
    out
}

/// Without the times and fences of lapsed attempts.
fn plain(journal: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), journal);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if behind.len() < length {
            break;
        }
        let (this, behind) = behind.split_at(length);
        let mut this = this.to_vec();
        if this.first() == Some(&b'l') {
            this[17..23].fill(0);
            this[27..35].fill(0);
        }
        out.extend(this);
        rest = behind;
    }
    out.extend(rest);
    out
}

struct Subject {
    name: &'static str,
    place: Arc<dyn Place>,
    store: Arc<dyn Store>,
    claims: HashMap<u8, (Header, Vec<u8>)>,
}

fn shown(record: &Record) -> String {
    let header = &record.header;
    format!(
        "{:?} {:?} {} {:?} {:?} {:?} {:?} body {:?} journal {:?}",
        header.state,
        header.owner,
        header.attempts,
        header.retain,
        header.fingerprint,
        header.types,
        header.journal,
        record.body(),
        plain(record.journal().as_bytes()),
    )
}

#[derive(Clone, Debug)]
enum Do {
    Claim {
        by: u8,
        print: u8,
        reconciles: bool,
        records: bool,
    },
    Append {
        by: u8,
        kind: u8,
        step: u8,
        whole: bool,
    },
    Release {
        by: u8,
        remains: u8,
    },
    ReleaseWith {
        by: u8,
        remains: u8,
        brings: u8,
    },
    Complete {
        by: u8,
        outcome: u8,
        brings: u8,
        has: bool,
    },
    Renew {
        by: u8,
    },
    Resolve {
        by: u8,
        to: u8,
    },
    Pass {
        secs: u64,
    },
}

fn any(rng: &mut Rng) -> Do {
    let by = 1 + rng.below(3);
    match rng.below(20) {
        0..=5 => Do::Claim {
            by,
            print: rng.below(8).min(2),
            reconciles: rng.below(4) == 0,
            records: rng.below(4) != 0,
        },
        6..=8 => Do::Append {
            by,
            kind: b"BDVak"[usize::from(rng.below(5))],
            step: rng.below(2),
            whole: rng.below(3) == 0,
        },
        9 => Do::Release {
            by,
            remains: rng.below(3),
        },
        10..=12 => Do::ReleaseWith {
            by,
            remains: rng.below(3),
            brings: rng.below(8),
        },
        13..=15 => Do::Complete {
            by,
            outcome: b"UUDET"[usize::from(rng.below(5))],
            brings: rng.below(8),
            has: rng.below(2) == 0,
        },
        16 => Do::Renew { by },
        17 => Do::Resolve {
            by: 8 + rng.below(3),
            to: rng.below(6),
        },
        18 => Do::Pass { secs: 5 },
        _ => Do::Pass { secs: 31 },
    }
}

fn remains(of: u8) -> Remains {
    [Remains::Nothing, Remains::Request, Remains::Attempt][usize::from(of)]
}

/// A journal that an attempt brings which has this one.
fn brought(of: u8, has: &[u8]) -> Vec<u8> {
    let attempt = entry(b'a', 7, "instance", b"");
    let label = entry(b'k', 0, "order …4711", b"");
    match of {
        0 | 1 => [has, &attempt].concat(),
        2 => attempt,
        3 => Vec::new(),
        4 => [has, &entry(b'D', 5, "s", b"1")].concat(),
        5 => [has, &label, &attempt].concat(),
        6 => [&label[..], &attempt].concat(),
        _ => [&attempt[..], b"\0\0\0\x09Z12345678"].concat(),
    }
}

fn answered(mut header: Header, brings: &[u8]) -> Bytes {
    let lower = Journal::new(Bytes::copy_from_slice(brings)).kind();
    if lower == idem_runtime::store::JournalKind::Attempts {
        header.journal = lower;
        let length = u32::try_from(brings.len()).unwrap().to_be_bytes();
        [&header.encode()[..], b"answer", brings, &length]
            .concat()
            .into()
    } else {
        [&header.encode()[..], b"answer"].concat().into()
    }
}

fn open(mut header: Header, brings: &[u8]) -> Bytes {
    header.journal = Journal::new(Bytes::copy_from_slice(brings)).kind();
    [&header.encode()[..], brings].concat().into()
}

fn owner(by: u8) -> Owner {
    Owner::from_bytes([by; 16])
}

impl Subject {
    #[allow(clippy::too_many_lines, reason = "an arm for each operation")]
    async fn run(&mut self, key: &RecordKey, op: &Do) -> String {
        match *op {
            Do::Claim {
                by,
                print,
                reconciles,
                records,
            } => {
                let mut request = ClaimRequest::new(owner(by), LEASE, RETAIN);
                if print > 0 {
                    request.fingerprint = Fingerprint::from_bytes([print; 16]);
                }
                request.reconciles = reconciles;
                request.records_attempts = records;
                let mut claim = |state, fence, attempts, journal: &Journal| {
                    let mut header = Header::new(state, owner(by), fence, RETAIN);
                    header.attempts = attempts;
                    header.fingerprint = request.fingerprint;
                    self.claims
                        .insert(by, (header, journal.as_bytes().to_vec()));
                };
                match self.store.claim(key, &request).await.unwrap() {
                    ClaimReply::Granted {
                        fence,
                        attempt,
                        fresh,
                        journal,
                    } => {
                        claim(State::Pending { lease: LEASE }, fence, attempt, &journal);
                        format!("granted {attempt} {fresh} {:?}", plain(journal.as_bytes()))
                    }
                    ClaimReply::Reconcile {
                        fence,
                        attempts,
                        journal,
                    } => {
                        claim(
                            State::Reconciling { lease: LEASE },
                            fence,
                            attempts,
                            &journal,
                        );
                        format!("reconcile {attempts} {:?}", plain(journal.as_bytes()))
                    }
                    // A store may leave the journal out.
                    ClaimReply::Done { record, .. } => {
                        format!("done {:?} {:?}", record.header.state, record.body())
                    }
                    ClaimReply::Running { lease_left } => {
                        format!("running {}", lease_left.is_zero())
                    }
                    other => format!("{other:?}"),
                }
            }
            Do::Append {
                by,
                kind,
                step,
                whole,
            } => {
                let Some((claim, journal)) = self.claims.get_mut(&by) else {
                    return String::new();
                };
                let known = journal.len();
                let mut new = journal.clone();
                new.extend(entry(kind, step, "s", b"1"));
                // Never attempts alone: those are not appended.
                if Journal::new(new.clone().into()).kind()
                    != idem_runtime::store::JournalKind::Steps
                {
                    return String::new();
                }
                let known = if whole { 0 } else { known };
                let whole = Journal::new(new.clone().into());
                let reply = self.store.append(key, claim, &whole, known);
                let reply = reply.await.unwrap();
                if matches!(reply, AppendReply::Appended | AppendReply::Reasserted) {
                    *journal = new;
                }
                format!("{reply:?}")
            }
            Do::Release { by, remains: of } => {
                format!(
                    "{:?}",
                    self.store
                        .release(key, &owner(by), remains(of))
                        .await
                        .unwrap()
                )
            }
            Do::ReleaseWith {
                by,
                remains: of,
                brings,
            } => {
                let has = self
                    .claims
                    .get(&by)
                    .map(|(_, has)| has.clone())
                    .unwrap_or_default();
                let journal = Journal::new(brought(brings, &has).into());
                let (by, of) = (owner(by), remains(of));
                let reply = self
                    .store
                    .release_with_journal(key, &by, of, &journal, None);
                format!("{:?}", reply.await.unwrap())
            }
            Do::Complete {
                by,
                outcome,
                brings,
                has: known,
            } => {
                let Some((claim, has)) = self.claims.get(&by) else {
                    return String::new();
                };
                let mut claim = *claim;
                let kind = match outcome {
                    b'D' => OutcomeKind::Value,
                    b'E' => OutcomeKind::Error,
                    b'T' => OutcomeKind::Tombstone,
                    _ => OutcomeKind::Unknown,
                };
                let mut header = claim;
                header.state = State::Done {
                    outcome: kind,
                    schema: 1,
                };
                let brings = brought(brings, has);
                let record = if outcome == b'U' {
                    open(header, &brings)
                } else {
                    answered(header, &brings)
                };
                let journal = Journal::new(has.clone().into());
                claim.journal = journal.kind();
                let reply = if known {
                    self.store.complete_claim(key, &claim, &record).await
                } else {
                    self.store.complete(key, &record).await
                };
                match reply.unwrap() {
                    CompleteReply::Adopted { record, .. } => {
                        format!("adopted {:?} {:?}", record.header.state, record.body())
                    }
                    CompleteReply::Superseded { lease_left } => {
                        format!("superseded {}", lease_left.is_zero())
                    }
                    other => format!("{other:?}"),
                }
            }
            Do::Renew { by } => {
                let Some((claim, _)) = self.claims.get(&by) else {
                    return String::new();
                };
                format!("{:?}", self.store.renew(key, claim).await.unwrap())
            }
            Do::Resolve { by, to } => {
                let ReadReply::Found { record, .. } = self.store.read(key).await.unwrap() else {
                    return String::new();
                };
                let mut header = record.header;
                header.owner = owner(by);
                header.journal = idem_runtime::store::JournalKind::None;
                let has = record.journal().as_bytes().to_vec();
                let new = if to < 2 {
                    header.state = State::Done {
                        outcome: OutcomeKind::Value,
                        schema: 1,
                    };
                    answered(header, &entry(b'a', 7, "instance", b""))
                } else {
                    header.state = State::Released;
                    let brings = match to {
                        2 => has,
                        3 => Vec::new(),
                        _ => entry(b'a', 7, "instance", b""),
                    };
                    open(header, &brings)
                };
                match self
                    .store
                    .resolve(key, &record.header, None, &new)
                    .await
                    .unwrap()
                {
                    ResolveReply::Running { lease_left } => {
                        format!("running {}", lease_left.is_zero())
                    }
                    other => format!("{other:?}"),
                }
            }
            Do::Pass { secs } => {
                self.place.advance(Duration::from_secs(secs)).await;
                String::new()
            }
        }
    }

    async fn stands(&self, key: &RecordKey) -> (String, Duration) {
        match self.store.read(key).await.unwrap() {
            ReadReply::Found { record, left } => (shown(&record), left),
            other => (format!("{other:?}"), Duration::ZERO),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_store_decides_alike() {
    let subject = |name, place: Arc<dyn Place>| Subject {
        name,
        store: place.store(),
        place,
        claims: HashMap::new(),
    };
    let dir = TestDir::new("differ").unwrap();
    let url = format!("sqlite:{}", dir.path().join("idem.db").display());
    let redis = Redis::start(Shape::Server).await;
    let mut subjects = vec![
        subject("memory", Arc::new(InMemory::new(1_000_000))),
        subject("redis", Arc::new(redis.fixture("differ"))),
        subject(
            "sqlite",
            Arc::new(InSql::new(SqliteStore::builder(&url), "s", "differ").await),
        ),
    ];
    let postgres = PostgresServer::start();
    let store = PostgresStore::builder(postgres.url());
    subjects.push(subject(
        "postgres",
        Arc::new(InSql::new(store, "p", "differ").await),
    ));
    let mariadb = MariaDbServer::start();
    let store = MySqlStore::builder(mariadb.url());
    subjects.push(subject(
        "mariadb",
        Arc::new(InSql::new(store, "m", "differ").await),
    ));
    let start = std::time::Instant::now();
    let mut sequences = 0;
    let sequences_in_all = if idem_tests::bounds::is_full() {
        2_000
    } else {
        80_u64
    };
    for seed in 1..=sequences_in_all {
        sequences += 1;
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let digest = KeyBuilder::new("pay", 1024).key(&seed).unwrap();
        let mut done = Vec::new();
        for subject in &mut subjects {
            subject.claims.clear();
        }
        for _ in 0..14 {
            let op = any(&mut rng);
            done.push(op.clone());
            let mut first: Option<(String, (String, Duration))> = None;
            for subject in &mut subjects {
                let prefix = subject.place.prefix();
                let key = RecordKey::new(prefix, Operation::new("pay"), digest);
                let said = subject.run(&key, &op).await;
                let stands = subject.stands(&key).await;
                match &first {
                    None => first = Some((said, stands)),
                    Some((expected, (record, left))) => {
                        let name = subject.name;
                        assert_eq!(&said, expected, "{name}: {done:#?}");
                        assert_eq!(&stands.0, record, "{name}: {done:#?}");
                        let apart = stands.1.abs_diff(*left);
                        assert!(
                            apart < Duration::from_secs(8),
                            "{name}: {apart:?} {done:#?}"
                        );
                    }
                }
            }
        }
    }
    eprintln!("{sequences} sequences in {:?}", start.elapsed());
}
