//! The explored scenarios: the callers, the faults, and the promises that must hold all the same.

use crate::caller::Phase;
use crate::promise::Promise;
use crate::store::Resolution;
use crate::world::BY_HAND;

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A request or a reply is lost.
    pub(crate) lost: u8,
    /// A command runs twice.
    pub(crate) twice: u8,
    /// A caller gives up while its command is still on its way.
    pub(crate) late: u8,
    /// A body fails, before or after its effect.
    pub(crate) fails: u8,
    /// A caller's future is dropped.
    pub(crate) drops: u8,
    /// A process dies.
    pub(crate) crashes: u8,
    /// A lease is over while its owner goes on.
    pub(crate) zombies: u8,
    /// Not a fault: a renewal, however late.
    pub(crate) renewals: u8,
    /// Not a fault: an operator resets or answers the key by hand.
    pub(crate) hands: u8,
}

/// The fate of a key whose body failed or was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// The error is the answer.
    Keep,
    /// Released because nothing happened: the attempt does not count, and the key takes another request.
    Release,
    /// Released although an effect may remain: the key stays with the request.
    ReleaseBound,
    /// Released by a panic: the attempt counts.
    ReleaseCounted,
    Unknown,
    /// Nothing is sent, and the lease lapses.
    Hold,
}

/// A flaw of the store or the hook. Every one of them has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Completions, releases and renewals of any owner count as the claim owner's.
    OwnersUnchecked,
    /// An unknown outcome is granted as if it were released.
    UnknownIsFree,
    /// A lapsed reconcile is.
    LapsedFindingOutIsFree,
    /// A released reconcile is.
    FindingOutGivenBackIsFree,
    /// A claim that arrives after its own release is granted.
    GivenBackIsGranted,
    /// A late success replaces any answer, not only an unknown one.
    AnswersAreHealed,
    /// A key that has an answer is granted.
    AnswersAreFree,
    /// Claims forget the fence that was reached.
    FencesForgotten,
    /// Claims forget the attempts that were made.
    AttemptsForgotten,
    /// A resolution does not check whether the record is the observed one.
    ResolvesBlindly,
    /// The hook answers that nothing landed without knowing.
    HookLies,
    /// A plain claim replaces a record that has no answer.
    OffersReplace,
    /// A verdict of a hook starts a body, whatever happened since.
    StaleVerdictsStart,
    /// A key whose attempts were abandoned is granted to another request.
    RequestsForgotten,
    /// A caller releases a key as if its request were the first.
    FreshUnasked,
    /// A key that has an answer gives it to another request.
    AnswersUncompared,
    /// The record of every release expires after a lease, even with remains.
    ReleasesExpire,
    /// An append of any owner is taken for the claim owner's.
    AppendersUnchecked,
    /// A journal that arrives late replaces a longer one.
    ShorterJournalsWin,
    /// A claim of another owner begins a new journal.
    TakeOversForgetSteps,
    /// A claim for the body after a reconciliation begins a new journal.
    VerdictsForgetSteps,
    /// A released record has no journal.
    ReleasesForgetSteps,
    /// A renewal writes the record without its journal.
    RenewalsForgetSteps,
    /// An unknown outcome has no journal.
    UnknownForgetsSteps,
    /// An unknown outcome has its attempt's journal, in place of the record's.
    UnknownBringsItsSteps,
    /// A reset keeps the steps that its operator saw, not the record's.
    ResetsKeepWhatWasSeen,
    /// A step that runs once does not record its beginning.
    BeginningsUnrecorded,
    /// A step that runs once is run although it has begun.
    BegunIsRun,
}

/// A step of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is run again if it was interrupted.
    Plain,
    /// It is not.
    Once,
    /// Its hook is asked.
    Asked,
}

/// One exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// A letter per caller: `h` has a reconcile hook, `-` has none; `H` and `o` are the same with another request.
    pub(crate) callers: &'static [u8],
    pub(crate) max_attempts: Option<u16>,
    /// How often a call claims.
    pub(crate) rounds: u8,
    /// Whether a call tries a plain claim without a script first.
    pub(crate) offers: bool,
    /// The steps of every body; none where a body has one effect of its own.
    pub(crate) steps: &'static [Part],
    /// Whether a body goes on without the acknowledgement of a step.
    pub(crate) lenient: bool,
    /// The records that an operator may make.
    pub(crate) hands: &'static [Resolution],
    pub(crate) on_fail: &'static [Fate],
    pub(crate) on_drop: &'static [Fate],
    pub(crate) faults: Faults,
    pub(crate) flaw: Flaw,
    /// What holds only under the conditions of this scenario.
    pub(crate) besides: &'static [Promise],
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        lost: 0,
        twice: 0,
        late: 0,
        fails: 0,
        drops: 0,
        crashes: 0,
        zombies: 0,
        renewals: 0,
        hands: 0,
    };
}

impl Scenario {
    /// Callers that claim twice, count no attempts and leave endings to chance.
    pub(crate) const fn new(name: &'static str, callers: &'static [u8], faults: Faults) -> Self {
        Self {
            name,
            callers,
            max_attempts: None,
            rounds: 2,
            offers: false,
            steps: &[],
            lenient: false,
            hands: &[Resolution::Reset, Resolution::Answer(BY_HAND)],
            on_fail: &[],
            on_drop: &[],
            faults,
            flaw: Flaw::None,
            besides: &[],
        }
    }

    /// The same for calls that first try a claim without a script.
    pub(crate) const fn offering(self) -> Self {
        Self {
            offers: true,
            ..self
        }
    }

    pub(crate) fn has_hook(&self, caller: u8) -> bool {
        matches!(self.callers[usize::from(caller)], b'h' | b'H')
    }

    /// Which of the requests the caller makes.
    pub(crate) fn request(&self, caller: u8) -> usize {
        usize::from(matches!(self.callers[usize::from(caller)], b'H' | b'o'))
    }

    /// Whether callers make different requests.
    pub(crate) fn is_mixed(&self) -> bool {
        let callers = (0..).take(self.callers.len());
        callers.map(|caller| self.request(caller)).sum::<usize>() > 0
    }

    /// How a call begins.
    pub(crate) fn asks(&self) -> Phase {
        if self.offers {
            Phase::Offering
        } else {
            Phase::Asking
        }
    }

    pub(crate) fn promises(&self, promise: Promise) -> bool {
        promise.always() || self.besides.contains(&promise)
    }
}
