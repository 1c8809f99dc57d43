//! The nemesis: which faults happen, when and for how long, by the seed.
//!
//! Several lanes at once: processes, networks, servers. Each has a schedule of its own, so that a fault that
//! takes longer than it should moves no others.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use idem_harness::{DatabaseServer, RedisServer, SentinelSetup, Server};
use idem_tests::checker::journal::now;
use idem_tests::checker::{Fault, LAPSE, Target};
use idem_tests::seeded::Seeded;
use sqlx::{Connection as _, Executor as _, SqliteConnection};

use crate::books;
use crate::options::Options;
use crate::stores::{self, Site, block_on};
use crate::worker_fleet::WorkerFleet;

#[derive(Debug)]
pub(crate) struct Nemesis<'a> {
    fleet: &'a WorkerFleet,
    site: &'a Site,
    seed: u64,
    options: &'a Options,
    dir: PathBuf,
    log: Mutex<File>,
    pub(crate) count: AtomicUsize,
    stop: AtomicBool,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        fleet: &'a WorkerFleet,
        site: &'a Site,
        (seed, options): (u64, &'a Options),
        dir: &Path,
    ) -> Self {
        Self {
            fleet,
            site,
            seed,
            options,
            dir: dir.to_owned(),
            log: Mutex::new(File::create(dir.join(LOG)).expect("the directory is there")),
            count: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Goes on until it is stopped. Every fault is over when this returns.
    pub(crate) fn run(&self) {
        let seats = self.fleet.len();
        thread::scope(|scope| {
            for seat in 0..seats {
                scope
                    .spawn(move || self.lane(u64::from(seat), |seeded| self.process(seat, seeded)));
                if !self.fleet.proxies(seat).is_empty() {
                    let lane = u64::from(seat) + 10;
                    scope.spawn(move || self.lane(lane, |seeded| self.network(seat, seeded)));
                }
            }
            scope.spawn(|| self.lane(20, |seeded| self.server(seeded)));
            scope.spawn(|| self.metronome());
        });
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn lane(&self, lane: u64, mut fault: impl FnMut(&mut Seeded)) {
        let mut seeded = Seeded::new(self.seed ^ lane << 48);
        while !self.stop.load(Ordering::SeqCst) {
            fault(&mut seeded);
        }
    }

    /// Waits, unless it is stopped.
    fn rest(&self, millis: u64) -> bool {
        let end = Instant::now() + Duration::from_millis(millis * self.options.pauses);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
        !self.stop.load(Ordering::SeqCst)
    }

    fn log(&self, from: u64, kind: &str, seat: Option<u32>, killed: Option<u32>) {
        let fault = Fault {
            kind: kind.to_owned(),
            target: seat.map_or(Target::Store, Target::Seat),
            from,
            to: now(),
            killed,
        };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(log, "{fault}").expect("the disk has room");
        if kind != "machine-stall" {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn process(&self, seat: u32, seeded: &mut Seeded) {
        let rest = 600 + seeded.below(2_400);
        let (kills, length) = (seeded.percent(45), length(seeded, 100, 5_000));
        // The memory of a process is a store that ends with it.
        let kills = (kills || self.options.gentle) && self.fleet.len() > 1;
        if !self.rest(rest) {
            return;
        }
        let from = now();
        if kills {
            let killed = self.fleet.kill(seat);
            self.log(from, "kill", Some(seat), Some(killed));
        } else {
            self.fleet.pause(seat);
            thread::sleep(Duration::from_millis(length));
            self.fleet.resume(seat);
            // A paused process may hold the lock of the file.
            let alone = !matches!(self.site, Site::Local(_));
            self.log(from, "pause", alone.then_some(seat), None);
        }
    }

    fn network(&self, seat: u32, seeded: &mut Seeded) {
        let rest = 600 + seeded.below(2_400);
        let (kind, length) = (seeded.below(10), length(seeded, 100, 3_000));
        let delay = Duration::from_millis(20 + seeded.below(300));
        let proxies = self.fleet.proxies(seat);
        let which = usize::try_from(seeded.below(proxies.len() as u64)).expect("a few proxies");
        let proxy = &proxies[which];
        if !self.rest(rest) {
            return;
        }
        let from = now();
        let cuts = self.options.gentle || kind < 4;
        let kind = match kind {
            0 | 2 | 4 | 6 if cuts && matches!(self.site, Site::Redis(_)) => {
                // Of a script, which the server has run.
                proxy.drop_next_reply_to("EVALSHA");
                "lost-reply"
            }
            _ if cuts => {
                proxy.cut();
                "cut"
            }
            4..=6 => {
                proxy.black_hole(true);
                thread::sleep(Duration::from_millis(length));
                proxy.black_hole(false);
                "black-hole"
            }
            _ => {
                proxy.delay(delay);
                thread::sleep(Duration::from_millis(length));
                proxy.delay(Duration::ZERO);
                "slow-network"
            }
        };
        self.log(from, kind, Some(seat), None);
    }

    fn server(&self, seeded: &mut Seeded) {
        let rest = if self.options.gentle {
            200 + seeded.below(600)
        } else {
            2_500 + seeded.below(5_000)
        };
        let (kind, length) = (seeded.below(100), length(seeded, 100, 3_000));
        if !self.rest(rest) {
            return;
        }
        let from = now();
        let kind = match self.site {
            Site::Redis(server) if self.options.gentle => {
                server.advance(self.options.lease(), stores::PREFIX);
                LAPSE
            }
            _ if self.options.gentle => return,
            Site::Local(url) if url.is_empty() => return,
            Site::Local(_) if kind < 35 => fill_disk(&self.dir, length),
            Site::Local(url) => lock_file(url, length),
            Site::Redis(server) => redis(server, kind, length),
            Site::Postgres(server) => postgres(server, kind, length),
            Site::MariaDb(server) => mariadb(server, kind, length),
            Site::Layered(fast, durable) => layered(fast, durable, kind, length),
            Site::Sentinel(setup) => sentinel(setup, kind, length),
        };
        self.log(from, kind, None, None);
    }

    /// Stalls of the machine itself: a thread that sleeps shortly notices when no process runs.
    fn metronome(&self) {
        let (beat, late) = (Duration::from_millis(20), 300_000);
        while !self.stop.load(Ordering::SeqCst) {
            let from = now();
            thread::sleep(beat);
            if now() - from > late {
                self.log(from, "machine-stall", None, None);
            }
        }
    }
}

/// The log of the nemesis, in the directory of a run.
pub(crate) const LOG: &str = "faults.log";

/// Most faults are short, some longer than a lease.
fn length(seeded: &mut Seeded, least: u64, most: u64) -> u64 {
    let share = if seeded.percent(70) { 5 } else { 1 };
    least + seeded.below((most - least) / share)
}

fn sleep(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

/// SQLite limits the size of a file per connection: the bodies of the ledger set the limit while the flag file
/// exists.
fn fill_disk(dir: &Path, length: u64) -> &'static str {
    let flag = dir.join(books::FULL);
    File::create(&flag).expect("the directory is there");
    sleep(length);
    fs::remove_file(&flag).expect("it was there");
    "disk-full"
}

fn lock_file(url: &str, length: u64) -> &'static str {
    let lock = async {
        let mut conn = SqliteConnection::connect(url).await?;
        conn.execute("PRAGMA busy_timeout = 20000").await?;
        conn.execute("BEGIN IMMEDIATE").await?;
        tokio::time::sleep(Duration::from_millis(length)).await;
        conn.execute("ROLLBACK").await?;
        conn.close().await
    };
    let locked = block_on(lock);
    // A paused process may have it for longer.
    drop(locked);
    "file-lock"
}

fn kill(server: &Server, length: u64) -> &'static str {
    server.kill();
    sleep(length / 2);
    server.restart();
    "server-kill"
}

fn pause(server: &Server, length: u64) -> &'static str {
    server.pause();
    sleep(length);
    server.resume();
    "server-pause"
}

fn redis(server: &RedisServer, kind: u64, length: u64) -> &'static str {
    let set = |name, value| {
        server.cli(&["CONFIG", "SET", name, value]);
        sleep(length);
        server.cli(&["CONFIG", "SET", name, "0"]);
    };
    match kind {
        0..=39 => kill(server, length),
        40..=69 => pause(server, length),
        70..=84 => {
            set("maxmemory", "1mb");
            "memory-full"
        }
        _ => {
            set("min-replicas-to-write", "1");
            "read-only"
        }
    }
}

