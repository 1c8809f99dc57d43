//! The bodies: five steps one after the other, 28 at once, and a step that writes a row.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use idem_runtime::{Classify, Error, Reconciled, Step, step, step_in_tx};
use idem_tests::lines::say;
use idem_tests::orders::database::{Database, InPostgres, InSqlite};
use idem_tests::seeded::Seeded;
use serde::{Deserialize, Serialize};
use sqlx::{Pool, Postgres, Sqlite};

use crate::call::{Call, kind};
use crate::ledger::Ledger;

/// The number of parallel steps: few enough that `join_all` polls them all whenever one is woken.
const MANY: usize = 28;

/// Why a body or a step has no value.
#[derive(Classify, Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Failure {
    /// A result like a value: it is recorded.
    #[class(business)]
    SoldOut(u64),
    #[class(system)]
    Ledger,
    #[class(system)]
    Database,
    #[class(delegate)]
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Ledger
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        eprintln!("a row: {error}");
        Self::Database
    }
}

/// The table of the rows, and the pool of its database.
#[derive(Debug)]
pub(crate) enum Bookings {
    Sqlite(String, Pool<Sqlite>),
    Postgres(String, Pool<Postgres>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Five,
    /// `once`: some of the steps run at most once.
    Many {
        once: bool,
    },
    /// A step in a transaction, between two others.
    Book,
}

/// The treatment of a step that was interrupted.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Plain,
    Once,
    Asked,
}

/// The common part of a call's steps.
struct Steps<'a> {
    call: &'a Call,
    ledger: &'a Ledger,
}

impl Body {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "five" => Self::Five,
            "many" => Self::Many { once: false },
            "many-once" => Self::Many { once: true },
            "book" => Self::Book,
            other => panic!("no body: {other}"),
        }
    }

    /// Returns the name of the process, and the value of each step.
    pub(crate) async fn run(
        self,
        call: &Call,
        ledger: &Ledger,
        bookings: Option<&Bookings>,
        seeded: Seeded,
    ) -> Result<String, Failure> {
        let steps = Steps { call, ledger };
        let process = ledger.process;
        call.pass("start").await;
        let results = match self {
            Self::Five => steps.five().await,
            Self::Many { once } => steps.many(once, seeded).await,
            Self::Book => steps.book(bookings.expect("the store is a database")).await,
        };
        let mut answer = format!("p{process}");
        for (step, value) in results {
            write!(answer, ",{step}={}", value?).expect("a string takes anything");
        }
        Ok(answer)
    }
}

type Results = Vec<(String, Result<u64, Failure>)>;

