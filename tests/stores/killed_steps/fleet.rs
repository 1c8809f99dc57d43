//! The processes of a trial, one after the other, and what they said.

use std::collections::{BTreeMap, BTreeSet};

use idem_harness::Worker;

use crate::ledger::Ledger;
use crate::site::{Leases, Site};

/// What a process prints of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The call stops there.
    At(String),
    /// A step has returned what this process did.
    Kept(String, u64),
    /// A step has returned what another process did.
    Read(String, u64),
    /// A step has returned this kind of error.
    Refused(String, String),
    /// The end of the call.
    Answer(String),
    /// The end of the call, with this kind of error.
    End(String),
}

impl Said {
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::End(_))
    }

    /// The key, and what is said of it.
    fn parse(line: &str) -> (String, Self) {
        let words: Vec<_> = line.split(' ').collect();
        let own = |word: &str| word.to_owned();
        let number = |word: &str| word.parse().expect("a value");
        match words[..] {
            ["at", key, point] => (own(key), Self::At(own(point))),
            ["kept", key, step, value] => (own(key), Self::Kept(own(step), number(value))),
            ["read", key, step, value] => (own(key), Self::Read(own(step), number(value))),
            ["refused", key, step, kind] => (own(key), Self::Refused(own(step), own(kind))),
            ["answer", key, answer] => (own(key), Self::Answer(own(answer))),
            ["end", key, kind] => (own(key), Self::End(own(kind))),
            _ => panic!("not understood: {line}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: usize,
    worker: Worker,
    /// What it said that [`Fleet::said_of`] has not returned.
    unread: BTreeMap<String, Vec<Said>>,
    /// The calls that stop when it is stalled.
    pub(crate) stopped: BTreeSet<String>,
    /// It is stalled without a renewal under way: a stalled process may lock others out of the store.
    is_hushed: bool,
}

/// All processes of a trial, and what they said.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) site: Site,
    pub(crate) ledger: Ledger,
    pub(crate) leases: Leases,
    processes: usize,
    /// By process and key.
    pub(crate) said: Vec<(usize, String, Said)>,
}

impl Fleet {
    pub(crate) fn new(site: Site, leases: Leases) -> Self {
        Self {
            site,
            ledger: Ledger::open(),
            leases,
            processes: 0,
            said: Vec::new(),
        }
    }

    /// The next process; `waits`: its calls wait for the end of others.
    pub(crate) fn spawn(&mut self, waits: bool) -> Process {
        self.processes += 1;
        let number = self.processes;
        Process {
            number,
            worker: self.site.spawn(number, &self.ledger, self.leases, waits),
            unread: BTreeMap::new(),
            stopped: BTreeSet::new(),
            is_hushed: self.site.has_locks_of_processes(),
        }
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes
    }

    fn heard(&mut self, process: &mut Process, line: &str) -> (String, Said) {
        let (key, said) = Said::parse(line);
        self.said.push((process.number, key.clone(), said.clone()));
        let unread = process.unread.entry(key.clone()).or_default();
        unread.push(said.clone());
        (key, said)
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, process: &mut Process) -> (String, Said) {
        let line = process.worker.line();
        self.heard(process, &line)
    }

    /// Reads until each of these calls stops or has ended.
    pub(crate) fn rests(
        &mut self,
        process: &mut Process,
        keys: impl IntoIterator<Item: AsRef<str>>,
    ) {
        let mut moving: BTreeSet<_> = keys
            .into_iter()
            .map(|key| key.as_ref().to_owned())
            .collect();
        while !moving.is_empty() {
            let (key, said) = self.line(process);
            if said.is_end() || matches!(said, Said::At(_)) {
                moving.remove(&key);
            }
        }
    }

    /// Reads until each of these calls has ended.
    pub(crate) fn ends(&mut self, process: &mut Process, keys: impl IntoIterator<Item = String>) {
        let number = process.number;
        let has_ended = |(of, key, said): &(usize, String, Said)| {
            (*of == number && said.is_end()).then(|| key.clone())
        };
        let mut open: BTreeSet<_> = keys.into_iter().collect();
        for key in self.said.iter().filter_map(has_ended) {
            open.remove(&key);
        }
        while !open.is_empty() {
            let (key, said) = self.line(process);
            if said.is_end() {
                open.remove(&key);
            }
        }
    }

    /// Kills the process, and reads what it said and did until then.
    pub(crate) fn kill(&mut self, process: &mut Process) {
        process.worker.kill9();
        self.ledger.settle();
        for line in process.worker.rest() {
            self.heard(process, &line);
        }
    }
}

impl Process {
    pub(crate) fn send(&mut self, line: &str) {
        self.worker.send(line);
    }

    /// Stalls the process, whose calls stop.
    pub(crate) fn stall(&mut self) {
        if self.is_hushed {
            self.worker.send("hush");
            assert_eq!(self.worker.line(), "hushed");
        }
        self.worker.pause();
    }

    /// Wakes the process up.
    pub(crate) fn wake(&mut self) {
        self.worker.resume();
        if self.is_hushed {
            self.worker.send("renew");
        }
    }

    /// What it has said of this key since the last time.
    pub(crate) fn said_of(&mut self, key: &str) -> Vec<Said> {
        self.unread.remove(key).unwrap_or_default()
    }
}
