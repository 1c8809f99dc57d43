//! The calls of all processes, by key.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::{fmt, io};

use idem_runtime::Error;

use super::journal::{self, Entry};

/// How a body ended, or what its caller got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A success, or a business error, as the journal has it.
    Answer(Box<str>),
    /// With an error that releases the key.
    Down,
    Unknown,
    Panic,
    /// The caller went away, or the body was dropped.
    Gone,
    /// An error of idem.
    Error(Box<str>),
}

impl End {
    fn parse(entry: &Entry<'_>) -> Self {
        match entry.first() {
            "ok" | "declined" => Self::Answer(entry.rest.into()),
            "down" => Self::Down,
            "unknown" => Self::Unknown,
            "panic" => Self::Panic,
            "gone" => Self::Gone,
            kind => Self::Error(kind.into()),
        }
    }

    /// With the name of the error's kind.
    pub fn refusal(error: &Error) -> Self {
        let kind = format!("{:?}", error.kind());
        let end = kind.find([' ', '(']).unwrap_or(kind.len());
        Self::Error(kind[..end].into())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer(text) if text.starts_with("ok") => "answer",
            Self::Answer(_) => "business error",
            Self::Down => "system error",
            Self::Unknown => "unknown",
            Self::Panic => "panic",
            Self::Gone => "gone",
            Self::Error(kind) => kind,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Call {
    pub process: u32,
    pub id: u32,
    pub payload: u8,
    pub begun: u64,
    /// Its hook returned that nothing had landed.
    pub reconciled: bool,
    /// Boxed, because most calls run no body.
    pub start: Option<Box<Start>>,
    pub told: Option<(u64, End)>,
}

/// The start of a call's body, and its end.
#[derive(Clone, Debug)]
pub struct Start {
    pub at: u64,
    pub fence: Option<u64>,
    pub end: Option<(u64, End)>,
}

impl Call {
    pub fn new(process: u32, id: u32, payload: u8, begun: u64) -> Self {
        Self {
            process,
            id,
            payload,
            begun,
            reconciled: false,
            start: None,
            told: None,
        }
    }

    pub fn start(&self) -> Option<&Start> {
        self.start.as_deref()
    }

    /// The answer that its caller received, and when.
    pub fn answer(&self) -> Option<(u64, &str)> {
        match &self.told {
            Some((told, End::Answer(text))) => Some((*told, text)),
            _ => None,
        }
    }

    /// Whether its body gave this answer.
    pub fn gave(&self, text: &str) -> bool {
        let end = self.start().and_then(|start| start.end.as_ref());
        end.is_some_and(|(_, end)| matches!(end, End::Answer(answer) if **answer == *text))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}/{}", self.process, self.id)
    }
}

/// An operator's reset, or resolution.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    by: (u32, u32),
    pub(super) from: u64,
    /// `None`: whether and when it happened is not known.
    pub(super) to: Option<u64>,
    /// Its operator received another error than `StoreUnavailable`.
    pub(super) failed: bool,
    pub(super) answer: Option<Box<str>>,
}

#[derive(Clone, Debug, Default)]
pub struct Key {
    pub calls: Vec<Call>,
    pub(super) settlings: Vec<Settling>,
    /// The fences and ends of attempts that the record remembered at last.
    pub(super) recorded: Vec<(u64, Box<str>)>,
    /// Its rows in the ledger.
    pub(super) rows: Vec<Box<str>>,
}

#[derive(Debug, Default)]
pub struct History {
    pub keys: HashMap<Box<str>, Key>,
    /// Processes that ended in order.
    pub stopped: BTreeSet<u32>,
    /// The remaining work of an engine that was shut down.
    pub(super) left: Vec<(u32, Box<str>)>,
}

impl History {
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        journal::read(dir, |process, line| history.line(process, line))?;
        Ok(history)
    }

    /// Takes a line of a process.
    ///
    /// # Panics
    ///
    /// If no process writes such a line.
    pub fn line(&mut self, process: u32, line: &str) {
        let taken = Entry::parse(line).and_then(|entry| match entry.word {
            "event" => Some(()),
            "stopped" => {
                self.stopped.insert(process);
                if entry.rest != "in order" {
                    self.left.push((process, entry.rest.into()));
                }
                Some(())
            }
            _ => self.key(entry.key).line(process, &entry),
        });
        taken.unwrap_or_else(|| panic!("process {process} wrote: {line}"));
    }

    pub fn key(&mut self, name: &str) -> &mut Key {
        if !self.keys.contains_key(name) {
            self.keys.insert(name.into(), Key::default());
        }
        self.keys.get_mut(name).expect("it is there")
    }

    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.keys.values().flat_map(|key| &key.calls)
    }
}

impl Key {
    /// The call of this number.
    pub fn call(&mut self, process: u32, id: u32) -> Option<&mut Call> {
        let ours = |call: &&mut Call| (call.process, call.id) == (process, id);
        self.calls.iter_mut().rfind(ours)
    }

    fn line(&mut self, process: u32, entry: &Entry<'_>) -> Option<()> {
        let (time, id, rest) = (entry.time, entry.call, entry.rest);
        match entry.word {
            "call" => (self.calls).push(Call::new(process, id, rest.parse().ok()?, time)),
            "start" => {
                let start = &mut self.call(process, id)?.start;
                let at = (start.is_none()).then_some(time)?;
                *start = Some(Box::new(Start {
                    at,
                    fence: None,
                    end: None,
                }));
            }
            "fence" => self.call(process, id)?.start.as_mut()?.fence = Some(rest.parse().ok()?),
            "end" => self.call(process, id)?.start.as_mut()?.end = Some((time, End::parse(entry))),
            "told" => self.call(process, id)?.told = Some((time, End::parse(entry))),
            "hook" => self.call(process, id)?.reconciled = rest == "not",
            "recorded" => {
                let attempts = rest.split(' ').map(|attempt| {
                    let (fence, end) = attempt.split_once(':')?;
                    Some((fence.parse().ok()?, end.into()))
                });
                self.recorded = attempts.collect::<Option<_>>()?;
            }
            "row" => self.rows.push(rest.into()),
            "reset" | "resolve" => {
                let answer = (entry.word == "resolve").then(|| format!("ok {}", entry.second()));
                self.settling((process, id), entry, answer.map(String::into_boxed_str));
            }
            _ => return None,
        }
        Some(())
    }

    fn settling(&mut self, by: (u32, u32), entry: &Entry<'_>, answer: Option<Box<str>>) {
        match self.settlings.iter_mut().find(|one| one.by == by) {
            None => self.settlings.push(Settling {
                by,
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
