//! The life of keys.

use std::time::Duration;

use super::super::finding::{Checked, failed, need};
use super::super::probe::Probe;
use super::super::target::Hook;
use super::repeat::same;

fn clock<'t>(probe: &Probe<'t>) -> Checked<(Duration, &'t Hook<Duration>)> {
    let clock = probe.target.clock.as_ref();
    let (lifetime, advance) = need(clock, "a clock that can be moved forward (`clock`)")?;
    Ok((*lifetime, advance))
}

/// A repeat after nearly so long gets the first answer.
pub(super) async fn keeps(probe: &Probe<'_>, life: Duration) -> Checked {
    let (_, advance) = clock(probe)?;
    let asked = probe.usual();
    let before = probe.effects().await?;
    let first = probe.succeeds(&asked).await?;
    advance
        .call(life.saturating_sub(Duration::from_secs(1)))
        .await;
    same(&first, &probe.send(&asked).await?)?;
    match probe.effects_since(before).await? {
        None | Some(1) => Ok(()),
        Some(effects) => failed("one effect", effects.to_string()),
    }
}

/// After its life a key is that of a new request, also of another one.
pub(super) async fn expires(probe: &Probe<'_>) -> Checked {
    let (lifetime, advance) = clock(probe)?;
    let first = probe.usual();
    probe.succeeds(&first).await?;
    advance.call(lifetime).await;
    let mut other = probe.usual();
    other.key = first.key;
    let answer = probe.succeeds(&other).await?;
    if answer.is_marked() {
        return failed("a new request after the life of its key", answer.shown());
    }
    Ok(())
}

/// The lifetime that the catalog advertises.
pub(super) async fn advertised(probe: &Probe<'_>) -> Checked<Duration> {
    let config = probe.target.config.as_ref();
    let config = need(config, "the request of the configuration (`config`)")?;
    let mut asked = probe.usual();
    asked.operation = config.clone();
    let answer = probe.succeeds(&asked).await?;
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

pub(super) async fn keeps_as_advertised(probe: &Probe<'_>) -> Checked {
    let life = advertised(probe).await?;
    keeps(probe, life).await
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
