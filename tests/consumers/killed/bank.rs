//! A bank with idempotency keys, which pauses for the nemesis.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How an id fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Charged,
    /// Its first request fails.
    FailsOnce,
    Fails,
}

#[derive(Clone, Debug)]
pub(super) struct Bank {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fate: fn(&str) -> Fate,
    books: Mutex<Books>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    /// The number of requests of each id: of the bodies that came as far.
    pub(super) bodies: BTreeMap<String, u32>,
    /// The keys by which each id was charged.
    pub(super) effects: BTreeMap<String, BTreeSet<String>>,
    /// The number of requests, and that after which the bank stands still.
    requests: u64,
    limit: u64,
    /// The names of the consumers whose requests stand still.
    held: Vec<u32>,
    /// The consumer that is served nevertheless.
    leaving: Option<u32>,
}

impl Books {
    /// The number of all bodies.
    pub(super) fn total(&self) -> u64 {
        self.bodies.values().copied().map(u64::from).sum()
    }

    fn stands_still(&self, number: u64, consumer: u32) -> bool {
        number > self.limit && self.leaving != Some(consumer)
    }
}

impl Bank {
    /// A bank that stands still after so many requests, until [`proceed`](Self::proceed).
    pub(super) fn open(fate: fn(&str) -> Fate, limit: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let addr = listener.local_addr().expect("it listens");
        let books = Books {
            limit,
            ..Books::default()
        };
        let shared = Arc::new(Shared {
            fate,
            books: Mutex::new(books),
            changed: Condvar::new(),
        });
        let bank = Self {
            addr,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(client));
            }
        });
        bank
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.books()
    }

    /// The names of the consumers whose requests stand still, once one does; none after this time.
    pub(super) fn held(&self, patience: Duration) -> Vec<u32> {
        let books = self.books();
        let changed = &self.shared.changed;
        let woken = changed.wait_timeout_while(books, patience, |books| books.held.is_empty());
        woken.unwrap_or_else(PoisonError::into_inner).0.held.clone()
    }

    /// Serves a consumer that leaves, also while it stands still.
    pub(super) fn leaves(&self, consumer: u32) {
        self.books().leaving = Some(consumer);
        self.shared.changed.notify_all();
    }

    /// Goes on, up to this number of requests.
    pub(super) fn proceed(&self, limit: u64) {
        self.books().limit = limit;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers `<consumer> <id> <key>`. Every other request has its effect before the bank stands still, so that its
    /// consumer may be killed with the effect and without the answer.
    fn serve(&self, mut client: TcpStream) {
        let mut request = String::new();
        let read = BufReader::new(&client).read_line(&mut request);
        let words: Vec<_> = request.split_whitespace().collect();
        let (Ok(_), [consumer, id, key]) = (read, &words[..]) else {
            return;
        };
        let mut books = self.books();
        books.requests += 1;
        let number = books.requests;
        let bodies = books.bodies.entry((*id).to_owned()).or_default();
        *bodies += 1;
        let charges = match (self.fate)(id) {
            Fate::Charged => true,
            Fate::FailsOnce => *bodies > 1,
            Fate::Fails => false,
        };
        let charge = |books: &mut Books| {
            if charges {
                let keys = books.effects.entry((*id).to_owned()).or_default();
                keys.insert((*key).to_owned());
            }
        };
        if number.is_multiple_of(2) {
            charge(&mut books);
        }
        let consumer = consumer.parse().expect("the name of a consumer");
        if books.stands_still(number, consumer) {
            books.held.push(consumer);
            self.changed.notify_all();
            let stands_still = |books: &mut Books| books.stands_still(number, consumer);
            let woken = self.changed.wait_while(books, stands_still);
            books = woken.unwrap_or_else(PoisonError::into_inner);
            let place = books.held.iter().position(|held| *held == consumer);
            books.held.swap_remove(place.expect("it was held"));
        }
        charge(&mut books);
        drop(books);
        thread::sleep(Duration::from_millis(number % 5));
        let answer = if charges { "charged\n" } else { "closed\n" };
        // The consumer may be gone.
        drop(client.write_all(answer.as_bytes()));
    }
}
