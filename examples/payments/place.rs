//! Location of the records and the books.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::path::Path;
use std::time::Duration;

use idem_runtime::Engine;
use idem_runtime::store::Store as Records;
use idem_runtime::store::memory::MemoryStore;
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::SqliteStore;

use super::args::{Args, Store};
use super::counts::Counts;
use super::ledger::{self, Ledger};
use super::notes::{Note, Notes};
use crate::kept::{beside_the_program, cannot};

/// Books are continued for less than the 24 hours that their records are kept.
const LAPSE: Duration = Duration::from_hours(20);

/// Deadline of the file: its disk may be slow or shared.
const PATIENCE: Duration = Duration::from_secs(10);

/// Resources of a service.
#[derive(Debug)]
pub struct Place {
    /// The engine on the store of the records.
    pub engine: Engine,
    /// The books.
    pub ledger: Ledger,
    /// Whether the records are in the database of the books.
    pub in_tx: bool,
    /// The file of the parties downstream.
    pub notes: Notes,
    /// Notes of the earlier processes.
    pub past: Vec<Note>,
}

impl Place {
    /// Records on this engine, and books that end with the process.
    ///
    /// # Errors
    ///
    /// A sentence for the person who started this.
    pub async fn here(engine: Engine) -> Result<Self, String> {
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
    ///
    /// # Errors
    ///
    /// A sentence for the person who started this.
    pub async fn open(args: &Args, counts: &Counts) -> Result<(Self, String), String> {
        match args.store() {
            Store::Memory => {
                let engine = engine(MemoryStore::new(), &new_prefix(), counts)?;
                let place = "records and books end with this process".to_owned();
                Ok((Self::here(engine).await?, place))
            }
            Store::Redis(url) => Self::redis(url, counts).await,
            Store::Sqlite(file) => Self::sqlite(args, file, counts).await,
        }
    }

    async fn redis(url: &str, counts: &Counts) -> Result<(Self, String), String> {
        let store = RedisStore::connect(url)
            .await
            .map_err(cannot("use Redis"))?;
        let prefix = new_prefix();
        let place = "records are in Redis, for up to 24 hours; the books end with this process";
        Ok((
            Self::here(engine(store, &prefix, counts)?).await?,
            place.to_owned(),
        ))
    }

    /// Records and books in one file.
    async fn sqlite(
        args: &Args,
        file: Option<&Path>,
        counts: &Counts,
    ) -> Result<(Self, String), String> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => beside_the_program("idem-payments.db"),
        };
        let mut beside = file.clone().into_os_string();
        beside.push(".provider.jsonl");
        let (notes, past) = Notes::open(beside.as_ref())?;
        let pool = ledger::file(&file).await;
        let pool = pool.map_err(cannot(&format!("open {}", file.display())))?;
        let store = SqliteStore::builder(format!("sqlite:{}", file.display()));
        let store = store.response_timeout(PATIENCE).connect().await;
        let store = store.map_err(cannot("use SQLite"))?;
        store.migrate().await.map_err(cannot("use SQLite"))?;
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