impl Steps<'_> {
    /// After a refusal the body goes on: no later step may start.
    async fn five(&self) -> Results {
        let mut results = Results::new();
        for (name, manner) in [
            ("charge", Manner::Plain),
            ("mail", Manner::Once),
            ("label", Manner::Asked),
            ("stock", Manner::Plain),
            ("ship", Manner::Plain),
        ] {
            self.call.runs(name, false);
            let result = self.step(name, name, manner).await;
            if result.is_ok() {
                self.call.pass(&format!("{name}/recorded")).await;
            }
            results.push((name.to_owned(), result));
        }
        results
    }

    async fn book(&self, bookings: &Bookings) -> Results {
        let mut results = Results::new();
        for name in ["charge", "book", "ship"] {
            let result = match (name, bookings) {
                ("book", Bookings::Sqlite(table, pool)) => self.row::<InSqlite>(table, pool).await,
                ("book", Bookings::Postgres(table, pool)) => {
                    self.row::<InPostgres>(table, pool).await
                }
                _ => self.step(name, "book", Manner::Plain).await,
            };
            results.push((name.to_owned(), result));
        }
        results
    }

    /// A step with a row, which is the number of its process.
    async fn row<D: Database>(&self, table: &str, pool: &Pool<D::Driver>) -> Result<u64, Failure> {
        let (key, process) = (&*self.call.key, self.ledger.process);
        self.call.pass("book/before").await;
        let mut tx = pool.begin().await?;
        self.call.pass("book/opened").await;
        let mut ran = false;
        let part = async |conn: &mut D::Connection, _: Step| {
            ran = true;
            self.call.pass("book/part").await;
            let insert = format!("INSERT INTO {table} (number, process) VALUES ({key}, {process})");
            D::change(conn, insert).await?;
            self.call.pass("book/effect").await;
            Ok::<u64, Failure>(process as u64)
        };
        let result = step_in_tx("book", &mut *tx, part).await;
        if result.is_ok() {
            self.call.pass("book/written").await;
            tx.commit().await?;
        }
        said(key, "book", ran, &result);
        if result.is_ok() {
            self.call.pass("book/recorded").await;
        }
        result
    }

    async fn many(&self, once: bool, mut seeded: Seeded) -> Results {
        let polled_together = seeded.percent(50);
        let all: Vec<_> = (0..MANY)
            .map(|number| {
                let manner = match number % 4 {
                    0 | 1 => Manner::Plain,
                    2 if once => Manner::Once,
                    _ => Manner::Asked,
                };
                let pauses = [(); 2].map(|()| Duration::from_millis(seeded.below(12)));
                self.one(number, manner, pauses)
            })
            .collect();
        let mut results: Vec<_> = if polled_together {
            join_all(all).await
        } else {
            let all: FuturesUnordered<_> = all.into_iter().collect();
            all.collect().await
        };
        results.sort_unstable_by_key(|(number, _)| *number);
        let named = results.into_iter();
        named
            .map(|(number, result)| (format!("s{number}"), result))
            .collect()
    }

    /// A step between two pauses. An interruption therefore meets the steps of a call at different points.
    async fn one(
        &self,
        number: usize,
        manner: Manner,
        [before, after]: [Duration; 2],
    ) -> (usize, Result<u64, Failure>) {
        tokio::time::sleep(before).await;
        let name = format!("s{number}");
        let result = self.step(&name, "many", manner).await;
        tokio::time::sleep(after).await;
        (number, result)
    }

    /// A step, with the point of each of its awaits. `current`: its name at the gates of the store.
    async fn step(
        &self,
        name: &str,
        current: &'static str,
        manner: Manner,
    ) -> Result<u64, Failure> {
        let key = &*self.call.key;
        let ran = AtomicBool::new(false);
        let gated = current == name;
        let runs = |ended| {
            if gated {
                self.call.runs(current, ended);
            }
        };
        let part = async |_: Step| {
            ran.store(true, Ordering::Relaxed);
            runs(false);
            self.call.pass(&format!("{name}/part")).await;
            let value = self.ledger.effect(key, name)?;
            self.call.pass(&format!("{name}/effect")).await;
            runs(true);
            if name == "stock" {
                return Err(Failure::SoldOut(value));
            }
            Ok(value)
        };
        // A name of two parts, a fingerprint of the input, an error that is recorded.
        let result = match (name, manner) {
            ("ship", _) => step((name, 7), part).await,
            ("stock", _) => step(name, part).input(key).await,
            (_, Manner::Plain) => step(name, part).await,
            (_, Manner::Once) => step(name, part).once().await,
            (_, Manner::Asked) => {
                let asks = async |_: Step| {
                    ran.store(true, Ordering::Relaxed);
                    self.call.pass(&format!("{name}/asked")).await;
                    match self.ledger.count(key, name) {
                        Ok(0) => Reconciled::NotLanded,
                        Ok(value) => {
                            runs(true);
                            Reconciled::Landed(value)
                        }
                        Err(_) => Reconciled::Unknown,
                    }
                };
                step(name, part).reconcile(asks).await
            }
        };
        let result = match result {
            Err(Failure::SoldOut(value)) => Ok(value),
            result => result,
        };
        said(key, name, ran.into_inner(), &result);
        result
    }
}

/// Prints a step's result.
fn said(key: &str, name: &str, ran: bool, result: &Result<u64, Failure>) {
    let how = if ran { "kept" } else { "read" };
    match result {
        Ok(value) => say(&format!("{how} {key} {name} {value}")),
        Err(Failure::Idem(error)) => say(&format!("refused {key} {name} {}", kind(error))),
        Err(other) => say(&format!("refused {key} {name} {other:?}")),
    }
}
