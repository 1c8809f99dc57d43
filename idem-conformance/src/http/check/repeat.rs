//! Repeats of a request whose first answer is there.

use http::Method;

use super::super::answer::Answer;
use super::super::change::Change;
use super::super::finding::{Checked, Finding, failed, need};
use super::super::key::KeyCase;
use super::super::operation::Operation;
use super::super::probe::{Asked, IDEMPOTENCY_KEY, Probe};
use super::super::refusal::Refusal;
use super::kind::{Kind, of_method};

/// Needed to see whether a request was executed.
const COUNTED: &str = "a number of effects (`effects`)";

/// A repeat is answered as the first request was.
pub(super) fn same(first: &Answer, repeat: &Answer) -> Checked {
    if repeat.equals(first) {
        Ok(())
    } else {
        failed(
            format!("the first answer, {}", first.shown()),
            repeat.shown(),
        )
    }
}

/// Whether the second request was executed too, as far as a client can see it.
fn ran_again(first: &Answer, second: &Answer, effects: Option<u64>) -> Checked<bool> {
    if second.is_marked() {
        return Ok(false);
    }
    if !second.equals(first) {
        return Ok(true);
    }
    let effects = effects.ok_or(Finding::NotChecked(
        "an operation that gives each effect an answer of its own, or a number of effects (`effects`)".into(),
    ))?;
    Ok(effects > 1)
}

/// Each was executed.
fn both_ran(first: &Answer, second: &Answer, effects: Option<u64>) -> Checked {
    if !second.is_success() || !ran_again(first, second, effects)? {
        return failed("another success, of a request of its own", second.shown());
    }
    match effects {
        None | Some(2) => Ok(()),
        Some(effects) => failed("two effects", effects.to_string()),
    }
}

fn one_effect(effects: Option<u64>) -> Checked {
    match effects {
        None | Some(1) => Ok(()),
        Some(effects) => failed("one effect", effects.to_string()),
    }
}

pub(super) async fn repeats(probe: &Probe<'_>, kind: Kind) -> Checked {
    let operation = kind.operation(probe)?;
    let asked = probe.asked(operation);
    let first = probe.send(&asked).await?;
    kind.verify(operation, &first)?;
    same(&first, &probe.send(&asked).await?)
}

/// The first answer has no mark, and a repeat has one.
pub(super) async fn marks(probe: &Probe<'_>, kind: Kind) -> Checked {
    let operation = kind.operation(probe)?;
    let asked = probe.asked(operation);
    let first = probe.send(&asked).await?;
    kind.verify(operation, &first)?;
    let repeat = probe.send(&asked).await?;
    if first.is_marked() {
        return failed(
            "a first answer without `idempotent-replayed`",
            first.shown(),
        );
    }
    if repeat.is_marked() {
        Ok(())
    } else {
        failed("`idempotent-replayed: true` of a repeat", repeat.shown())
    }
}

/// A request and three repeats have one effect.
pub(super) async fn one_effect_of_four(probe: &Probe<'_>) -> Checked {
    let before = need(probe.effects().await?, COUNTED)?;
    let asked = probe.usual();
    let first = probe.succeeds(&asked).await?;
    for _ in 0..3 {
        same(&first, &probe.send(&asked).await?)?;
    }
    one_effect(probe.effects_since(Some(before)).await?)
}

/// A repeat is executed again.
pub(super) async fn released(probe: &Probe<'_>, kind: Kind) -> Checked {
    let operation = kind.operation(probe)?;
    let asked = probe.asked(operation);
    let first = probe.send(&asked).await?;
    kind.verify(operation, &first)?;
    let second = probe.send(&asked).await?;
    // An answer of the operation: one that it gives again, or a success.
    let is_of_operation = second.is_success() || second.status == first.status;
    if !second.is_marked() && second.equals(&first) {
        let why = format!(
            "an operation that gives each {} another body",
            kind.phrase()
        );
        return Err(Finding::NotChecked(why.into()));
    }
    if is_of_operation && !second.is_marked() {
        Ok(())
    } else {
        let expected = format!("a new execution after {}", kind.phrase());
        failed(expected, second.shown())
    }
}

/// The corrected request is executed under the key of an invalid one.
pub(super) async fn corrected(probe: &Probe<'_>) -> Checked {
    let operation = Kind::Invalid.operation(probe)?;
    let invalid = probe.asked(operation);
    let first = probe.send(&invalid).await?;
    Kind::Invalid.verify(operation, &first)?;
    let mut corrected = probe.usual();
    corrected.key = invalid.key;
    probe.succeeds(&corrected).await.map(drop)
}

/// The changed request with the key of a first one is refused.
pub(super) async fn conflicts(probe: &Probe<'_>, change: Change, refusal: &Refusal) -> Checked {
    let (first, second) = change.pair(probe)?;
    let before = probe.effects().await?;
    let answer = probe.succeeds(&first).await?;
    let conflict = probe.send(&second).await?;
    refusal.verify(&conflict)?;
    one_effect(probe.effects_since(before).await?)?;
    same(&answer, &probe.send(&first).await?)
}

/// The changed request is the same, and gets the first answer.
pub(super) async fn equal(probe: &Probe<'_>, change: Change) -> Checked {
    let (first, second) = change.pair(probe)?;
    let before = probe.effects().await?;
    let answer = probe.succeeds(&first).await?;
    same(&answer, &probe.send(&second).await?)?;
    one_effect(probe.effects_since(before).await?)
}

