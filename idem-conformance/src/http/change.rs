//! A second request with a first one's key, and how it differs.

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::json;
use super::operation::NUMBER;
use super::result::{Checked, ELSEWHERE, need};
use super::tester::{Asked, Tester};

/// Needed for changes of an object.
const OBJECT: &str = "an operation whose body is a JSON object";

/// The difference between two requests with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Another number, so that the body (or the path) is another one.
    Number,
    /// A blank within the JSON of the body.
    Blank,
    /// The order of the members of an object.
    MemberOrder,
    /// A number as `1.0` in place of `1`.
    Decimal,
    /// A member that is `null` and was absent.
    NullMember,
    /// A member of an extension.
    ExtraMember,
    /// The order of an array.
    ArrayOrder,
    /// The operation at another path.
    Path,
    /// The credentials.
    Caller,
    /// A header that is none of the specification's.
    Header,
    /// The payment is signed anew, for the same terms.
    Signature,
    /// Other terms of the payment.
    Terms,
    /// The key in capitals.
    Capitals,
}

impl Change {
    /// A request and the changed one.
    pub(super) fn pair(self, tester: &Tester<'_>) -> Checked<(Asked, Asked)> {
        let mut first = tester.usual();
        let mut second = first.clone();
        let number = first.number.to_string();
        let body = first.operation.body.replace(NUMBER, &number);
        let document = || {
            let value = serde_json::from_str::<Value>(&body);
            need(value.ok(), "an operation whose body is JSON")
        };
        match self {
            Self::Number => {
                let has_number = first.operation.has_number().then_some(());
                need(has_number, "an operation with `{number}` in its body")?;
                second.number = tester.number();
            }
            Self::Blank => {
                need(document()?.as_object(), OBJECT)?;
                second.body = Some(body.trim_start().replacen('{', "{ ", 1));
            }
            Self::MemberOrder
            | Self::Decimal
            | Self::NullMember
            | Self::ExtraMember
            | Self::ArrayOrder => {
                let value = document()?;
                first.body = Some(json::ordered(&value, false));
                second.body = Some(self.of_json(value)?);
            }
            Self::Path => {
                let elsewhere = tester.target.elsewhere.clone();
                second.operation = need(elsewhere, ELSEWHERE)?;
            }
            Self::Caller => {
                let other = tester.target.other_caller.clone();
                second.caller = Some(need(other, "another caller (`other_caller`)")?);
            }
            Self::Header => {
                let name = HeaderName::from_static("x-conformance");
                let value = HeaderValue::from_static("another");
                second.operation = second.operation.header(name, value);
            }
            Self::Signature => second.payment = Some(tester.number()),
            Self::Terms => second.other_terms = true,
            Self::Capitals => second.key = second.key.to_uppercase(),
        }
        Ok((first, second))
    }

    /// The text of a changed document.
    fn of_json(self, value: Value) -> Checked<String> {
        let (changed, needed) = match self {
            Self::MemberOrder => (
                json::reordered(&value),
                "an operation whose JSON has an object of two members",
            ),
            Self::Decimal => (
                json::with_decimal(value),
                "an operation whose JSON has an integer",
            ),
            Self::ArrayOrder => (
                json::with_array_reversed(value),
                "an operation whose JSON has an array of two different values",
            ),
            Self::NullMember => (json::with_extension(value, Value::Null), OBJECT),
            _ => (json::with_extension(value, json!({ "points": 1 })), OBJECT),
        };
        need(changed, needed)
    }

    /// The second request in words.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Self::Number => "another body",
            Self::Blank => "a blank more in its JSON",
            Self::MemberOrder => "members in another order",
            Self::Decimal => "`1.0` in place of `1`",
            Self::NullMember => "a member that is null",
            Self::ExtraMember => "a member of an extension",
            Self::ArrayOrder => "an array in another order",
            Self::Path => "another path",
            Self::Caller => "another caller",
            Self::Header => "another header",
            Self::Signature => "a payment that is signed anew",
            Self::Terms => "other terms of payment",
            Self::Capitals => "its letters in capitals",
        }
    }
}
