//! The explorations.

use crate::promise::Promise::{
    self, AnswersEndIt, AttemptsEnd, DoneIsFinal, EqualAnswers, EqualSteps, FencesGrow,
    FreshVerdict, GoneIsGone, OnceIsOnce, OneClaim, OneEffect, OwnAnswers, OwnSteps, RequestStays,
    StepsAreHandedOver, StepsRunNoMore, StepsStay, UnknownWaits,
};
use crate::scenario::Fate::{Hold, Keep, Release, ReleaseBound, ReleaseCounted, Unknown};
use crate::scenario::Part::{Asked, Once, Plain};
use crate::scenario::{Faults, Flaw, Scenario};
use crate::store::Resolution;
use crate::world::BY_HAND;

/// A scenario with name, callers, limits of events, and its differences.
macro_rules! scenario {
    ($plain:path, $name:literal, $callers:literal, [$($fault:ident $times:literal),*], $($differs:tt)*) => {
        Scenario { $($differs)* ..$plain($name, $callers, Faults { $($fault: $times,)* ..Faults::NONE }) }
    };
}

macro_rules! sound {
    ($plain:path: $($name:literal $callers:literal $faults:tt $({ $($differs:tt)* })?;)*) => {
        &[$(scenario!($plain, $name, $callers, $faults, $($($differs)*)?)),*]
    };
}

/// Scenarios with a flaw, and the promises that each breaks.
macro_rules! flawed {
    ($plain:path: $(
        $flaw:ident $name:literal $callers:literal $faults:tt $({ $($differs:tt)* })? => $($breaks:ident),*;
    )*) => {
        &[$((
            scenario!($plain, $name, $callers, $faults, flaw: Flaw::$flaw, $($($differs)*)?),
            &[$($breaks),*],
        )),*]
    };
}

