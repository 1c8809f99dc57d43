//! The explorations of bodies with steps. Each step is recorded when it ends; one that runs once, or is asked about,
//! when it begins as well.

use crate::promise::Promise;
use crate::scenario::{Fate, Faults, Flaw, Part, Scenario};
use crate::store::Resolution;
use crate::world::BY_HAND;

use Fate::{Hold, Release, ReleaseCounted, Unknown};
use Part::{Asked, Once, Plain};

/// A body that charges and then sends a mail.
const fn scenario(name: &'static str, callers: &'static [u8], faults: Faults) -> Scenario {
    Scenario {
        steps: &[Plain, Once],
        on_fail: &[Release, Unknown],
        on_drop: &[Hold, Release, Unknown],
        ..Scenario::new(name, callers, faults)
    }
}

const KEEPING: &[Resolution] = &[
    Resolution::Reset,
    Resolution::ResetKeepingSteps,
    Resolution::Answer(BY_HAND),
];

/// In which every promise has to hold.
pub(crate) const SOUND: &[Scenario] = &[
    scenario(
        "steps: lost, twice, late",
        b"---",
        Faults {
            lost: 1,
            twice: 1,
            late: 1,
            ..Faults::NONE
        },
    ),
    scenario(
        "steps: errors",
        b"---",
        Faults {
            lost: 1,
            fails: 2,
            ..Faults::NONE
        },
    ),
    Scenario {
        on_fail: &[Release, ReleaseCounted],
        ..scenario(
            "steps: crash, zombie",
            b"--",
            Faults {
                late: 1,
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    scenario(
        "steps: renewals",
        b"---",
        Faults {
            crashes: 1,
            zombies: 1,
            renewals: 1,
            ..Faults::NONE
        },
    ),
    scenario(
        "steps: drop",
        b"--",
        Faults {
            late: 1,
            drops: 1,
            zombies: 1,
            ..Faults::NONE
        },
    ),
    Scenario {
        on_fail: &[Release],
        on_drop: &[Unknown],
        ..scenario(
            "steps: late unknown outcomes",
            b"-hh",
            Faults {
                fails: 1,
                drops: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        lenient: true,
        ..scenario(
            "steps: go on",
            b"--",
            Faults {
                lost: 1,
                late: 1,
                fails: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        steps: &[Asked, Plain],
        ..scenario(
            "steps: hooks",
            b"--",
            Faults {
                lost: 1,
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        steps: &[Plain, Asked],
        ..scenario(
            "steps: a hook of the call",
            b"-h",
            Faults {
                late: 1,
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    scenario(
        "steps: everything",
        b"--",
        Faults {
            late: 1,
            fails: 1,
            drops: 1,
            crashes: 1,
            zombies: 1,
            ..Faults::NONE
        },
    ),
    Scenario {
        hands: KEEPING,
        ..scenario(
            "steps: by hand",
            b"--",
            Faults {
                fails: 1,
                zombies: 1,
                hands: 1,
                ..Faults::NONE
            },
        )
    },
];

/// The flawed scenarios that must be found, and the promises that each breaks.
pub(crate) const FLAWED: &[(Scenario, &[Promise])] = &[
    (
        Scenario {
            flaw: Flaw::AppendersUnchecked,
            ..scenario(
                "appenders are not checked",
                b"--",
                Faults {
                    zombies: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::OnceIsOnce,
            Promise::EqualSteps,
            Promise::OwnSteps,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::ShorterJournalsWin,
            ..scenario(
                "shorter journals win",
                b"--",
                Faults {
                    crashes: 1,
                    renewals: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::OnceIsOnce,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::TakeOversForgetSteps,
            ..scenario(
                "take-overs forget steps",
                b"--",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::OnceIsOnce,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::VerdictsForgetSteps,
            ..scenario(
                "verdicts forget steps",
                b"-h",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::ReleasesForgetSteps,
            ..scenario(
                "releases forget steps",
                b"--",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::OnceIsOnce,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::RenewalsForgetSteps,
            ..scenario(
                "renewals forget steps",
                b"--",
                Faults {
                    renewals: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::StepsStay],
    ),
    (
        Scenario {
            flaw: Flaw::UnknownForgetsSteps,
            ..scenario(
                "unknown outcomes forget steps",
                b"-h",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::UnknownBringsItsSteps,
            on_fail: &[Release],
            on_drop: &[Unknown],
            ..scenario(
                "unknown outcomes bring their steps",
                b"-hh",
                Faults {
                    fails: 1,
                    drops: 1,
                    zombies: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::ResetsKeepWhatWasSeen,
            hands: KEEPING,
            ..scenario(
                "resets keep what was seen",
                b"--",
                Faults {
                    crashes: 1,
                    hands: 1,
                    ..Faults::NONE
                },
            )
        },
        &[
            Promise::StepsRunNoMore,
            Promise::OnceIsOnce,
            Promise::EqualSteps,
            Promise::StepsAreHandedOver,
            Promise::StepsStay,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::BeginningsUnrecorded,
            ..scenario(
                "beginnings are not recorded",
                b"--",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::OnceIsOnce],
    ),
    (
        Scenario {
            flaw: Flaw::BegunIsRun,
            ..scenario(
                "begun is run",
                b"--",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::OnceIsOnce],
    ),
];
