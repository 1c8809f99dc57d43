//! Repeats of a request whose first answer is there.

use http::Method;

use super::super::change::Change;
use super::super::key::KeyCase;
use super::super::operation::Operation;
use super::super::refusal::RefusalShape;
use super::super::response::ServerResponse;
use super::super::result::{Checked, RowResult, failed, need};
use super::super::tester::{Asked, IDEMPOTENCY_KEY, Tester};
use super::kind::{AnswerKind, of_method};

/// Needed to see whether a request was executed.
const COUNTED: &str = "a number of effects (`effects`)";

/// A repeat is answered as the first request was.
pub(super) fn same(first: &ServerResponse, repeat: &ServerResponse) -> Checked {
    if repeat.equals(first) {
        Ok(())
    } else {
        failed(
            format!("the first answer, {}", first.shown()),
            repeat.shown(),
        )
    }
}

/// The answer of an execution has no mark of a replay.
pub(super) fn unmarked(answer: &ServerResponse) -> Checked {
    if answer.is_marked() {
        return failed(
            "a first answer without `idempotent-replayed`",
            answer.shown(),
        );
    }
    Ok(())
}

/// Whether the second request was executed, as far as clients can see.
fn ran_again(
    first: &ServerResponse,
    second: &ServerResponse,
    effects: Option<u64>,
) -> Checked<bool> {
    if second.is_marked() {
        return Ok(false);
    }
    if !second.equals(first) {
        return Ok(true);
    }
    let effects = effects.ok_or(RowResult::NotChecked(
        "an operation that gives each effect an answer of its own, or a number of effects (`effects`)".into(),
    ))?;
    Ok(effects > 1)
}

/// Two requests are executed. The answer to the first one.
async fn both_run(tester: &Tester<'_>, first: &Asked, second: &Asked) -> Checked<ServerResponse> {
    let effects = tester.effects().await?;
    let answer = tester.succeeds(first).await?;
    let other = tester.send(second).await?;
    let number = effects.number().await?;
    if !other.is_success() || !ran_again(&answer, &other, number)? {
        return failed("another success, of a request of its own", other.shown());
    }
    match number {
        None | Some(2) => Ok(answer),
        Some(number) => failed("effects: 2", number.to_string()),
    }
}

/// A request for an operation of this kind, and its answer.
async fn first(tester: &Tester<'_>, kind: AnswerKind) -> Checked<(Asked, ServerResponse)> {
    let operation = kind.operation(tester)?;
    let asked = tester.asked(operation);
    let answer = tester.send(&asked).await?;
    kind.verify(operation, &answer)?;
    Ok((asked, answer))
}

pub(super) async fn repeats(tester: &Tester<'_>, kind: AnswerKind) -> Checked {
    let (asked, first) = first(tester, kind).await?;
    same(&first, &tester.send(&asked).await?)
}

/// The first answer has no mark, and a repeat has one.
pub(super) async fn marks(tester: &Tester<'_>, kind: AnswerKind) -> Checked {
    let (asked, first) = first(tester, kind).await?;
    unmarked(&first)?;
    let repeat = tester.send(&asked).await?;
    if repeat.is_marked() {
        Ok(())
    } else {
        failed("`idempotent-replayed: true` of a repeat", repeat.shown())
    }
}

/// A request and three repeats have one effect.
pub(super) async fn one_effect_of_four(tester: &Tester<'_>) -> Checked {
    need(tester.target.effects.as_ref(), COUNTED)?;
    let effects = tester.effects().await?;
    let asked = tester.usual();
    let first = tester.succeeds(&asked).await?;
    for _ in 0..3 {
        same(&first, &tester.send(&asked).await?)?;
    }
    effects.are(1).await
}

/// A repeat is executed again.
pub(super) async fn released(tester: &Tester<'_>, kind: AnswerKind) -> Checked {
    let (asked, first) = first(tester, kind).await?;
    let second = tester.send(&asked).await?;
    if !second.is_marked() && second.equals(&first) {
        let why = format!(
            "an operation that gives each {} another body",
            kind.phrase()
        );
        return Err(RowResult::NotChecked(why.into()));
    }
    // An answer of the operation: a repeated one, or a success.
    let is_of_operation = second.is_success() || second.status == first.status;
    if is_of_operation && !second.is_marked() {
        Ok(())
    } else {
        let expected = format!("a new execution after {}", kind.phrase());
        failed(expected, second.shown())
    }
}

/// The corrected request is executed under the key of an invalid one.
pub(super) async fn corrected(tester: &Tester<'_>) -> Checked {
    let (invalid, _) = first(tester, AnswerKind::Invalid).await?;
    let mut corrected = tester.usual();
    corrected.key = invalid.key;
    tester.succeeds(&corrected).await.map(drop)
}

