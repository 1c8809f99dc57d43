//! The tests of the tables: functions of a row's settings.

mod kind;
mod payment;
mod repeat;
mod running;
mod time;

use std::borrow::Cow;
use std::time::Duration;

use http::Method;

pub(super) use self::kind::AnswerKind;
use super::change::Change;
use super::key::KeyCase;
use super::refusal::RefusalShape;
use super::result::{Checked, RowResult};
use super::tester::Tester;

/// A test.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// A request with such a key is executed.
    Accepts(KeyCase),
    /// A request without a body is executed.
    AcceptsEmptyBody,
    /// A request with such a key is refused.
    Refuses(KeyCase, RefusalShape),
    /// A repeat gets the first answer.
    Repeats(AnswerKind),
    /// A repeat is marked as a replay.
    Marks(AnswerKind),
    /// A request and three repeats have one effect.
    OneEffect,
    /// A repeat is executed again.
    Released(AnswerKind),
    /// The key of an invalid request is free for the corrected one.
    Corrected,
    /// The changed request is refused.
    Conflicts(Change, RefusalShape),
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
    Running(RefusalShape),
    /// Of two requests at once the later one waits or is refused.
    RunningOrWait(RefusalShape),
    /// A repeat is refused while the first answer is streamed.
    Streaming(RefusalShape),
    /// The answer of two requests at once is that of repeats.
    AfterRunning,
    /// Answers are kept so long.
    Keeps(Duration),
    /// Keys are free after their life.
    Expires,
    /// Requests are refused while the store is unreachable.
    Outage(RefusalShape),
    /// A request without a payment is challenged.
    Challenges,
    /// A challenge names the extension of identifiers.
    Advertises,
    /// A challenged request runs with its payment.
    PaysAfterChallenge,
    /// A payment without an identifier is refused where one is required.
    Requires(RefusalShape),
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
    pub(super) async fn run(&self, tester: &Tester<'_>) -> RowResult {
        match self.checked(tester).await {
            Ok(()) => RowResult::Passed,
            Err(result) => result,
        }
    }

    async fn checked(&self, tester: &Tester<'_>) -> Checked {
        match self {
            Self::Accepts(case) => repeat::accepts(tester, *case, &tester.target.operation).await,
            Self::AcceptsEmptyBody => {
                let mut operation = tester.target.operation.clone();
                operation.body.clear();
                repeat::accepts(tester, KeyCase::Valid, &operation).await
            }
            Self::Refuses(case, refusal) => repeat::refuses(tester, *case, refusal).await,
            Self::Repeats(kind) => repeat::repeats(tester, *kind).await,
            Self::Marks(kind) => repeat::marks(tester, *kind).await,
            Self::OneEffect => repeat::one_effect_of_four(tester).await,
            Self::Released(kind) => repeat::released(tester, *kind).await,
            Self::Corrected => repeat::corrected(tester).await,
            Self::Conflicts(change, refusal) => repeat::conflicts(tester, *change, refusal).await,
            Self::Equal(change) => repeat::equal(tester, *change).await,
            Self::Independent(change) => repeat::independent(tester, *change).await,
            Self::OtherKey => repeat::other_key(tester).await,
            Self::Optional => repeat::optional(tester).await,
            Self::Protects(method) => repeat::protects(tester, method).await,
            Self::Ignores(method) => repeat::ignores(tester, method).await,
            Self::Echoes => repeat::echoes(tester).await,
            Self::Running(refusal) => running::refuses(tester, refusal).await,
            Self::RunningOrWait(refusal) => running::waits_or_refuses(tester, refusal).await,
            Self::Streaming(refusal) => running::refuses_while_streaming(tester, refusal).await,
            Self::AfterRunning => running::leaves_the_answer(tester).await,
            Self::Keeps(life) => time::keeps(tester, *life).await,
            Self::Expires => time::expires(tester).await,
            Self::Outage(refusal) => repeat::refuses_in_outage(tester, refusal).await,
            Self::Challenges => payment::challenges(tester).await,
            Self::Advertises => payment::advertises(tester).await,
            Self::PaysAfterChallenge => payment::pays_after_challenge(tester).await,
            Self::Requires(refusal) => payment::requires(tester, refusal).await,
            Self::RepeatsSettlement => payment::repeats_settlement(tester).await,
            Self::Lifetime => time::advertised(tester).await.map(drop),
            Self::KeepsLifetime => time::keeps_as_advertised(tester).await,
            Self::Unseen(why) => Err(RowResult::NotChecked(Cow::Borrowed(why))),
            Self::CannotBeMet(why) => Err(RowResult::CannotBeMet(why)),
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
            Self::Streaming(refusal) => format!(
                "a repeat while the first answer is streamed gets {}",
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
