//! Payments of x402.

use serde_json::Value;

use super::super::answer::Answer;
use super::super::base64;
use super::super::finding::{Checked, Finding, failed, need};
use super::super::key::KeyCase;
use super::super::probe::{Asked, Probe};
use super::super::refusal::Refusal;
use super::repeat::same;

/// The header of a challenge.
const PAYMENT_REQUIRED: &str = "payment-required";

/// The header of a settlement.
const PAYMENT_RESPONSE: &str = "payment-response";

/// The terms of payment in a challenge.
fn terms(answer: &Answer) -> Option<Value> {
    let header = base64::decode(answer.header(PAYMENT_REQUIRED)?)?;
    serde_json::from_slice(&header).ok()
}

/// The answer to a request without a payment, and its terms.
async fn challenge(probe: &Probe<'_>, asked: &Asked) -> Checked<Value> {
    let mut unpaid = asked.clone();
    unpaid.payment = None;
    let answer = probe.send(&unpaid).await?;
    let terms = terms(&answer).filter(|_| answer.status == 402);
    let is_version = |terms: &Value| terms["x402Version"] == 2 && terms["accepts"].is_array();
    match terms.filter(is_version) {
        Some(terms) => Ok(terms),
        None => failed(
            "402 with `payment-required`, base64 of JSON with `x402Version` 2 and `accepts`",
            answer.shown(),
        ),
    }
}

/// A request without a payment is answered with a challenge, whatever was answered before.
pub(super) async fn challenges(probe: &Probe<'_>) -> Checked {
    let asked = probe.usual();
    challenge(probe, &asked).await?;
    challenge(probe, &asked).await.map(drop)
}

/// A challenge names the extension, and whether it is required.
pub(super) async fn advertises(probe: &Probe<'_>) -> Checked {
    let terms = challenge(probe, &probe.usual()).await?;
    is_required(&terms).map(drop)
}

fn is_required(terms: &Value) -> Checked<bool> {
    let required = &terms["extensions"]["payment-identifier"]["info"]["required"];
    match required.as_bool() {
        Some(required) => Ok(required),
        None => failed(
            "`extensions[\"payment-identifier\"].info.required`",
            terms["extensions"].to_string(),
        ),
    }
}

/// The request that was challenged runs with a payment, and its repeat gets its answer.
pub(super) async fn pays_after_challenge(probe: &Probe<'_>) -> Checked {
    let asked = probe.usual();
    challenge(probe, &asked).await?;
    let paid = probe.succeeds(&asked).await?;
    same(&paid, &probe.send(&asked).await?)
}

/// A server that requires an identifier refuses a payment without one, and another server executes it.
pub(super) async fn requires(probe: &Probe<'_>, refusal: &Refusal) -> Checked {
    let terms = challenge(probe, &probe.usual()).await?;
    if !is_required(&terms)? {
        let why = "a server whose challenge says that an identifier is required";
        return Err(Finding::NotChecked(why.into()));
    }
    let asked = probe.asked_with(&probe.target.operation, KeyCase::Missing);
    refusal.verify(&probe.send(&asked).await?)
}

/// A repeat has the settlement of the first answer.
pub(super) async fn repeats_settlement(probe: &Probe<'_>) -> Checked {
    let asked = probe.usual();
    let first = probe.succeeds(&asked).await?;
    let settled = first.header(PAYMENT_RESPONSE);
    let settled = need(settled, "an answer with `payment-response`")?;
    let repeat = probe.send(&asked).await?;
    if repeat.header(PAYMENT_RESPONSE) == Some(settled) {
        Ok(())
    } else {
        failed("the `payment-response` of the first answer", repeat.shown())
    }
}
