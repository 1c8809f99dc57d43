//! Location of the records and the books.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::time::Duration;

use idem_runtime::Engine;
use idem_runtime::store::Store as Records;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;

use crate::args::Args;
use crate::counts::Counts;
use crate::ledger::{self, Ledger};
use crate::notes::{Note, Notes};
use idem_examples::kept::{beside_the_program, cannot, sqlite};

/// The longest age of books that a run continues: records live for 24 hours.
const LAPSE: Duration = Duration::from_hours(20);

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
    /// Whether the records are in the database of the books.
    pub(crate) in_tx: bool,
    /// The file of the parties downstream.
    pub(crate) notes: Notes,
    /// Notes of the earlier processes.
    pub(crate) past: Vec<Note>,
}

impl Place {
    /// Records on this engine, and books that end with the process.
    pub(crate) async fn here(engine: Engine) -> Result<Self, String> {
        let pool = ledger::memory().await.map_err(cannot("keep books"))?;
        let ledger = Ledger::open(pool, new_prefix(), false, LAPSE).await;
        Ok(Self {
            engine,
            ledger: ledger.map_err(cannot("open the books"))?,
            in_tx: false,
            notes: Notes::default(),
            past: Vec::new(),
        })
    }

    /// Opens the place of the arguments, and describes it in words.
    pub(crate) async fn open(args: &Args, counts: &Counts) -> Result<(Self, String), String> {
        if args.without {
            let engine = engine(MemoryStore::new(), &new_prefix(), counts)?;
            let place = "records and books end with this process";
            return Ok((Self::here(engine).await?, place.to_owned()));
        }
        if let Some(url) = &args.redis {
            let store = RedisStore::connect(url).await;
            let engine = engine(store.map_err(cannot("use Redis"))?, &new_prefix(), counts)?;
            let place = "records are in Redis, for up to 24 hours; the books end with this process";
            return Ok((Self::here(engine).await?, place.to_owned()));
        }
        let file = args.file.clone();
        let file = file.unwrap_or_else(|| beside_the_program("idem-payments.db"));
        let mut beside = file.clone().into_os_string();
        beside.push(".provider.jsonl");
        let (notes, past) = Notes::open(beside.as_ref())?;
        // A file has one writer at a time anyway.
        let (pool, store) = sqlite(&file, 2).await?;
        let ledger = Ledger::open(pool, new_prefix(), args.fresh, LAPSE).await;
        let ledger = ledger.map_err(cannot("open the books"))?;
        let past = notes.belong_to(&ledger.prefix, ledger.earlier == 0, past)?;
        let engine = engine(store, &ledger.prefix, counts)?;
        let mut words = format!(
            "records and books are in the SQLite file {}",
            file.display()
        );
        if ledger.earlier > 0 {
            let minutes = ledger.age.as_secs() / 60;
            let _ = write!(
                words,
                ",\nwith {} rows of a run that began {minutes} minutes ago. This one continues it; `--fresh` \
                 starts anew",
                ledger.earlier
            );
        }
        let opened = Self {
            engine,
            ledger,
            in_tx: true,
            notes,
            past,
        };
        Ok((opened, words))
    }
}

fn engine(store: impl Records, prefix: &str, counts: &Counts) -> Result<Engine, String> {
    let engine = Engine::builder(store).prefix(prefix);
    let engine = engine.observer(counts.clone()).build();
    engine.map_err(|error| error.to_string())
}

/// A prefix that no other run has.
fn new_prefix() -> String {
    // Different in every process, which suffices here.
    format!("payments-{:08x}", RandomState::new().hash_one(0) >> 32)
}
