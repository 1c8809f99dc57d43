//! The tests of the tables, each a function of what a row sets.

mod kind;
mod payment;
mod repeat;
mod running;
mod time;

use std::borrow::Cow;
use std::time::Duration;

use http::Method;

pub(super) use self::kind::Kind;
use super::change::Change;
use super::finding::{Checked, Finding};
use super::key::KeyCase;
use super::probe::Probe;
use super::refusal::Refusal;

/// A test.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// A request with such a key is executed.
    Accepts(KeyCase),
    /// A request without a body is executed.
    AcceptsEmptyBody,
    /// A request with such a key is refused.
    Refuses(KeyCase, Refusal),
    /// A repeat gets the first answer.
    Repeats(Kind),
    /// A repeat is marked as a replay.
    Marks(Kind),
    /// A request and three repeats have one effect.
    OneEffect,
    /// A repeat is executed again.
    Released(Kind),
    /// The key of an invalid request is free for the corrected one.
    Corrected,
    /// The changed request is refused.
    Conflicts(Change, Refusal),
    /// The changed request is the same.
    Equal(Change),
    /// The changed request is one of its own.
    Independent(Change),
    /// A request with another key is one of its own.
    OtherKey,
    /// Requests without a key are executed.
    Optional,
    /// Requests of this method are protected.
    Protects(Method),
    /// Requests of this method are not.
    Ignores(Method),
    /// Responses have the key.
    Echoes,
    /// Of two requests at once the later one is refused.
    Running(Refusal),
    /// Of two requests at once the later one waits or is refused.
    RunningOrWait(Refusal),
    /// The answer of two requests at once is that of repeats.
    AfterRunning,
    /// Answers are kept so long.
    Keeps(Duration),
    /// Keys are free after their life.
    Expires,
    /// Requests are refused while the store is unreachable.
    Outage(Refusal),
    /// A request without a payment is challenged.
    Challenges,
    /// A challenge names the extension of identifiers.
    Advertises,
    /// A challenged request runs with its payment.
    PaysAfterChallenge,
    /// A payment without an identifier is refused where one is required.
    Requires(Refusal),
    /// A repeat has the settlement.
    RepeatsSettlement,
    /// A catalog advertises the life of its keys.
    Lifetime,
    /// A catalog keeps its answers as long as it advertises.
    KeepsLifetime,
    /// No client can see it.
    Unseen(&'static str),
    /// No layer of idem does it.
    CannotBeMet(&'static str),
}

impl Check {
    pub(super) async fn run(&self, probe: &Probe<'_>) -> Finding {
        match self.checked(probe).await {
            Ok(()) => Finding::Passed,
            Err(finding) => finding,
        }
    }

    async fn checked(&self, probe: &Probe<'_>) -> Checked {
        match self {
            Self::Accepts(case) => repeat::accepts(probe, *case, &probe.target.operation).await,
            Self::AcceptsEmptyBody => {
                let mut operation = probe.target.operation.clone();
                operation.body.clear();
                repeat::accepts(probe, KeyCase::Valid, &operation).await
            }
            Self::Refuses(case, refusal) => repeat::refuses(probe, *case, refusal).await,
            Self::Repeats(kind) => repeat::repeats(probe, *kind).await,
            Self::Marks(kind) => repeat::marks(probe, *kind).await,
            Self::OneEffect => repeat::one_effect_of_four(probe).await,
            Self::Released(kind) => repeat::released(probe, *kind).await,
            Self::Corrected => repeat::corrected(probe).await,
            Self::Conflicts(change, refusal) => repeat::conflicts(probe, *change, refusal).await,
            Self::Equal(change) => repeat::equal(probe, *change).await,
            Self::Independent(change) => repeat::independent(probe, *change).await,
            Self::OtherKey => repeat::other_key(probe).await,
            Self::Optional => repeat::optional(probe).await,
            Self::Protects(method) => repeat::protects(probe, method).await,
            Self::Ignores(method) => repeat::ignores(probe, method).await,
            Self::Echoes => repeat::echoes(probe).await,
            Self::Running(refusal) => running::refuses(probe, refusal).await,
            Self::RunningOrWait(refusal) => running::waits_or_refuses(probe, refusal).await,
            Self::AfterRunning => running::leaves_the_answer(probe).await,
            Self::Keeps(life) => time::keeps(probe, *life).await,
            Self::Expires => time::expires(probe).await,
            Self::Outage(refusal) => repeat::refuses_in_outage(probe, refusal).await,
            Self::Challenges => payment::challenges(probe).await,
            Self::Advertises => payment::advertises(probe).await,
            Self::PaysAfterChallenge => payment::pays_after_challenge(probe).await,
            Self::Requires(refusal) => payment::requires(probe, refusal).await,
            Self::RepeatsSettlement => payment::repeats_settlement(probe).await,
            Self::Lifetime => time::advertised(probe).await.map(drop),
            Self::KeepsLifetime => time::keeps_as_advertised(probe).await,
            Self::Unseen(why) => Err(Finding::NotChecked(Cow::Borrowed(why))),
            Self::CannotBeMet(why) => Err(Finding::CannotBeMet(why)),
        }
    }

    /// The test in words, for a table.
    pub(super) fn phrase(&self) -> String {
        match self {
            Self::Accepts(case) => format!("a request with {} is executed", case.phrase()),
            Self::AcceptsEmptyBody => "a request without a body is executed".to_owned(),
            Self::Refuses(case, refusal) => {
                format!("a request with {} gets {}", case.phrase(), refusal.phrase())
            }
            Self::Repeats(kind) => format!("a repeat of {} gets the first answer", kind.phrase()),
            Self::Marks(kind) => format!(
                "a repeat of {} has `Idempotent-Replayed: true`",
                kind.phrase()
            ),
            Self::OneEffect => "a request and three repeats have one effect".to_owned(),
            Self::Released(kind) => format!("a repeat after {} is executed", kind.phrase()),
            Self::Corrected => {
                "a corrected request is executed under the key of an invalid one".to_owned()
            }
            Self::Conflicts(change, refusal) => {
                format!("the key with {} gets {}", change.phrase(), refusal.phrase())
            }
            Self::Equal(change) => {
                format!("the key with {} gets the first answer", change.phrase())
            }
            Self::Independent(change) => {
                format!("the key with {} is a request of its own", change.phrase())
            }
            Self::OtherKey => "another key with the same body is a request of its own".to_owned(),
            Self::Optional => "two requests without a key are executed".to_owned(),
            Self::Protects(method) => format!("a repeat of a {method} gets the first answer"),
            Self::Ignores(method) => {
                format!("a {method} with the key of an earlier one is executed")
            }
            Self::Echoes => "a first answer, a repeat and a refusal have the key".to_owned(),
            Self::Running(refusal) => {
                format!("of two requests at once one gets {}", refusal.phrase())
            }
            Self::RunningOrWait(refusal) => format!(
                "of two requests at once one gets the other's answer, or {}",
                refusal.phrase()
            ),
            Self::AfterRunning => {
                "a repeat after two requests at once gets the answer of the one executed".to_owned()
            }
            Self::Keeps(life) => format!(
                "a repeat after {} h gets the first answer",
                life.as_secs() / 3_600
            ),
            Self::Expires => "another request is executed under an expired key".to_owned(),
            Self::Outage(refusal) => {
                format!(
                    "a request while the store is unreachable gets {}",
                    refusal.phrase()
                )
            }
            Self::Challenges => "two requests without a payment get 402 and its terms".to_owned(),
            Self::Advertises => "a 402 names the extension `payment-identifier`".to_owned(),
            Self::PaysAfterChallenge => {
                "a request that got 402 is executed with a payment, once".to_owned()
            }
            Self::Requires(refusal) => {
                format!("a payment without an identifier gets {}", refusal.phrase())
            }
            Self::RepeatsSettlement => "a repeat has the first `PAYMENT-RESPONSE`".to_owned(),
            Self::Lifetime => {
                "the configuration has `idempotency-key-lifetime` in ISO 8601".to_owned()
            }
            Self::KeepsLifetime => {
                "a repeat at the end of the advertised time gets the first answer".to_owned()
            }
            Self::Unseen(_) | Self::CannotBeMet(_) => "–".to_owned(),
        }
    }
}
