//! Runs the same operations on a store and on the model, and compares the replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idem_runtime::key::{KeyDigest, Operation as Name};
use idem_runtime::store::{OutcomeKind, RecordKey};

use crate::operation::{KEYS, OWNERS, Operation, Seen, body};
use crate::record::{Asked, Entry, Fence, Key, Phase, Reply};
use crate::subject::Subject;
use crate::translation::{append, claim, complete, read, release, renew, resolve};

/// Whether the store's reply is the model's.
fn agrees<S: Subject>(store: &Reply, model: &Reply) -> bool {
    let time = |store: u64, model: u64| store <= model && store + S::SLACK >= model;
    match (store, model) {
        (
            Reply::Granted {
                fence: Fence::Is(fence),
                attempt,
                fresh,
                journal,
            },
            Reply::Granted {
                fence: expected,
                attempt: number,
                fresh: first,
                journal: same,
            },
        ) => expected.fits(*fence) && attempt == number && fresh == first && journal == same,
        (
            Reply::FindOut {
                fence: Fence::Is(fence),
                attempts: attempt,
                journal,
            },
            Reply::FindOut {
                fence: expected,
                attempts: number,
                journal: same,
            },
        ) => expected.fits(*fence) && attempt == number && journal == same,
        (Reply::Running { left }, Reply::Running { left: expected })
        | (Reply::Overtaken { left }, Reply::Overtaken { left: expected }) => {
            time(*left, *expected)
        }
        (
            Reply::Answered { entry, left },
            Reply::Answered {
                entry: same,
                left: expected,
            },
        )
        | (
            Reply::Found { entry, left },
            Reply::Found {
                entry: same,
                left: expected,
            },
        ) => entry == same && time(*left, *expected),
        _ => store == model,
    }
}

/// A running sequence: the model's time and keys, and the claims granted to the owners.
struct Run<'a, S> {
    subject: &'a S,
    names: Vec<RecordKey>,
    keys: [Key; KEYS],
    held: [[Option<Entry>; OWNERS]; KEYS],
    /// The bytes of their journals that the store has confirmed.
    confirmed: [[usize; OWNERS]; KEYS],
    now: u64,
}

/// Runs a sequence. The error names the operation at which store and model differ.
pub(crate) fn run<S: Subject>(subject: &S, sequence: &[Operation]) -> Result<(), String> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let name = |key: usize| {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&run.to_be_bytes());
        digest[31] = u8::try_from(key).expect("few keys");
        let digest = KeyDigest::from_bytes(digest);
        RecordKey::new(Arc::from("idem-tests/model"), Name::new("model"), digest)
    };
    let mut run = Run {
        subject,
        names: (0..KEYS).map(name).collect(),
        keys: Default::default(),
        held: Default::default(),
        confirmed: Default::default(),
        now: 0,
    };
    let reads = (0..KEYS).map(|key| Operation::Read { key });
    for (step, operation) in sequence.iter().cloned().chain(reads).enumerate() {
        let Some((store, model)) = subject.runtime().block_on(run.step(&operation)) else {
            continue;
        };
        if !agrees::<S>(&store, &model) {
            return Err(format!(
                "at step {step}, {operation:?}: the store says {store:?}, the model {model:?}"
            ));
        }
    }
    Ok(())
}

