//! Two requests with one key at once.

use std::pin::pin;

use super::super::answer::Answer;
use super::super::finding::{Checked, failed, need};
use super::super::probe::{Asked, Probe};
use super::super::refusal::Refusal;

/// The answers to two requests at once, of which one is running when the other arrives.
async fn two(probe: &Probe<'_>) -> Checked<(Asked, Answer, Answer)> {
    let slow = probe.target.slow.as_ref();
    let slow = need(slow, "an operation that takes a few seconds (`slow`)")?;
    let asked = probe.asked(slow);
    let (one, other) = at_once(probe, &asked).await;
    Ok((asked, one?, other?))
}

async fn at_once(probe: &Probe<'_>, asked: &Asked) -> (Checked<Answer>, Checked<Answer>) {
    let mut first = pin!(probe.send(asked));
    let mut second = pin!(probe.send(asked));
    let Some((after, release)) = &probe.target.release else {
        return tokio::join!(first, second);
    };
    tokio::select! {
        answer = &mut first => {
            release.call(()).await;
            (answer, second.await)
        }
        answer = &mut second => {
            release.call(()).await;
            (answer, first.await)
        }
        // A server that lets the later one wait.
        () = tokio::time::sleep(*after) => {
            release.call(()).await;
            tokio::join!(first, second)
        }
    }
}

/// The success among two answers, and the other one.
fn winner(one: Answer, other: Answer) -> Checked<(Answer, Answer)> {
    match (one.is_success(), other.is_success()) {
        (true, _) => Ok((one, other)),
        (false, true) => Ok((other, one)),
        (false, false) => {
            let got = format!("{} and {}", one.shown(), other.shown());
            failed("a success for one of two requests at once", got)
        }
    }
}

/// One is executed, and the other refused.
pub(super) async fn refuses(probe: &Probe<'_>, refusal: &Refusal) -> Checked {
    let before = probe.effects().await?;
    let (_, one, other) = two(probe).await?;
    let (_, refused) = winner(one, other)?;
    refusal.verify(&refused)?;
    one_effect(probe, before).await
}

/// One is executed, and the other gets its answer, or is refused so.
pub(super) async fn waits_or_refuses(probe: &Probe<'_>, refusal: &Refusal) -> Checked {
    let before = probe.effects().await?;
    let (_, one, other) = two(probe).await?;
    let (won, other) = winner(one, other)?;
    if !other.equals(&won) {
        refusal.verify(&other)?;
    }
    one_effect(probe, before).await
}

/// A repeat after both gets the answer of the one that was executed.
pub(super) async fn leaves_the_answer(probe: &Probe<'_>) -> Checked {
    let (asked, one, other) = two(probe).await?;
    let (won, _) = winner(one, other)?;
    let repeat = probe.send(&asked).await?;
    super::repeat::same(&won, &repeat)
}

async fn one_effect(probe: &Probe<'_>, before: Option<u64>) -> Checked {
    match probe.effects_since(before).await? {
        None | Some(1) => Ok(()),
        Some(effects) => failed("one effect of two requests at once", effects.to_string()),
    }
}