/// The changed request with the key of a first one is refused.
pub(super) async fn conflicts(
    tester: &Tester<'_>,
    change: Change,
    refusal: &RefusalShape,
) -> Checked {
    let (first, second) = change.pair(tester)?;
    let effects = tester.effects().await?;
    let answer = tester.succeeds(&first).await?;
    refusal.verify(&tester.send(&second).await?)?;
    effects.are(1).await?;
    same(&answer, &tester.send(&first).await?)
}

/// The changed request is the same, and gets the first answer.
pub(super) async fn equal(tester: &Tester<'_>, change: Change) -> Checked {
    let (first, second) = change.pair(tester)?;
    let effects = tester.effects().await?;
    let answer = tester.succeeds(&first).await?;
    same(&answer, &tester.send(&second).await?)?;
    effects.are(1).await
}

/// The changed request is one of its own, and is executed.
pub(super) async fn independent(tester: &Tester<'_>, change: Change) -> Checked {
    let (first, second) = change.pair(tester)?;
    let answer = both_run(tester, &first, &second).await?;
    same(&answer, &tester.send(&first).await?)
}

/// Two requests without a key are two.
pub(super) async fn optional(tester: &Tester<'_>) -> Checked {
    let asked = tester.asked_with(&tester.target.operation, KeyCase::Missing);
    both_run(tester, &asked, &asked).await.map(drop)
}

/// A request with another key is another one, though bodies are equal.
pub(super) async fn other_key(tester: &Tester<'_>) -> Checked {
    let asked = tester.usual();
    let mut other = asked.clone();
    other.key = tester.place.fresh();
    both_run(tester, &asked, &other).await.map(drop)
}

/// Requests of this method are protected.
pub(super) async fn protects(tester: &Tester<'_>, method: &Method) -> Checked {
    let asked = tester.asked(of_method(tester, method)?);
    let effects = tester.effects().await?;
    let first = tester.succeeds(&asked).await?;
    let repeat = tester.send(&asked).await?;
    same(&first, &repeat)?;
    if ran_again(&first, &repeat, effects.number().await?)? {
        return failed("one effect", "a second execution");
    }
    Ok(())
}

/// A key has no effect on requests of this method.
pub(super) async fn ignores(tester: &Tester<'_>, method: &Method) -> Checked {
    if method == Method::GET {
        return ignores_reads(tester).await;
    }
    let asked = tester.asked(of_method(tester, method)?);
    both_run(tester, &asked, &asked).await.map(drop)
}

/// A `GET` is answered anew in spite of an earlier request's key.
async fn ignores_reads(tester: &Tester<'_>) -> Checked {
    let effects = tester.target.effects.as_ref();
    let (operation, pointer) = need(effects, COUNTED)?;
    let asked = tester.asked(operation);
    let before = tester.counted(&asked, pointer).await?;
    tester.succeeds(&tester.usual()).await?;
    let after = tester.counted(&asked, pointer).await?;
    if after == before {
        return failed("the number of effects after one more", after.to_string());
    }
    Ok(())
}

/// First answer, repeat and refusal have the key in a header.
pub(super) async fn echoes(tester: &Tester<'_>) -> Checked {
    let (first, conflict) = Change::Number.pair(tester)?;
    let mut answers = vec![tester.succeeds(&first).await?];
    for asked in [&first, &conflict] {
        answers.push(tester.send(asked).await?);
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

/// A first request is executed; its answer is not marked as replayed.
pub(super) async fn accepts(tester: &Tester<'_>, case: KeyCase, operation: &Operation) -> Checked {
    let effects = tester.effects().await?;
    unmarked(&tester.succeeds(&tester.asked_with(operation, case)).await?)?;
    effects.are(1).await
}

/// A request with such a key is refused, and not executed.
pub(super) async fn refuses(tester: &Tester<'_>, case: KeyCase, refusal: &RefusalShape) -> Checked {
    let effects = tester.effects().await?;
    let asked = tester.asked_with(&tester.target.operation, case);
    refusal.verify(&tester.send(&asked).await?)?;
    effects.are(0).await
}

/// While the keys' store is unreachable, requests are refused, not executed.
pub(super) async fn refuses_in_outage(tester: &Tester<'_>, refusal: &RefusalShape) -> Checked {
    let outage = tester.target.outage.as_ref();
    let outage = need(outage, "a store that can be made unreachable (`outage`)")?;
    let effects = tester.effects().await?;
    outage.call(true).await;
    let answer = tester.send(&tester.usual()).await;
    outage.call(false).await;
    refusal.verify(&answer?)?;
    effects.are(0).await
}