impl<S: Subject> Run<'_, S> {
    fn time(steps: u64) -> u64 {
        steps * S::STEP + S::OFFSET
    }

    fn advance(&mut self, ms: u64) {
        let ms = ms.next_multiple_of(S::STEP);
        self.now += ms;
        self.subject.advance(ms, &self.names);
    }

    /// The claim that the owner was granted last, or that it might think it was.
    fn held(&self, key: usize, owner: usize) -> Entry {
        let made_up = Entry {
            phase: Phase::Claimed {
                lease: Self::time(2),
            },
            owner,
            fence: 1,
            attempts: 1,
            retain: Self::time(10),
            print: Some(1),
            journal: Vec::new(),
        };
        self.held[key][owner].clone().unwrap_or(made_up)
    }

    /// Runs one operation on the store and on the model. `None` for an operation without a reply.
    #[allow(
        clippy::too_many_lines,
        reason = "one arm for each operation; they read best side by side"
    )]
    async fn step(&mut self, operation: &Operation) -> Option<(Reply, Reply)> {
        let (store, now) = (self.subject.store(), self.now);
        Some(match *operation {
            Operation::Claim {
                key,
                owner,
                print,
                lease,
                retain,
                max_attempts,
                reconciles,
                dated,
            } => {
                let asked = Asked {
                    owner,
                    print,
                    lease: Self::time(lease),
                    retain: Self::time(retain),
                    max_attempts,
                    reconciles,
                    dated,
                };
                let model = self.keys[key].claim(&asked, now);
                let mut said = claim(store, &self.names[key], &asked).await;
                if let (Reply::Answered { left, .. }, Reply::Answered { left: known, .. }) =
                    (&mut said, &model)
                    && !dated
                {
                    // A shorter time is as good, and the store's time here is not the time of the model.
                    *left = *known;
                }
                if let (Reply::Granted { fence, .. }, Reply::Granted { .. })
                | (Reply::FindOut { fence, .. }, Reply::FindOut { .. }) = (&said, &model)
                    && let Fence::Is(fence) = fence
                {
                    self.keys[key].learn(*fence);
                    if let Reply::Found { entry, .. } = self.keys[key].read(now) {
                        self.confirmed[key][owner] = entry.journal.len();
                        self.held[key][owner] = Some(entry);
                    }
                }
                (said, model)
            }
            Operation::Complete {
                key,
                owner,
                print,
                ttl,
                outcome,
                schema,
                body: bytes,
            } => {
                let body = match outcome {
                    OutcomeKind::Unknown => &[],
                    _ => body(bytes),
                };
                let phase = Phase::Finished {
                    outcome,
                    schema,
                    body: body.to_vec(),
                };
                let done = Entry {
                    phase,
                    retain: Self::time(ttl),
                    print,
                    ..self.held(key, owner)
                };
                // An answer has no steps, and an unknown outcome nothing else.
                let done = match outcome {
                    OutcomeKind::Unknown => done,
                    _ => done.without_steps(),
                };
                let model = self.keys[key].complete(&done, now);
                let said = complete(store, &self.names[key], &done, body).await;
                (said, model)
            }
            Operation::Release {
                key,
                owner,
                remains,
            } => {
                let model = self.keys[key].release(owner, remains, now);
                let said = release(store, &self.names[key], owner, remains).await;
                (said, model)
            }
            Operation::Renew { key, owner } => {
                let claim = self.held(key, owner).without_steps();
                let model = self.keys[key].renew(&claim, now);
                let said = renew(store, &self.names[key], &claim).await;
                self.held[key][owner].get_or_insert(claim);
                (said, model)
            }
            Operation::Append {
                key,
                owner,
                adds,
                late,
                rest,
            } => {
                let mut claim = self.held(key, owner);
                let before = claim.journal.len();
                let step = u8::try_from(before % 251).expect("less than 251");
                claim.journal.resize(before + adds, step);
                self.held[key][owner] = Some(claim.clone());
                if late {
                    claim.journal.truncate(before.div_ceil(2));
                }
                if claim.journal.is_empty() {
                    // No call sends an empty one.
                    return None;
                }
                let known = self.confirmed[key][owner].min(claim.journal.len());
                let known = if rest { known } else { 0 };
                let model = self.keys[key].append(&claim, now);
                let said = append(store, &self.names[key], &claim, known).await;
                if model != Reply::NotYours {
                    let confirmed = &mut self.confirmed[key][owner];
                    *confirmed = claim.journal.len().max(*confirmed);
                }
                (said, model)
            }
            Operation::Resolve {
                key,
                resolver,
                seen,
                ttl,
                outcome,
                keeps,
                ahead,
                print,
                body: bytes,
            } => {
                let there = match self.keys[key].read(now) {
                    Reply::Found { entry, .. } => entry,
                    _ => self.held(key, 0),
                };
                let body = match outcome {
                    None | Some(OutcomeKind::Unknown) => &[],
                    Some(_) => body(bytes),
                };
                let new = Entry {
                    phase: match outcome {
                        None => Phase::GivenBack,
                        Some(outcome) => Phase::Finished {
                            outcome,
                            schema: 7,
                            body: body.to_vec(),
                        },
                    },
                    owner: resolver,
                    fence: if ahead { there.fence + 5 } else { 0 },
                    attempts: 9,
                    retain: Self::time(ttl),
                    print,
                    journal: match outcome {
                        None if keeps => there.journal.clone(),
                        _ => Vec::new(),
                    },
                };
                let seen = match seen {
                    Seen::There => there,
                    Seen::HeldBy(owner) => self.held(key, owner),
                    Seen::MoreAttempts => Entry {
                        attempts: there.attempts + 1,
                        ..there
                    },
                };
                let model = self.keys[key].resolve(&seen, &new, now);
                let said = resolve(store, &self.names[key], &seen, &new, body).await;
                (said, model)
            }
            Operation::Read { key } => {
                let model = self.keys[key].read(now);
                (read(store, &self.names[key]).await, model)
            }
            Operation::Advance { steps } => {
                self.advance(steps * S::STEP);
                return None;
            }
            Operation::Lapse { key } => {
                self.advance(self.keys[key].lease_left(now)?);
                return None;
            }
            Operation::Expire { key } => {
                self.advance(self.keys[key].life_left(now)?);
                return None;
            }
        })
    }
}