/// The changed request is one of its own, and is executed.
pub(super) async fn independent(probe: &Probe<'_>, change: Change) -> Checked {
    let (first, second) = change.pair(probe)?;
    let before = probe.effects().await?;
    let answer = probe.succeeds(&first).await?;
    let other = probe.send(&second).await?;
    let effects = probe.effects_since(before).await?;
    both_ran(&answer, &other, effects)?;
    same(&answer, &probe.send(&first).await?)
}

/// Two requests without a key are two.
pub(super) async fn optional(probe: &Probe<'_>) -> Checked {
    let before = probe.effects().await?;
    let asked = probe.asked_with(&probe.target.operation, KeyCase::Missing);
    let first = probe.succeeds(&asked).await?;
    let second = probe.send(&asked).await?;
    both_ran(&first, &second, probe.effects_since(before).await?)
}

/// A key of another request is another request, though the bodies are equal.
pub(super) async fn other_key(probe: &Probe<'_>) -> Checked {
    let before = probe.effects().await?;
    let asked = probe.usual();
    let first = probe.succeeds(&asked).await?;
    let mut other = asked.clone();
    other.key = probe.place.fresh();
    let second = probe.send(&other).await?;
    both_ran(&first, &second, probe.effects_since(before).await?)
}

/// Requests of this method are protected.
pub(super) async fn protects(probe: &Probe<'_>, method: &Method) -> Checked {
    let asked = probe.asked(of_method(probe, method)?);
    let before = probe.effects().await?;
    let first = probe.succeeds(&asked).await?;
    let repeat = probe.send(&asked).await?;
    same(&first, &repeat)?;
    let effects = probe.effects_since(before).await?;
    if ran_again(&first, &repeat, effects)? {
        return failed("one effect", "a second execution");
    }
    Ok(())
}

/// A key has no effect on requests of this method.
pub(super) async fn ignores(probe: &Probe<'_>, method: &Method) -> Checked {
    if method == Method::GET {
        return ignores_reads(probe).await;
    }
    let asked = probe.asked(of_method(probe, method)?);
    let before = probe.effects().await?;
    let first = probe.succeeds(&asked).await?;
    let second = probe.send(&asked).await?;
    both_ran(&first, &second, probe.effects_since(before).await?)
}

/// A `GET` is answered anew, though its key is that of an earlier one.
async fn ignores_reads(probe: &Probe<'_>) -> Checked {
    let effects = probe.target.effects.as_ref();
    let (operation, pointer) = need(effects, COUNTED)?;
    let asked: Asked = probe.asked(operation);
    let before = probe.counted(&asked, pointer).await?;
    probe.succeeds(&probe.usual()).await?;
    let after = probe.counted(&asked, pointer).await?;
    if after == before {
        return failed("the number of effects after one more", after.to_string());
    }
    Ok(())
}

/// A first answer, a repeat and a refusal have the key in a header.
pub(super) async fn echoes(probe: &Probe<'_>) -> Checked {
    let (first, conflict) = Change::Number.pair(probe)?;
    let mut answers = vec![probe.succeeds(&first).await?];
    for asked in [&first, &conflict] {
        answers.push(probe.send(asked).await?);
    }
    for answer in answers {
        let echo = answer.header(IDEMPOTENCY_KEY.as_str());
        if echo.map(|echo| echo.trim_matches('"')) != Some(&first.key) {
            let got = format!("{} of {}", echo.unwrap_or("none"), answer.shown());
            return failed("the header `idempotency-key` of the request", got);
        }
    }
    Ok(())
}

/// A first request is executed, and its answer has no mark of a replay.
pub(super) async fn accepts(probe: &Probe<'_>, case: KeyCase, operation: &Operation) -> Checked {
    let before = probe.effects().await?;
    let asked = probe.asked_with(operation, case);
    let answer = probe.succeeds(&asked).await?;
    if answer.is_marked() {
        return failed(
            "a first answer without `idempotent-replayed`",
            answer.shown(),
        );
    }
    one_effect(probe.effects_since(before).await?)
}

/// A request with such a key is refused, and not executed.
pub(super) async fn refuses(probe: &Probe<'_>, case: KeyCase, refusal: &Refusal) -> Checked {
    let before = probe.effects().await?;
    let asked = probe.asked_with(&probe.target.operation, case);
    let answer = probe.send(&asked).await?;
    refusal.verify(&answer)?;
    match probe.effects_since(before).await? {
        None | Some(0) => Ok(()),
        Some(effects) => failed("no effect", effects.to_string()),
    }
}

/// While the store of the keys is unreachable, a request is refused, and not executed.
pub(super) async fn refuses_in_outage(probe: &Probe<'_>, refusal: &Refusal) -> Checked {
    let outage = need(
        probe.target.outage.as_ref(),
        "a store that can be made unreachable (`outage`)",
    )?;
    let before = probe.effects().await?;
    outage.call(true).await;
    let answer = probe.send(&probe.usual()).await;
    outage.call(false).await;
    refusal.verify(&answer?)?;
    match probe.effects_since(before).await? {
        None | Some(0) => Ok(()),
        Some(effects) => failed("no effect", effects.to_string()),
    }
}