fn postgres(server: &DatabaseServer, kind: u64, length: u64) -> &'static str {
    let seconds = |millis: u64| format!("{}.{:03}", millis / 1_000, millis % 1_000);
    // A refusal under load is no fault of idem.
    let execute = |sql: &str| drop(server.try_execute(sql));
    match kind {
        0..=29 => kill(server, length),
        30..=59 => pause(server, length),
        60..=74 => {
            execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            );
            "backends-terminated"
        }
        75..=87 => {
            execute("ALTER SYSTEM SET default_transaction_read_only = on");
            execute("SELECT pg_reload_conf()");
            sleep(length);
            execute("ALTER SYSTEM RESET default_transaction_read_only");
            // In a session that began read-only.
            execute(
                "SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only",
            );
            execute("SELECT pg_reload_conf()");
            "read-only"
        }
        _ => {
            let length = seconds(length);
            execute(&format!(
                "BEGIN; LOCK TABLE idem_records; SELECT pg_sleep({length}); ROLLBACK"
            ));
            "table-lock"
        }
    }
}

fn mariadb(server: &DatabaseServer, kind: u64, length: u64) -> &'static str {
    let seconds = format!("{}.{:03}", length / 1_000, length % 1_000);
    let execute = |sql: &str| drop(server.try_execute(sql));
    match kind {
        0..=29 => kill(server, length),
        30..=64 => pause(server, length),
        65..=84 => {
            execute(&format!(
                "LOCK TABLES idem_records WRITE; DO SLEEP({seconds}); UNLOCK TABLES"
            ));
            "table-lock"
        }
        _ => {
            execute(&format!(
                "FLUSH TABLES WITH READ LOCK; DO SLEEP({seconds}); UNLOCK TABLES"
            ));
            "read-only"
        }
    }
}

fn layered(fast: &RedisServer, durable: &DatabaseServer, kind: u64, length: u64) -> &'static str {
    match kind {
        0..=24 => {
            // It comes back with nothing in it.
            kill(fast, length);
            "cache-kill"
        }
        25..=44 => {
            pause(fast, length);
            "cache-pause"
        }
        45..=59 => {
            fast.cli(&["FLUSHALL"]);
            "cache-flush"
        }
        60..=79 => kill(durable, length),
        _ => pause(durable, length),
    }
}

fn sentinel(setup: &SentinelSetup, kind: u64, length: u64) -> &'static str {
    let old = setup.primary();
    let kind = match kind {
        0..=44 => {
            old.kill();
            setup.await_new_primary(old);
            old.restart();
            "primary-killed"
        }
        45..=89 => {
            old.pause();
            setup.await_new_primary(old);
            sleep(length);
            old.resume();
            "primary-paused"
        }
        _ => {
            setup.failover();
            "failover-asked"
        }
    };
    setup.await_settled();
    kind
}
