//! The log of the nemesis: the faults that explain an exception.

use std::collections::BTreeMap;
use std::path::Path;

/// Worker processes at one time; a process number modulo this is its seat.
pub(crate) const SEATS: u32 = 4;

/// Who a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Store,
    Seat(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    pub(crate) target: Target,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) killed: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

/// Time for new connections after a fault, and for queued commands.
const GRACE: u64 = 1_500_000;

/// What kept processes from the store for long enough to let a lease lapse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) kind: String,
    pub(crate) from: u64,
    /// Of its last fault, without the time for connections.
    pub(crate) to: u64,
}

impl Fault {
    fn affects(&self, process: u32) -> bool {
        match self.target {
            Target::Store => true,
            Target::Seat(seat) => process % SEATS == seat,
        }
    }
}

impl Faults {
    pub(crate) fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.from);
        Self(faults)
    }

    /// Reads the log of the nemesis: `<from> <to> <kind> <seat or -> <killed process or ->`.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let fault = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let [from, to, kind, seat, killed] = words[..] else {
                return None;
            };
            Some(Fault {
                kind: kind.to_owned(),
                target: seat.parse().map_or(Target::Store, Target::Seat),
                from: from.parse().ok()?,
                to: to.parse().ok()?,
                killed: killed.parse().ok(),
            })
        };
        Ok(Self::new(text.lines().filter_map(fault).collect()))
    }

    /// How often each kind of fault happened.
    pub(crate) fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for fault in &self.0 {
            *counts.entry(&*fault.kind).or_default() += 1;
        }
        counts
    }

    /// All that touch this span.
    pub(crate) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = &Fault> {
        let touches = move |fault: &&Fault| fault.from <= to && fault.to + GRACE >= from;
        self.0.iter().filter(touches)
    }

    /// Whether this process was killed in this span.
    pub(crate) fn killed(&self, process: u32, from: u64, to: u64) -> bool {
        let killed =
            |fault: &Fault| fault.killed == Some(process) && fault.from <= to && fault.to >= from;
        self.0.iter().any(killed)
    }

    /// Whether there was a fault of one of these kinds in this span.
    pub(crate) fn any(&self, kinds: &[&str], from: u64, to: u64) -> bool {
        !kinds.is_empty()
            && self
                .within(from, to)
                .any(|fault| kinds.contains(&&*fault.kind))
    }

    /// Outages of the store for this process, of `least` microseconds, that touch the span. Faults that follow
    /// each other closely are one outage: connections are not made between them.
    pub(crate) fn outages(&self, process: u32, from: u64, to: u64, least: u64) -> Vec<Outage> {
        // With the length of the longest fault of each.
        let mut outages: Vec<(Outage, u64)> = Vec::new();
        // One that began long before may reach into the span.
        let near = self.within(from.saturating_sub(60_000_000), to);
        for fault in near.filter(|fault| fault.affects(process) && fault.killed.is_none()) {
            let length = fault.to - fault.from;
            match outages.last_mut() {
                Some((outage, longest)) if fault.from <= outage.to + GRACE => {
                    outage.to = outage.to.max(fault.to);
                    if length > *longest {
                        (outage.kind, *longest) = (fault.kind.clone(), length);
                    }
                }
                _ => {
                    let outage = Outage {
                        kind: fault.kind.clone(),
                        from: fault.from,
                        to: fault.to,
                    };
                    outages.push((outage, length));
                }
            }
        }
        let outages = outages.into_iter().map(|(outage, _)| outage);
        let long = outages.filter(|outage| outage.to - outage.from >= least);
        long.filter(|outage| outage.to + GRACE >= from).collect()
    }
}
