//! Sequences of operations on a store and on a model of its records.

mod call;
mod drive;
mod history;
mod model;
mod operation;
mod setting;

use std::ops::Range;
use std::sync::Arc;

pub use self::history::History;
use self::operation::{Operation, Random, THEMES, Theme, simpler};
use crate::case::{Case, Tag};
use crate::fixture::{BoxFuture, Fixture};

/// The seeds of each case.
const SEEDS: u64 = 40;

/// Runs a sequence of operations for each seed, on the store and on a model of its records.
///
/// A seed gives the same sequence on every store: claims, completions, releases, renewals, appends and resolutions by
/// several owners, also late and repeated ones; reads, polls, listings, watches and a listener; records that no version
/// can read; and time that moves to the end of a lease or of a life, or just before. Every reply must be the model's, as
/// must the records at the end. [`cases`](crate::cases) run some seeds; this runs as many as you like.
///
/// # Errors
///
/// The shortest history found in which a reply is another one, as code for a test.
///
/// # Cancel safety
///
/// It may be dropped at any time.
pub fn sequences(
    fixture: Arc<dyn Fixture>,
    seeds: Range<u64>,
) -> BoxFuture<'static, Result<(), History>> {
    Box::pin(async move {
        let mut runs = Runs { fixture, number: 0 };
        for seed in seeds {
            for theme in THEMES {
                runs.seed(theme, seed).await?;
            }
        }
        Ok(())
    })
}

/// Repeats a [`History`], as its code does, on a store of any kind.
///
/// Another version of this crate may make other calls of the same operations: run [`sequences`] again after an update.
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
    operations: &[[u8; 16]],
) -> BoxFuture<'static, Result<(), History>> {
    let theme = THEMES.into_iter().find(|(name, _)| *name == theme);
    let theme = theme.expect("a name of sequences");
    let mut operations = operations.to_vec();
    Box::pin(async move {
        let mut runs = Runs { fixture, number: 0 };
        runs.run(theme, &mut operations).await
    })
}

struct Runs {
    fixture: Arc<dyn Fixture>,
    /// Each run has keys of its own.
    number: u64,
}

impl Runs {
    async fn run(
        &mut self,
        theme: (&'static str, Theme),
        sequence: &mut [Operation],
    ) -> Result<(), History> {
        self.number += 1;
        drive::run(&self.fixture, self.number, theme, sequence).await
    }

    async fn seed(&mut self, theme: (&'static str, Theme), seed: u64) -> Result<(), History> {
        let mut shortest = Random(seed).sequence();
        let Err(mut history) = self.run(theme, &mut shortest).await else {
            return Ok(());
        };
        // Each simpler sequence that fails as well is where the search goes on.
        'search: loop {
            for mut simpler in simpler(&shortest) {
                if let Err(shorter) = self.run(theme, &mut simpler).await {
                    (shortest, history) = (simpler, shorter);
                    continue 'search;
                }
            }
            return Err(history);
        }
    }
}

async fn case(fixture: Arc<dyn Fixture>, theme: usize) {
    let mut runs = Runs { fixture, number: 0 };
    for seed in 0..SEEDS {
        if let Err(history) = runs.seed(THEMES[theme], seed).await {
            panic!("the store and the model of its records disagree:\n\n{history}");
        }
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
