//! The processes of a trial, in their order, and their reports.

use std::collections::BTreeMap;
use std::fs;

use idem_harness::Worker;

use crate::site::{Leases, Site};

/// A process's report of a call.
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
    Answer(String),
    /// The end of the call, with this kind of error.
    End(String),
}

impl Said {
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::End(_))
    }

    /// A key and a report of it.
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
    /// Reports that [`Fleet::said_of`] has not returned yet.
    unread: BTreeMap<String, Vec<Said>>,
    /// It is stalled without a renewal under way: a stalled process may lock others out of the store.
    is_hushed: bool,
}

/// The processes that had an effect, in order, by key and step.
pub(crate) type Effects = BTreeMap<(String, String), Vec<usize>>;

/// All processes of a trial, and what they said.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) site: Site,
    pub(crate) leases: Leases,
    processes: usize,
    /// By process and key.
    pub(crate) said: Vec<(usize, String, Said)>,
}

impl Fleet {
    pub(crate) fn new(site: Site, leases: Leases) -> Self {
        Self {
            site,
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
            worker: self.site.spawn(number, self.leases, waits),
            unread: BTreeMap::new(),
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

    pub(crate) fn line(&mut self, process: &mut Process) -> (String, Said) {
        let line = process.worker.line();
        self.heard(process, &line)
    }

    /// Reads until each of these calls stops or has ended. The number is that of the steps that stop or have a result
    /// before a call stops.
    pub(crate) fn rests(
        &mut self,
        process: &mut Process,
        calls: impl IntoIterator<Item = (impl AsRef<str>, usize)>,
    ) {
        let calls = calls.into_iter();
        let mut moving: BTreeMap<_, _> = calls
            .map(|(key, steps)| (key.as_ref().to_owned(), (steps, false)))
            .collect();
        while !moving.is_empty() {
            let (key, said) = self.line(process);
            let Some((left, stops)) = moving.get_mut(&key) else {
                continue;
            };
            *stops |= matches!(said, Said::At(_));
            if matches!(said, Said::At(_) | Said::Kept(..) | Said::Read(..)) {
                *left = left.saturating_sub(1);
            }
            if said.is_end() || *stops && *left == 0 {
                moving.remove(&key);
            }
        }
    }

    /// The effects of all steps so far, in the processes' own records.
    pub(crate) fn effects(&self) -> Effects {
        let mut effects = Effects::new();
        for file in fs::read_dir(self.site.ledger()).expect("it is there") {
            let path = file.expect("it is read").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let (key, step) = name.split_once(' ').expect("a key and a step");
            let lines = fs::read_to_string(&path).expect("it is read");
            let had = lines.lines().map(|line| line.parse().expect("a process"));
            let had: Vec<_> = had.collect();
            // A process that is killed may have made a file, and had no effect.
            if !had.is_empty() {
                effects.insert((key.to_owned(), step.to_owned()), had);
            }
        }
        effects
    }

    /// Kills the process, and reads its reports until then.
    pub(crate) fn kill(&mut self, process: &mut Process) {
        process.worker.kill9();
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

    pub(crate) fn wake(&mut self) {
        self.worker.resume();
        if self.is_hushed {
            self.worker.send("renew");
        }
    }

    /// Its reports of this key since the last time.
    pub(crate) fn said_of(&mut self, key: &str) -> Vec<Said> {
        self.unread.remove(key).unwrap_or_default()
    }
}
