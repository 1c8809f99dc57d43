//! The explorations.

use crate::promise::Promise;
use crate::scenario::{Fate, Faults, Flaw, Scenario};

use Fate::{Hold, Keep, Release, ReleaseBound, ReleaseCounted, Unknown};

/// The sound scenarios, in which every promise has to hold. A single effect is promised where each attempt that
/// may have had it is reconciled, or is the only one: not where errors are released, nor where a caller without
/// a hook runs the body of a crashed attempt again.
pub(crate) const SOUND: &[Scenario] = &[
    Scenario::new(
        "lost, late, twice",
        b"---",
        Faults {
            lost: 1,
            twice: 1,
            late: 1,
            ..Faults::NONE
        },
    ),
    Scenario {
        on_fail: &[Release, Keep],
        ..Scenario::new(
            "errors",
            b"---",
            Faults {
                lost: 1,
                late: 1,
                fails: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Keep],
        ..Scenario::new(
            "crash, zombie",
            b"---",
            Faults {
                fails: 1,
                crashes: 1,
                zombies: 1,
                renewals: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_drop: &[Hold, Release, Unknown],
        ..Scenario::new(
            "drop",
            b"--h",
            Faults {
                late: 1,
                drops: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Release, ReleaseCounted, Keep, Unknown],
        on_drop: &[Hold, Release, Unknown],
        ..Scenario::new(
            "everything",
            b"-h",
            Faults {
                lost: 1,
                twice: 1,
                late: 1,
                fails: 1,
                drops: 1,
                crashes: 1,
                zombies: 1,
                renewals: 0,
                hands: 0,
            },
        )
    },
    Scenario {
        max_attempts: Some(1),
        on_fail: &[Keep, ReleaseCounted, Unknown],
        besides: &[Promise::AttemptsEnd, Promise::OneEffect],
        ..Scenario::new(
            "one attempt",
            b"---",
            Faults {
                lost: 1,
                late: 1,
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        max_attempts: Some(2),
        on_fail: &[ReleaseCounted, Unknown],
        on_drop: &[Unknown],
        besides: &[Promise::AttemptsEnd, Promise::OneEffect],
        ..Scenario::new(
            "hook, two attempts",
            b"hhh",
            Faults {
                late: 1,
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[ReleaseCounted, Unknown],
        on_drop: &[Hold, Unknown],
        besides: &[Promise::OneEffect],
        ..Scenario::new(
            "hook",
            b"hhh",
            Faults {
                fails: 1,
                drops: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Unknown],
        on_drop: &[Hold],
        ..Scenario::new(
            "a hook here and there",
            b"-hh",
            Faults {
                lost: 1,
                fails: 1,
                drops: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Release, ReleaseBound, ReleaseCounted, Keep, Unknown],
        ..Scenario::new(
            "another request",
            b"-o-",
            Faults {
                late: 1,
                fails: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Release, ReleaseBound],
        on_drop: &[Hold, Release],
        ..Scenario::new(
            "another request, twice",
            b"-o",
            Faults {
                lost: 1,
                twice: 1,
                late: 1,
                fails: 2,
                drops: 1,
                zombies: 1,
                renewals: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Release, Unknown],
        ..Scenario::new(
            "another request, hooks",
            b"hoH",
            Faults {
                fails: 1,
                crashes: 1,
                zombies: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Release],
        ..Scenario::new(
            "another request, by hand",
            b"-o-",
            Faults {
                fails: 1,
                zombies: 2,
                hands: 1,
                ..Faults::NONE
            },
        )
    },
    Scenario {
        on_fail: &[Unknown],
        ..Scenario::new(
            "by hand",
            b"-h",
            Faults {
                twice: 1,
                late: 1,
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
            flaw: Flaw::OwnersUnchecked,
            on_fail: &[Keep],
            ..Scenario::new(
                "owners unchecked",
                b"--",
                Faults {
                    fails: 1,
                    zombies: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::EqualAnswers, Promise::OneClaim],
    ),
    (
        Scenario {
            flaw: Flaw::OffersReplace,
            offers: true,
            rounds: 1,
            ..Scenario::new("plain claims replace", b"--", Faults::NONE)
        },
        &[Promise::OneClaim, Promise::FencesGrow],
    ),
    (
        Scenario {
            flaw: Flaw::UnknownIsFree,
            on_fail: &[Unknown],
            besides: &[Promise::OneEffect],
            ..Scenario::new(
                "unknown is free",
                b"--",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::UnknownWaits, Promise::OneEffect],
    ),
    (
        Scenario {
            flaw: Flaw::LapsedFindingOutIsFree,
            on_fail: &[Unknown],
            ..Scenario::new(
                "lapsed finding out is free",
                b"--h",
                Faults {
                    fails: 1,
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::UnknownWaits],
    ),
    (
        Scenario {
            flaw: Flaw::FindingOutGivenBackIsFree,
            on_fail: &[Unknown],
            on_drop: &[Unknown],
            ..Scenario::new(
                "finding out given back is free",
                b"--h",
                Faults {
                    fails: 1,
                    drops: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::UnknownWaits],
    ),
    (
        Scenario {
            flaw: Flaw::GivenBackIsGranted,
            ..Scenario::new(
                "given back is granted",
                b"--",
                Faults {
                    twice: 1,
                    late: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::GoneIsGone],
    ),
    (
        Scenario {
            flaw: Flaw::AnswersAreHealed,
            ..Scenario::new(
                "answers are healed",
                b"--",
                Faults {
                    zombies: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::EqualAnswers, Promise::DoneIsFinal],
    ),
    (
        Scenario {
            flaw: Flaw::AnswersAreFree,
            besides: &[Promise::OneEffect],
            ..Scenario::new("answers are free", b"--", Faults::NONE)
        },
        &[
            Promise::EqualAnswers,
            Promise::AnswersEndIt,
            Promise::DoneIsFinal,
            Promise::OneEffect,
        ],
    ),
    (
        Scenario {
            flaw: Flaw::FencesForgotten,
            ..Scenario::new(
                "fences are forgotten",
                b"--",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::FencesGrow],
    ),
    (
        Scenario {
            flaw: Flaw::AttemptsForgotten,
            max_attempts: Some(1),
            besides: &[Promise::AttemptsEnd, Promise::OneEffect],
            ..Scenario::new(
                "attempts are forgotten",
                b"--",
                Faults {
                    crashes: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::AttemptsEnd, Promise::OneEffect],
    ),
    (
        Scenario {
            flaw: Flaw::ResolvesBlindly,
            ..Scenario::new(
                "resolves blindly",
                b"--",
                Faults {
                    hands: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::DoneIsFinal],
    ),
    (
        Scenario {
            flaw: Flaw::HookLies,
            on_fail: &[Unknown],
            besides: &[Promise::OneEffect],
            ..Scenario::new(
                "hook lies",
                b"hh",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::OneEffect],
    ),
    (
        Scenario {
            flaw: Flaw::StaleVerdictsStart,
            on_fail: &[ReleaseCounted, Unknown],
            on_drop: &[Hold, Unknown],
            besides: &[Promise::OneEffect],
            ..Scenario::new(
                "stale verdicts start",
                b"hhh",
                Faults {
                    fails: 1,
                    drops: 1,
                    crashes: 1,
                    zombies: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::FreshVerdict, Promise::OneEffect],
    ),
    (
        Scenario {
            flaw: Flaw::RequestsForgotten,
            on_fail: &[ReleaseCounted],
            ..Scenario::new(
                "requests are forgotten",
                b"-o",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::RequestStays],
    ),
    (
        Scenario {
            flaw: Flaw::FreshUnasked,
            on_fail: &[Release, ReleaseBound],
            ..Scenario::new(
                "every claim is taken for the first of its request",
                b"--o",
                Faults {
                    fails: 2,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::RequestStays],
    ),
    (
        Scenario {
            flaw: Flaw::ReleasesExpire,
            on_fail: &[ReleaseBound],
            ..Scenario::new(
                "every release expires",
                b"-o",
                Faults {
                    fails: 1,
                    ..Faults::NONE
                },
            )
        },
        &[Promise::RequestStays],
    ),
    (
        Scenario {
            flaw: Flaw::AnswersUncompared,
            ..Scenario::new("answers are not compared", b"-o", Faults::NONE)
        },
        &[Promise::OwnAnswers],
    ),
];
