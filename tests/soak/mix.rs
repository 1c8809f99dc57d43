//! What calls do, by chance.

use std::time::Duration;

use idem_runtime::OnRunning;
use idem_tests::checker::Family;
use idem_tests::seeded::Seeded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answer,
    Declined,
    Down,
    Unknown,
    Panic,
}

/// A call, and what its body does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) key: String,
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
        let number = seeded.below(HOT);
        let epoch = epoch.saturating_sub(1 + seeded.below(past));
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
    let booked = family == Family::Booked;
    // In a transaction it holds locks for that long.
    let pause = if booked { pause.min(20) } else { pause };
    let unknown = matches!(family, Family::Unknown | Family::Reconciled);
    let ending = match seeded.below(100) {
        0..=4 => Ending::Down,
        5..=8 => Ending::Declined,
        9 => Ending::Panic,
        10..=29 if unknown => Ending::Unknown,
        10..=39 if family == Family::Corrected => Ending::Down,
        _ => Ending::Answer,
    };
    let leaves = seeded.percent(2);
    let leaves = leaves.then(|| Duration::from_millis(seeded.below(60)));
    Plan {
        on_running,
        pause: Duration::from_millis(pause),
        fence: seeded.percent(25) && !booked,
        ending,
        leaves,
        ..Plan::audit(key, 0)
    }
}

impl Plan {
    /// A call that finds its answer.
    pub(crate) fn audit(key: String, payload: u8) -> Self {
        Self {
            key,
            payload,
            on_running: OnRunning::Wait(Duration::from_secs(5)),
            pause: Duration::ZERO,
            fence: false,
            ending: Ending::Answer,
            leaves: None,
        }
    }
}
