//! The events that bodies and callers recorded. The store has no part in it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idem_runtime::{Error, ErrorKind};

/// More than there are threads, so that they seldom write to the same part.
const PARTS: usize = 64;

/// Only added to, until the load is over.
#[derive(Debug)]
pub(crate) struct Journal {
    began: Instant,
    parts: Vec<Mutex<Part>>,
    /// Refusals of other kinds than `StoreUnavailable`, and how many of each.
    others: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Part {
    runs: Vec<Run>,
    told: Vec<Told>,
}

/// A body ran. No two runs have the same answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) key: u32,
    pub(crate) answer: u32,
}

/// A reply that a caller received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) key: u32,
    pub(crate) word: Word,
    /// When, in microseconds since the load began.
    pub(crate) at: u32,
    /// How long after its call, in microseconds.
    pub(crate) took: u32,
    /// How long after its arrival it called.
    pub(crate) delayed: u32,
}

impl Told {
    pub(crate) fn is_acknowledged(self) -> bool {
        matches!(self.word, Word::Answer(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// `Ok` with this answer: acknowledged.
    Answer(u32),
    /// `StoreUnavailable` with a `retry_after`.
    Shed,
    /// `StoreUnavailable` without one.
    Unavailable,
    Other,
}

impl Journal {
    pub(crate) fn new() -> Self {
        let mut parts = Vec::new();
        parts.resize_with(PARTS, Mutex::default);
        Self {
            began: Instant::now(),
            parts,
            others: Mutex::default(),
        }
    }

    fn part(&self, key: u32) -> MutexGuard<'_, Part> {
        let part = &self.parts[key as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ran(&self, key: u32, answer: u32) {
        self.part(key).runs.push(Run { key, answer });
    }

    /// The caller arrived and called at these moments.
    pub(crate) fn told(
        &self,
        key: u32,
        [arrived, called]: [Instant; 2],
        said: &Result<u32, Error>,
    ) {
        let now = Instant::now();
        let word = match said {
            Ok(answer) => Word::Answer(*answer),
            Err(error) => match (error.kind(), error.retry_after()) {
                (ErrorKind::StoreUnavailable, Some(_)) => Word::Shed,
                (ErrorKind::StoreUnavailable, None) => Word::Unavailable,
                (kind, _) => {
                    self.count_other(kind);
                    Word::Other
                }
            },
        };
        self.part(key).told.push(Told {
            key,
            word,
            at: micros(now - self.began),
            took: micros(now - called),
            delayed: micros(called - arrived),
        });
    }

    fn count_other(&self, kind: &ErrorKind) {
        let name = format!("{kind:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
        *self.others().entry(name).or_default() += 1;
    }

    fn others(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The findings so far.
    pub(crate) fn findings(&self) -> Findings {
        let mut findings = Findings {
            others: self.others().clone(),
            ..Findings::default()
        };
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            findings.read(&part);
        }
        findings.bytes = findings.runs * size_of::<Run>() as u64
            + findings.told.len() as u64 * size_of::<Told>() as u64;
        findings
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// What the journal shows by itself.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) told: Vec<Told>,
    pub(crate) runs: u64,
    /// Runs of keys whose body had run before.
    pub(crate) second_starts: u64,
    /// Calls that were refused because nothing could be claimed, and whose body ran all the same.
    pub(crate) ran_though_refused: u64,
    /// Acknowledged answers that no run of their key gave.
    pub(crate) of_no_run: u64,
    pub(crate) others: BTreeMap<String, u64>,
    /// The part of the process's memory that the journal takes.
    pub(crate) bytes: u64,
}

impl Findings {
    fn read(&mut self, part: &Part) {
        let mut answers: HashMap<u32, Vec<u32>> = HashMap::with_capacity(part.runs.len());
        for run in &part.runs {
            answers.entry(run.key).or_default().push(run.answer);
        }
        self.runs += part.runs.len() as u64;
        self.second_starts += (part.runs.len() - answers.len()) as u64;
        for told in &part.told {
            let answers = answers.get(&told.key);
            match told.word {
                Word::Answer(answer) => {
                    let is_known = answers.is_some_and(|answers| answers.contains(&answer));
                    self.of_no_run += u64::from(!is_known);
                }
                Word::Shed | Word::Unavailable => {
                    self.ran_though_refused += u64::from(answers.is_some());
                }
                Word::Other => {}
            }
        }
        self.told.extend_from_slice(&part.told);
    }

    /// The acknowledged answers, or so many of them, chosen at random.
    pub(crate) fn acknowledged(&self, most: usize) -> Vec<Run> {
        let acknowledged = self.told.iter().filter_map(|told| match told.word {
            Word::Answer(answer) => Some(Run {
                key: told.key,
                answer,
            }),
            _ => None,
        });
        let mut runs: Vec<Run> = acknowledged.collect();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for chosen in 0..most.min(runs.len()) {
            // xorshift64 (Marsaglia, 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let rest = (runs.len() - chosen) as u64;
            runs.swap(chosen, chosen + (state % rest) as usize);
        }
        runs.truncate(most);
        runs
    }
}

/// Writes acknowledged answers for another process.
pub(crate) fn write(path: &Path, runs: &[Run]) {
    let words = runs.iter().flat_map(|run| [run.key, run.answer]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    std::fs::write(path, bytes).unwrap();
}

/// The answers that another process has written.
pub(crate) fn read(path: &Path) -> Vec<Run> {
    let bytes = std::fs::read(path).unwrap();
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    let run = |&[key, answer]: &[u32; 2]| Run { key, answer };
    pairs.iter().map(run).collect()
}
