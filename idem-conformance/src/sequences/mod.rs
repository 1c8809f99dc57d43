//! Sequences of operations on a store and on its model.

mod call;
mod drive;
mod history;
mod model;
mod operation;
mod setting;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use self::history::History;
use self::operation::{Operation, Random, THEMES, simpler};
use crate::case::{Case, Tag};
use crate::fixture::{BoxFuture, Fixture};

/// The seeds of each case.
const SEEDS: u64 = 40;

/// The keys of seeds. They are used again after the life of their records: a store may never remove expired ones.
const NUMBERS: u64 = 1_024;

/// Runs a sequence of operations for each seed, on store and model.
///
/// A seed gives the same sequence on every store, on the same keys: claims, completions, releases, renewals, appends
/// and resolutions by several owners, also late and repeated ones; reads, polls, listings, watches and a listener;
/// records that no version can read; and time that moves to the end of a lease or of a life, or just before. Every
/// reply must be the model's, as must the records at the end. [`cases`](crate::cases) run some seeds; this runs as many
/// as you like.
///
/// # Errors
///
/// The shortest history found in which a reply is another one, or the store panics, as code for a test.
///
/// # Cancel safety
///
/// It may be dropped at any time.
pub fn sequences(
    fixture: Arc<dyn Fixture>,
    seeds: Range<u64>,
) -> BoxFuture<'static, Result<(), History>> {
    Box::pin(run(fixture, 0..THEMES.len(), seeds))
}

async fn run(
    fixture: Arc<dyn Fixture>,
    themes: Range<usize>,
    seeds: Range<u64>,
) -> Result<(), History> {
    for seed in seeds.clone() {
        for theme in themes.clone() {
            Search::new(&fixture, theme)
                .seed(seeds.start..seed + 1)
                .await?;
        }
    }
    Ok(())
}

/// Repeats a [`History`], like its code, on a store of any kind.
///
/// `keys` is the number of the keys on which it was found. Another version of this crate may make other calls of the
/// same operations: run [`sequences`] again after an update.
///
/// # Errors
///
/// The calls up to the first reply that is not the model's.
///
/// # Panics
///
/// If there are no sequences of this name.
///
/// # Cancel safety
///
/// It may be dropped at any time.
pub fn replay(
    fixture: Arc<dyn Fixture>,
    theme: &str,
    keys: u64,
    operations: &[[u8; 16]],
) -> BoxFuture<'static, Result<(), History>> {
    let names = THEMES.map(|(name, _)| name);
    let number = names.iter().position(|name| *name == theme);
    let number = number.unwrap_or_else(|| panic!("{theme:?} is none of the sequences {names:?}"));
    let operations = operations.to_vec();
    Box::pin(async move {
        let mut search = Search::new(&fixture, number);
        search.run(Some(keys), &operations).await
    })
}

/// Runs sequences on a store, and finds the shortest that fails.
struct Search<'a> {
    fixture: &'a Arc<dyn Fixture>,
    theme: usize,
    /// The number of the last keys that no seed has used before.
    fresh: u64,
    patience: Duration,
}

impl<'a> Search<'a> {
    fn new(fixture: &'a Arc<dyn Fixture>, theme: usize) -> Self {
        let (fresh, patience) = (NUMBERS, fixture.patience());
        Self {
            fixture,
            theme,
            fresh,
            patience,
        }
    }

    /// Runs a sequence on these keys, or on fresh ones.
    async fn run(&mut self, keys: Option<u64>, operations: &[Operation]) -> Result<(), History> {
        self.fresh += u64::from(keys.is_none());
        let (keys, theme) = (keys.unwrap_or(self.fresh), THEMES[self.theme]);
        drive::run(self.fixture, keys, self.patience, theme, operations).await
    }

    /// Runs the last of these seeds.
    async fn seed(&mut self, seeds: Range<u64>) -> Result<(), History> {
        let seed = seeds.end - 1;
        let keys = (seed % NUMBERS * THEMES.len() as u64 + self.theme as u64) % NUMBERS;
        let Err(found) = self.run(Some(keys), &Random(seed).sequence()).await else {
            return Ok(());
        };
        let mut shortest = self.shortest(found).await;
        shortest.seeds = seeds;
        Err(shortest)
    }

    /// A fault of every key shows on fresh ones. A fault of certain keys shows where it was found.
    async fn shortest(&mut self, found: History) -> History {
        let patience = self.patience;
        for keys in [None, Some(found.keys)] {
            if self.again(keys, &found).await.is_none() {
                continue;
            }
            // On a busy machine a late notification may pass for a missing one: the result is verified.
            for part in [10, 1] {
                self.patience = patience / part;
                let shorter = self.shrink(keys, &found).await;
                self.patience = patience;
                let shorter = shorter.as_ref().unwrap_or(&found);
                if let Some(mut shortest) = self.again(keys, shorter).await {
                    shortest.recurs = true;
                    return shortest;
                }
            }
        }
        found
    }

    /// Whether a sequence fails twice more, and as late: a store that a run has broken fails at an earlier call.
    async fn again(&mut self, keys: Option<u64>, found: &History) -> Option<History> {
        let mut failed = None;
        for _ in 0..2 {
            let again = self.run(keys, &found.operations).await.err()?;
            if again.panic != found.panic || again.calls < found.calls {
                return None;
            }
            failed = Some(again);
        }
        failed
    }

    /// The search goes on at each simpler sequence that also fails.
    async fn shrink(&mut self, keys: Option<u64>, found: &History) -> Option<History> {
        let mut shortest = None;
        'search: loop {
            let now: &History = shortest.as_ref().unwrap_or(found);
            for simpler in simpler(THEMES[self.theme].1, &now.operations) {
                if let Err(shorter) = self.run(keys, &simpler).await
                    && shorter.panic == found.panic
                {
                    shortest = Some(shorter);
                    continue 'search;
                }
            }
            return shortest;
        }
    }
}

async fn case(fixture: Arc<dyn Fixture>, theme: usize) {
    if let Err(history) = run(fixture, theme..theme + 1, 0..SEEDS).await {
        panic!("the store and the model of its records disagree:\n\n{history}");
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let of = |name, run| Case {
        name,
        rule: 0,
        tag: Tag::Transport,
        run,
    };
    vec![
        of("sequences_of_claims", |it| Box::pin(case(it, 0))),
        of("sequences_of_journals", |it| Box::pin(case(it, 1))),
        of("sequences_of_outcomes", |it| Box::pin(case(it, 2))),
        of("sequences_of_notifications", |it| Box::pin(case(it, 3))),
    ]
}
