//! The history of all processes, by key.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::{fs, io};

use crate::journal::{self, Entry};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// With an answer: a success, or a business error.
    Answer(Box<str>),
    /// With an error that releases the key.
    Down,
    Unknown,
    Panic,
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Answer(Box<str>),
    /// A failure of the call's own body, or that of the operation's `Unknown`.
    Down,
    Unknown,
    Panic,
    /// The caller went away.
    Gone,
    Error(Box<str>),
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) process: u32,
    pub(crate) id: u32,
    pub(crate) payload: u8,
    pub(crate) begun: u64,
    pub(crate) told: Option<(u64, Told)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) process: u32,
    pub(crate) id: u32,
    /// When its call began.
    pub(crate) begun: u64,
    pub(crate) at: u64,
    pub(crate) fence: Option<u64>,
    pub(crate) end: Option<(u64, How)>,
    /// The hook of the call returned that nothing had landed.
    pub(crate) reconciled: bool,
}

/// An operator's reset, or resolution.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    pub(crate) process: u32,
    pub(crate) id: u32,
    pub(crate) from: u64,
    /// `None`: whether and when it happened is not known.
    pub(crate) to: Option<u64>,
    /// Its operator received another error than `StoreUnavailable`.
    pub(crate) failed: bool,
    pub(crate) answer: Option<Box<str>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    pub(crate) calls: Vec<Call>,
    pub(crate) starts: Vec<Start>,
    pub(crate) settlings: Vec<Settling>,
    /// The fences and ends of attempts that the record remembered at last.
    pub(crate) recorded: Vec<(u64, Box<str>)>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) keys: HashMap<Box<str>, Key>,
    /// Processes that ended in order, and their last words.
    pub(crate) stopped: BTreeMap<u32, String>,
    pub(crate) calls: u64,
    /// Lines that are none.
    pub(crate) torn: usize,
}

/// Where a call of the process that is read stands.
type Places = HashMap<u32, (Option<usize>, Option<usize>, bool)>;

impl History {
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        for (number, path) in journals(dir)? {
            let mut places = Places::new();
            journal::read(&path, |line| history.line(number, line, &mut places))?;
        }
        history.sort();
        Ok(history)
    }

    #[cfg(test)]
    pub(crate) fn take(&mut self, process: u32, lines: &str) {
        let mut places = Places::new();
        for line in lines.lines().map(str::trim) {
            self.line(process, line, &mut places);
        }
        self.sort();
    }

    fn sort(&mut self) {
        for key in self.keys.values_mut() {
            key.starts.sort_by_key(|start| start.at);
            key.calls.sort_by_key(|call| call.begun);
        }
    }

    fn line(&mut self, process: u32, line: &str, places: &mut Places) {
        let Some(entry) = Entry::parse(line) else {
            self.torn += 1;
            return;
        };
        if entry.word == "stopped" {
            self.stopped.insert(process, entry.rest.to_owned());
            return;
        }
        if entry.word == "event" {
            return;
        }
        if entry.word == "call" {
            self.calls += 1;
        }
        if !self.keys.contains_key(entry.key) {
            self.keys.insert(entry.key.into(), Key::default());
        }
        let key = self.keys.get_mut(entry.key).expect("it is there");
        if key.line(process, &entry, places).is_none() {
            self.torn += 1;
        }
    }
}

impl Key {
    fn line(&mut self, process: u32, entry: &Entry<'_>, places: &mut Places) -> Option<()> {
        let (time, id) = (entry.time, entry.call);
        let place = places.entry(id).or_default();
        match entry.word {
            "call" => {
                place.0 = Some(self.calls.len());
                self.calls.push(Call {
                    process,
                    id,
                    payload: entry.rest.parse().ok()?,
                    begun: time,
                    told: None,
                });
            }
            "start" => {
                let begun = self.calls[place.0?].begun;
                place.1 = Some(self.starts.len());
                self.starts.push(Start {
                    process,
                    id,
                    begun,
                    at: time,
                    fence: None,
                    end: None,
                    reconciled: place.2,
                });
            }
            "fence" => self.starts[place.1?].fence = entry.rest.parse().ok(),
            "end" => {
                let how = match entry.first() {
                    "ok" | "declined" => How::Answer(entry.rest.into()),
                    "unknown" => How::Unknown,
                    "panic" => How::Panic,
                    "dropped" => How::Dropped,
                    _ => How::Down,
                };
                self.starts[place.1?].end = Some((time, how));
            }
            "told" => {
                let told = match entry.first() {
                    "ok" | "declined" => Told::Answer(entry.rest.into()),
                    "down" => Told::Down,
                    "unknown" => Told::Unknown,
                    "panic" => Told::Panic,
                    "gone" => Told::Gone,
                    kind => Told::Error(kind.into()),
                };
                self.calls[place.0?].told = Some((time, told));
            }
            "recorded" => {
                let attempts = entry.rest.split(' ').map(|attempt| {
                    let (fence, end) = attempt.split_once(':')?;
                    Some((fence.parse().ok()?, end.into()))
                });
                self.recorded = attempts.collect::<Option<_>>()?;
            }
            "hook" => place.2 = entry.rest == "not",
            "reset" | "resolve" => {
                let answer = (entry.word == "resolve").then(|| format!("ok {}", entry.second()));
                self.settling(process, entry, answer.map(String::into_boxed_str));
            }
            _ => return None,
        }
        Some(())
    }

    fn settling(&mut self, process: u32, entry: &Entry<'_>, answer: Option<Box<str>>) {
        let ours = |one: &&mut Settling| (one.process, one.id) == (process, entry.call);
        match self.settlings.iter_mut().find(ours) {
            None => self.settlings.push(Settling {
                process,
                id: entry.call,
                from: entry.time,
                to: None,
                failed: false,
                answer,
            }),
            Some(one) => match entry.first() {
                "done" => one.to = Some(entry.time),
                "failed" => (one.to, one.failed) = (Some(entry.time), true),
                _ => {}
            },
        }
    }
}

/// The journals of a directory, with the numbers of their processes.
pub(crate) fn journals(dir: &Path) -> io::Result<Vec<(u32, std::path::PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("worker-")?.parse().ok());
        if let Some(number) = number {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}
