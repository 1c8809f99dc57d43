//! Payments of x402.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

use super::super::key::KeyCase;
use super::super::refusal::RefusalShape;
use super::super::response::ServerResponse;
use super::super::result::{Checked, RowResult, failed, need};
use super::super::tester::{Asked, Tester};
use super::repeat::same;

/// The header of a challenge.
const PAYMENT_REQUIRED: &str = "payment-required";

/// The header of a settlement.
const PAYMENT_RESPONSE: &str = "payment-response";

/// The terms of payment in a challenge.
fn terms(answer: &ServerResponse) -> Option<Value> {
    let header = answer.header(PAYMENT_REQUIRED)?.trim_end_matches('=');
    let document = STANDARD_NO_PAD.decode(header).ok()?;
    serde_json::from_slice(&document).ok()
}

/// The answer to a request without a payment, and its terms.
async fn challenge(tester: &Tester<'_>, asked: &Asked) -> Checked<Value> {
    let mut unpaid = asked.clone();
    unpaid.payment = None;
    let answer = tester.send(&unpaid).await?;
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

/// A request without a payment gets a challenge, regardless of earlier answers.
pub(super) async fn challenges(tester: &Tester<'_>) -> Checked {
    let asked = tester.usual();
    challenge(tester, &asked).await?;
    challenge(tester, &asked).await.map(drop)
}

/// A challenge names the extension, and whether it is required.
pub(super) async fn advertises(tester: &Tester<'_>) -> Checked {
    let terms = challenge(tester, &tester.usual()).await?;
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

/// The challenged request runs with a payment; its repeat gets its answer.
pub(super) async fn pays_after_challenge(tester: &Tester<'_>) -> Checked {
    let asked = tester.usual();
    challenge(tester, &asked).await?;
    let paid = tester.succeeds(&asked).await?;
    same(&paid, &tester.send(&asked).await?)
}

/// A server that requires an identifier refuses a payment without one. Another server executes it.
pub(super) async fn requires(tester: &Tester<'_>, refusal: &RefusalShape) -> Checked {
    let terms = challenge(tester, &tester.usual()).await?;
    if !is_required(&terms)? {
        let why = "a server whose challenge says that an identifier is required";
        return Err(RowResult::NotChecked(why.into()));
    }
    let asked = tester.asked_with(&tester.target.operation, KeyCase::Missing);
    refusal.verify(&tester.send(&asked).await?)
}

/// A repeat has the settlement of the first answer.
pub(super) async fn repeats_settlement(tester: &Tester<'_>) -> Checked {
    let asked = tester.usual();
    let first = tester.succeeds(&asked).await?;
    let settled = first.header(PAYMENT_RESPONSE);
    let settled = need(settled, "an answer with `payment-response`")?;
    let repeat = tester.send(&asked).await?;
    if repeat.header(PAYMENT_RESPONSE) == Some(settled) {
        Ok(())
    } else {
        failed("the `payment-response` of the first answer", repeat.shown())
    }
}