/// A body that charges and then sends a mail. Each step is recorded when it ends. A step that runs once, or is asked
/// about, is recorded when it begins as well.
const fn with_steps(name: &'static str, callers: &'static [u8], faults: Faults) -> Scenario {
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

/// The sound scenarios, in which every promise has to hold. A single effect is promised where each attempt that
/// may have had it is reconciled, or is the only one: not where errors are released, nor where a caller without
/// a hook runs the body of a crashed attempt again.
pub(crate) const SOUND: &[Scenario] = sound! {
    Scenario::new:
    "lost, late, twice" b"---" [lost 1, twice 1, late 1];
    "errors" b"---" [lost 1, late 1, fails 1] { on_fail: &[Release, Keep], };
    "crash, zombie" b"---" [fails 1, crashes 1, zombies 1, renewals 1] { on_fail: &[Keep], };
    "drop" b"--h" [late 1, drops 1, zombies 1] { on_drop: &[Hold, Release, Unknown], };
    "everything" b"-h" [lost 1, twice 1, late 1, fails 1, drops 1, crashes 1, zombies 1]
        { on_fail: &[Release, ReleaseCounted, Keep, Unknown], on_drop: &[Hold, Release, Unknown], };
    "one attempt" b"---" [lost 1, late 1, fails 1, crashes 1, zombies 1]
        { max_attempts: Some(1), on_fail: &[Keep, ReleaseCounted, Unknown], besides: &[AttemptsEnd, OneEffect], };
    "hook, two attempts" b"hhh" [late 1, fails 1, crashes 1, zombies 1]
        { max_attempts: Some(2), on_fail: &[ReleaseCounted, Unknown], on_drop: &[Unknown],
        besides: &[AttemptsEnd, OneEffect], };
    "hook" b"hhh" [fails 1, drops 1, crashes 1, zombies 1]
        { on_fail: &[ReleaseCounted, Unknown], on_drop: &[Hold, Unknown], besides: &[OneEffect], };
    "a hook here and there" b"-hh" [lost 1, fails 1, drops 1, zombies 1] { on_fail: &[Unknown], on_drop: &[Hold], };
    "another request" b"-o-" [late 1, fails 1, zombies 1]
        { on_fail: &[Release, ReleaseBound, ReleaseCounted, Keep, Unknown], };
    "another request, twice" b"-o" [lost 1, twice 1, late 1, fails 2, drops 1, zombies 1, renewals 1]
        { on_fail: &[Release, ReleaseBound], on_drop: &[Hold, Release], };
    "another request, hooks" b"hoH" [fails 1, crashes 1, zombies 1] { on_fail: &[Release, Unknown], };
    "another request, by hand" b"-o-" [fails 1, zombies 2, hands 1] { on_fail: &[Release], };
    "by hand" b"-h" [twice 1, late 1, fails 1, zombies 1, hands 1] { on_fail: &[Unknown], };
};

/// The flawed scenarios that must be found, and their broken promises.
pub(crate) const FLAWED: &[(Scenario, &[Promise])] = flawed! {
    Scenario::new:
    OwnersUnchecked "owners unchecked" b"--" [fails 1, zombies 1] { on_fail: &[Keep], } => EqualAnswers, OneClaim;
    OffersReplace "plain claims replace" b"--" [] { offers: true, rounds: 1, } => OneClaim, FencesGrow;
    UnknownIsFree "unknown is free" b"--" [fails 1]
        { on_fail: &[Unknown], besides: &[OneEffect], } => UnknownWaits, OneEffect;
    LapsedFindingOutIsFree "lapsed finding out is free" b"--h" [fails 1, crashes 1]
        { on_fail: &[Unknown], } => UnknownWaits;
    FindingOutGivenBackIsFree "finding out given back is free" b"--h" [fails 1, drops 1]
        { on_fail: &[Unknown], on_drop: &[Unknown], } => UnknownWaits;
    GivenBackIsGranted "given back is granted" b"--" [twice 1, late 1] => GoneIsGone;
    AnswersAreHealed "answers are healed" b"--" [zombies 1] => EqualAnswers, DoneIsFinal;
    AnswersAreFree "answers are free" b"--" []
        { besides: &[OneEffect], } => EqualAnswers, AnswersEndIt, DoneIsFinal, OneEffect;
    FencesForgotten "fences are forgotten" b"--" [crashes 1] => FencesGrow;
    AttemptsForgotten "attempts are forgotten" b"--" [crashes 1]
        { max_attempts: Some(1), besides: &[AttemptsEnd, OneEffect], } => AttemptsEnd, OneEffect;
    ResolvesBlindly "resolves blindly" b"--" [hands 1] => DoneIsFinal;
    HookLies "hook lies" b"hh" [fails 1] { on_fail: &[Unknown], besides: &[OneEffect], } => OneEffect;
    StaleVerdictsStart "stale verdicts start" b"hhh" [fails 1, drops 1, crashes 1, zombies 1]
        { on_fail: &[ReleaseCounted, Unknown], on_drop: &[Hold, Unknown], besides: &[OneEffect], }
        => FreshVerdict, OneEffect;
    RequestsForgotten "requests are forgotten" b"-o" [fails 1] { on_fail: &[ReleaseCounted], } => RequestStays;
    FreshUnasked "every claim is taken for the first of its request" b"--o" [fails 2]
        { on_fail: &[Release, ReleaseBound], } => RequestStays;
    ReleasesExpire "every release expires" b"-o" [fails 1] { on_fail: &[ReleaseBound], } => RequestStays;
    AnswersUncompared "answers are not compared" b"-o" [] => OwnAnswers;
};

/// The same as [`SOUND`], of bodies with steps.
pub(crate) const SOUND_STEPS: &[Scenario] = sound! {
    with_steps:
    "steps: lost, twice, late" b"---" [lost 1, twice 1, late 1];
    "steps: errors" b"---" [lost 1, fails 2];
    "steps: crash, zombie" b"--" [late 1, fails 1, crashes 1, zombies 1] { on_fail: &[Release, ReleaseCounted], };
    "steps: renewals" b"---" [crashes 1, zombies 1, renewals 1];
    "steps: drop" b"--" [late 1, drops 1, zombies 1];
    "steps: late unknown outcomes" b"-hh" [fails 1, drops 1, zombies 1] { on_fail: &[Release], on_drop: &[Unknown], };
    "steps: go on" b"--" [lost 1, late 1, fails 1, zombies 1] { lenient: true, };
    "steps: hooks" b"--" [lost 1, fails 1, crashes 1, zombies 1] { steps: &[Asked, Plain], };
    "steps: a hook of the call" b"-h" [late 1, fails 1, crashes 1, zombies 1] { steps: &[Plain, Asked], };
    "steps: everything" b"--" [late 1, fails 1, drops 1, crashes 1, zombies 1];
    "steps: by hand" b"--" [fails 1, zombies 1, hands 1] { hands: KEEPING, };
};

/// The same as [`FLAWED`], of bodies with steps.
pub(crate) const FLAWED_STEPS: &[(Scenario, &[Promise])] = flawed! {
    with_steps:
    AppendersUnchecked "appenders are not checked" b"--" [zombies 1]
        => StepsRunNoMore, OnceIsOnce, EqualSteps, OwnSteps, StepsStay;
    ShorterJournalsWin "shorter journals win" b"--" [crashes 1, renewals 1]
        => StepsRunNoMore, OnceIsOnce, EqualSteps, StepsAreHandedOver, StepsStay;
    TakeOversForgetSteps "take-overs forget steps" b"--" [crashes 1]
        => StepsRunNoMore, OnceIsOnce, EqualSteps, StepsAreHandedOver, StepsStay;
    VerdictsForgetSteps "verdicts forget steps" b"-h" [crashes 1]
        => StepsRunNoMore, EqualSteps, StepsAreHandedOver, StepsStay;
    ReleasesForgetSteps "releases forget steps" b"--" [fails 1]
        => StepsRunNoMore, OnceIsOnce, EqualSteps, StepsAreHandedOver, StepsStay;
    RenewalsForgetSteps "renewals forget steps" b"--" [renewals 1] => StepsStay;
    UnknownForgetsSteps "unknown outcomes forget steps" b"-h" [fails 1]
        => StepsRunNoMore, EqualSteps, StepsAreHandedOver, StepsStay;
    UnknownBringsItsSteps "unknown outcomes bring their steps" b"-hh" [fails 1, drops 1, zombies 1]
        { on_fail: &[Release], on_drop: &[Unknown], } => StepsRunNoMore, EqualSteps, StepsAreHandedOver, StepsStay;
    ResetsKeepWhatWasSeen "resets keep what was seen" b"--" [crashes 1, hands 1]
        { hands: KEEPING, } => StepsRunNoMore, OnceIsOnce, EqualSteps, StepsAreHandedOver, StepsStay;
    BeginningsUnrecorded "beginnings are not recorded" b"--" [crashes 1] => OnceIsOnce;
    BegunIsRun "begun is run" b"--" [crashes 1] => OnceIsOnce;
};
