//! Two requests with one key at once.

use std::pin::pin;

use tokio::time::timeout;

use super::super::refusal::RefusalShape;
use super::super::response::ServerResponse;
use super::super::result::{Checked, failed, need};
use super::super::tester::{Asked, Tester};
use super::repeat::same;

/// The answers to two requests: the second arrives while the first runs.
async fn two(tester: &Tester<'_>) -> Checked<(Asked, ServerResponse, ServerResponse)> {
    let slow = tester.target.slow.as_ref();
    let slow = need(slow, "an operation that takes a few seconds (`slow`)")?;
    let asked = tester.asked(slow);
    let (one, other) = at_once(tester, &asked).await;
    Ok((asked, one?, other?))
}

async fn at_once(
    tester: &Tester<'_>,
    asked: &Asked,
) -> (Checked<ServerResponse>, Checked<ServerResponse>) {
    let mut first = pin!(tester.send(asked));
    let mut second = pin!(tester.send(asked));
    let Some((after, release)) = &tester.target.release else {
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
fn winner(one: ServerResponse, other: ServerResponse) -> Checked<(ServerResponse, ServerResponse)> {
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
pub(super) async fn refuses(tester: &Tester<'_>, refusal: &RefusalShape) -> Checked {
    let effects = tester.effects().await?;
    let (_, one, other) = two(tester).await?;
    let (_, refused) = winner(one, other)?;
    refusal.verify(&refused)?;
    effects.are(1).await
}

/// One is executed. The other gets its answer, or is refused so.
pub(super) async fn waits_or_refuses(tester: &Tester<'_>, refusal: &RefusalShape) -> Checked {
    let effects = tester.effects().await?;
    let (_, one, other) = two(tester).await?;
    let (won, other) = winner(one, other)?;
    if !other.equals(&won) {
        refusal.verify(&other)?;
    }
    effects.are(1).await
}

/// A repeat is refused while the first answer is streamed.
pub(super) async fn refuses_while_streaming(
    tester: &Tester<'_>,
    refusal: &RefusalShape,
) -> Checked {
    let streamed = tester.target.streamed.as_ref();
    let streamed = need(
        streamed,
        "an operation whose response is a stream (`streamed`)",
    )?;
    let asked = tester.asked(streamed);
    let effects = tester.effects().await?;
    let first = tester.begin(&asked).await?;
    let mut second = pin!(tester.send(&asked));
    let refused = match &tester.target.release {
        None => second.await,
        Some((after, release)) => {
            let early = timeout(*after, &mut second).await;
            release.call(()).await;
            match early {
                Ok(answer) => answer,
                Err(_) => second.await,
            }
        }
    };
    let first = tester.rest(first).await?;
    if !first.is_success() {
        return failed("a success that is streamed", first.shown());
    }
    refusal.verify(&refused?)?;
    effects.are(1).await
}

/// A repeat after both gets the answer of the executed one.
pub(super) async fn leaves_the_answer(tester: &Tester<'_>) -> Checked {
    let (asked, one, other) = two(tester).await?;
    let (won, _) = winner(one, other)?;
    let repeat = tester.send(&asked).await?;
    same(&won, &repeat)
}
