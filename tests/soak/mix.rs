//! What calls do, by chance.

use std::time::Duration;

use idem_runtime::OnRunning;
use idem_tests::seeded::Seeded;

/// Calls of one operation, whose settings are those of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Plain,
    /// `max_attempts = 1`.
    Once,
    Finished,
    /// `on_cancel = unknown`, errors of class unknown, and an operator who resolves.
    Unknown,
    /// Errors of class unknown, and a reconcile hook.
    Reconciled,
    /// An operator who resets.
    Reset,
    /// Another payload after a system error.
    Corrected,
    /// In a transaction of a SQL database, with a row in a ledger.
    Booked,
}

impl Family {
    /// Of a key: its number says which.
    pub(crate) fn of(number: u64, books: bool) -> Self {
        match number % 16 {
            0..=5 => Self::Plain,
            6 | 7 => Self::Once,
            8 | 9 => Self::Finished,
            10 => Self::Unknown,
            11 => Self::Reconciled,
            12 => Self::Reset,
            13 => Self::Corrected,
            _ if books => Self::Booked,
            _ => Self::Plain,
        }
    }

    pub(crate) fn of_key(key: &str) -> Self {
        let letter = key.chars().next();
        let found = FAMILIES.iter().find(|(_, of, _)| Some(*of) == letter);
        found.map_or(Self::Plain, |(family, ..)| *family)
    }

    /// The letter that a key of the family begins with, and the name of the operation.
    pub(crate) fn names(self) -> (char, &'static str) {
        let mut all = FAMILIES.iter();
        let found = all.find(|(family, ..)| *family == self);
        found
            .map(|(_, letter, name)| (*letter, *name))
            .expect("each has a row")
    }
}

const FAMILIES: [(Family, char, &str); 8] = [
    (Family::Plain, 'p', "soak.plain"),
    (Family::Once, 'o', "soak.once"),
    (Family::Finished, 'f', "soak.finished"),
    (Family::Unknown, 'u', "soak.unknown"),
    (Family::Reconciled, 'r', "soak.reconciled"),
    (Family::Reset, 's', "soak.reset"),
    (Family::Corrected, 'c', "soak.corrected"),
    (Family::Booked, 'b', "soak.booked"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answer,
    Declined,
    Down,
    Unknown,
    Panic,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) key: String,
    pub(crate) family: Family,
    pub(crate) payload: u8,
    pub(crate) on_running: OnRunning,
    pub(crate) pause: Duration,
    pub(crate) fence: bool,
    pub(crate) ending: Ending,
    /// The caller goes away after this time.
    pub(crate) leaves: Option<Duration>,
}

/// How long a hot key is hot.
const EPOCH: u64 = 500_000;
const HOT: u64 = 48;
/// Keys of so many epochs before are called again.
const PAST: u64 = 40;

/// The key that is called next: hot keys of this time, keys of some time ago, keys of its own.
pub(crate) fn key(seeded: &mut Seeded, now: u64, books: bool) -> (Family, String) {
    let epoch = now / EPOCH;
    let chance = seeded.below(100);
    let (number, name) = if chance < 72 {
        let number = seeded.below(HOT);
        (number, format!("{epoch}-{number}"))
    } else if chance < 88 {
        // Most of them where a lease has just lapsed.
        let past = if seeded.percent(70) { 6 } else { PAST };
        let (number, epoch) = (
            seeded.below(HOT),
            epoch.saturating_sub(1 + seeded.below(past)),
        );
        (number, format!("{epoch}-{number}"))
    } else {
        let number = seeded.below(u64::MAX);
        (number, format!("d-{number:x}"))
    };
    let family = Family::of(number, books);
    (family, format!("{}{name}", family.names().0))
}

pub(crate) fn plan(seeded: &mut Seeded, family: Family, key: String) -> Plan {
    let on_running = match seeded.below(10) {
        0..=2 => OnRunning::Reject,
        3..=7 => OnRunning::Wait(Duration::from_millis(100 + seeded.below(400))),
        _ => OnRunning::Wait(Duration::from_secs(5)),
    };
    let pause = match seeded.below(1_000) {
        0..=690 => 0,
        691..=992 => 5 + seeded.below(45),
        _ => 1_500 + seeded.below(1_500),
    };
    let unknown = matches!(family, Family::Unknown | Family::Reconciled);
    let ending = match seeded.below(100) {
        0..=4 => Ending::Down,
        5..=8 => Ending::Declined,
        9 => Ending::Panic,
        10..=29 if unknown => Ending::Unknown,
        10..=39 if family == Family::Corrected => Ending::Down,
        _ => Ending::Answer,
    };
    // A transaction that is dropped half-way keeps its connection busy until it is rolled back.
    let leaves = seeded
        .percent(2)
        .then(|| Duration::from_millis(seeded.below(60)));
    Plan {
        key,
        family,
        payload: 0,
        on_running,
        pause: Duration::from_millis(pause),
        fence: seeded.percent(25),
        ending,
        leaves,
    }
}
