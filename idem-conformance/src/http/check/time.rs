//! The life of keys.

use std::time::Duration;

use super::super::result::{Checked, failed, need};
use super::super::target::ServerHook;
use super::super::tester::Tester;
use super::repeat::{same, unmarked};

fn clock<'t>(tester: &Tester<'t>) -> Checked<(Duration, &'t ServerHook<Duration>)> {
    let clock = tester.target.clock.as_ref();
    let (lifetime, advance) = need(clock, "a clock that can be moved forward (`clock`)")?;
    Ok((*lifetime, advance))
}

/// A repeat after nearly so long gets the first answer.
pub(super) async fn keeps(tester: &Tester<'_>, life: Duration) -> Checked {
    let (_, advance) = clock(tester)?;
    let asked = tester.usual();
    let effects = tester.effects().await?;
    let first = tester.succeeds(&asked).await?;
    advance
        .call(life.saturating_sub(Duration::from_secs(1)))
        .await;
    same(&first, &tester.send(&asked).await?)?;
    effects.are(1).await
}

/// A key whose life is over is free, also for another request.
pub(super) async fn expires(tester: &Tester<'_>) -> Checked {
    let (lifetime, advance) = clock(tester)?;
    let first = tester.usual();
    tester.succeeds(&first).await?;
    advance.call(lifetime).await;
    let mut other = tester.usual();
    other.key = first.key;
    unmarked(&tester.succeeds(&other).await?)
}

/// The lifetime that the catalog advertises.
pub(super) async fn advertised(tester: &Tester<'_>) -> Checked<Duration> {
    let config = tester.target.config.as_ref();
    let config = need(config, "the request of the configuration (`config`)")?;
    let mut asked = tester.usual();
    asked.operation = config.clone();
    let answer = tester.succeeds(&asked).await?;
    let value = answer.member("/idempotency-key-lifetime");
    let life = value.as_ref().and_then(|it| duration(it.as_str()?));
    match life {
        Some(life) if !life.is_zero() => Ok(life),
        _ => failed(
            "`/idempotency-key-lifetime` as a duration of ISO 8601",
            answer.shown(),
        ),
    }
}

pub(super) async fn keeps_as_advertised(tester: &Tester<'_>) -> Checked {
    let life = advertised(tester).await?;
    keeps(tester, life).await
}

/// A duration of ISO 8601 in weeks, days, hours, minutes and seconds.
fn duration(text: &str) -> Option<Duration> {
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, time)) => (days, time),
        None => (text.strip_prefix('P')?, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let days = sum(days, &[('W', 604_800), ('D', 86_400)])?;
    let time = sum(time, &[('H', 3_600), ('M', 60), ('S', 1)])?;
    Some(Duration::from_secs(days.checked_add(time)?))
}

/// Numbers before these letters, each at most once and in their order.
fn sum(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut seconds = 0_u64;
    for (letter, unit) in units {
        if let Some((number, rest)) = text.split_once(*letter) {
            let number: u64 = number.parse().ok()?;
            seconds = seconds.checked_add(number.checked_mul(*unit)?)?;
            text = rest;
        }
    }
    text.is_empty().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_iso_8601() {
        for (text, seconds) in [
            ("PT30M", Some(1_800)),
            ("PT24H", Some(86_400)),
            ("P1DT1S", Some(86_401)),
            ("P1W", Some(604_800)),
            ("P", None),
            ("30M", None),
            ("PT", None),
            ("PT1M1H", None),
            ("PT1.5H", None),
        ] {
            assert_eq!(duration(text).map(|it| it.as_secs()), seconds, "{text}");
        }
    }
}
