//! The log of the faults that explain an exception.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs, io};

/// Worker processes at one time; a process number modulo this is its seat.
pub const SEATS: u32 = 4;

/// The leases of all claims lapse in the store, unseen by processes.
pub const LAPSE: &str = "lapse";

/// The processes that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Store,
    Seat(u32),
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: String,
    pub target: Target,
    pub from: u64,
    pub to: u64,
    pub killed: Option<u32>,
}

#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

/// Time for new connections after a fault, and for queued commands.
const GRACE: u64 = 1_500_000;

/// Outages of the store that could let a lease lapse.
#[derive(Debug)]
pub(super) struct Outage {
    /// That of its longest fault.
    pub(super) kind: String,
    longest: u64,
    pub(super) from: u64,
    /// Of its last fault, without the time for connections.
    pub(super) to: u64,
}

/// Its line in the log: `<from> <to> <kind> <seat or -> <killed process or ->`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        let seat = match self.target {
            Target::Store => None,
            Target::Seat(seat) => Some(seat),
        };
        let (seat, killed) = (word(seat), word(self.killed));
        write!(f, "{} {} {} {seat} {killed}", self.from, self.to, self.kind)
    }
}

impl Fault {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [from, to, kind, seat, killed] = words[..] else {
            return None;
        };
        Some(Self {
            kind: kind.to_owned(),
            target: seat.parse().map_or(Target::Store, Target::Seat),
            from: from.parse().ok()?,
            to: to.parse().ok()?,
            killed: killed.parse().ok(),
        })
    }

    fn affects(&self, process: u32) -> bool {
        match self.target {
            Target::Store => true,
            Target::Seat(seat) => process % SEATS == seat,
        }
    }

    fn touches(&self, from: u64, to: u64) -> bool {
        self.from <= to && self.to >= from
    }
}

impl Faults {
    pub fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.from);
        Self(faults)
    }

    pub fn read(log: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(log)?;
        Ok(Self::new(text.lines().filter_map(Fault::parse).collect()))
    }

    /// How often each kind of fault happened.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for fault in &self.0 {
            *counts.entry(fault.kind.clone()).or_default() += 1;
        }
        counts
    }

    /// All that touch this span.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Fault> {
        let from = from.saturating_sub(GRACE);
        self.0.iter().filter(move |fault| fault.touches(from, to))
    }

    /// Whether this process was killed in this span.
    pub(super) fn killed(&self, process: u32, from: u64, to: u64) -> bool {
        let mut faults = self.0.iter();
        faults.any(|fault| fault.killed == Some(process) && fault.touches(from, to))
    }

    /// Whether all claims lapsed in this span.
    pub(super) fn lapsed(&self, from: u64, to: u64) -> bool {
        let mut faults = self.0.iter();
        faults.any(|fault| fault.kind == LAPSE && fault.touches(from, to))
    }

    /// Whether this span has a fault of one of these kinds.
    pub(super) fn any(&self, kinds: &[&str], from: u64, to: u64) -> bool {
        !kinds.is_empty()
            && self
                .within(from, to)
                .any(|fault| kinds.contains(&&*fault.kind))
    }

    /// This process's outages of at least `least` microseconds in the span. Faults that follow each other closely are
    /// one outage: connections are not made between them.
    pub(super) fn outages(&self, process: u32, from: u64, to: u64, least: u64) -> Vec<Outage> {
        let mut outages: Vec<Outage> = Vec::new();
        // An outage that began long before may reach into the span.
        let near = self.within(from.saturating_sub(60_000_000), to);
        let is_outage = |fault: &&Fault| {
            fault.affects(process) && fault.killed.is_none() && fault.kind != LAPSE
        };
        for fault in near.filter(is_outage) {
            let longest = fault.to - fault.from;
            match outages.last_mut() {
                Some(outage) if fault.from <= outage.to + GRACE => {
                    outage.to = outage.to.max(fault.to);
                    if longest > outage.longest {
                        (outage.kind, outage.longest) = (fault.kind.clone(), longest);
                    }
                }
                _ => outages.push(Outage {
                    kind: fault.kind.clone(),
                    longest,
                    from: fault.from,
                    to: fault.to,
                }),
            }
        }
        outages.retain(|one| one.to - one.from >= least && one.to + GRACE >= from);
        outages
    }
}
