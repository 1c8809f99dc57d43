//! JSON texts of one value, and of nearly the same.

use serde_json::{Number, Value};

/// A text whose members are ordered by name, or in reverse.
pub(super) fn ordered(value: &Value, reverse: bool) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            if reverse {
                members.reverse();
            }
            let member = |(name, value): (&String, _)| {
                format!(
                    "{}:{}",
                    Value::String(name.clone()),
                    ordered(value, reverse)
                )
            };
            let members: Vec<_> = members.into_iter().map(member).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(|it| ordered(it, reverse)).collect();
            format!("[{}]", values.join(","))
        }
        value => value.to_string(),
    }
}

/// Changes the first value that `change` accepts, in the document's order.
fn change_first(value: &mut Value, change: &mut impl FnMut(&mut Value) -> bool) -> bool {
    if change(value) {
        return true;
    }
    match value {
        Value::Object(members) => members.values_mut().any(|it| change_first(it, change)),
        Value::Array(values) => values.iter_mut().any(|it| change_first(it, change)),
        _ => false,
    }
}

/// The same value, with the members of an object in another order.
pub(super) fn reordered(value: &Value) -> Option<String> {
    let reordered = ordered(value, true);
    (reordered != ordered(value, false)).then_some(reordered)
}

/// The same value, with an integer written as `1.0`.
pub(super) fn with_decimal(mut value: Value) -> Option<String> {
    let decimal = |value: &mut Value| {
        // Written without an exponent, and exactly.
        let integer = value.as_i64().filter(|it| it.unsigned_abs() < 1 << 53);
        #[allow(clippy::cast_precision_loss, reason = "it is small enough")]
        let decimal = integer.and_then(|integer| Number::from_f64(integer as f64));
        decimal.is_some_and(|decimal| {
            *value = Value::Number(decimal);
            true
        })
    };
    change_first(&mut value, &mut { decimal }).then(|| ordered(&value, false))
}

/// Another value: an array of two different values in the reverse order.
pub(super) fn with_array_reversed(mut value: Value) -> Option<String> {
    let reversed = |value: &mut Value| {
        let Value::Array(values) = value else {
            return false;
        };
        let before = values.clone();
        values.reverse();
        *values != before
    };
    change_first(&mut value, &mut { reversed }).then(|| ordered(&value, false))
}

/// Another value: an object with the extension `member`.
pub(super) fn with_extension(mut value: Value, member: Value) -> Option<String> {
    let members = value.as_object_mut()?;
    members.insert("extension".to_owned(), member);
    Some(ordered(&value, false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_one_value_differ_and_their_values_do_not() {
        let value = json!({ "b": [1, { "d": 1, "c": "\"" }], "a": null });
        let text = reordered(&value).unwrap();
        assert_eq!(text, r#"{"b":[1,{"d":1,"c":"\""}],"a":null}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(
            with_decimal(value.clone()).unwrap(),
            r#"{"a":null,"b":[1.0,{"c":"\"","d":1}]}"#
        );
        assert_eq!(
            with_array_reversed(value).unwrap(),
            r#"{"a":null,"b":[{"c":"\"","d":1},1]}"#
        );
        assert_eq!(with_array_reversed(json!([2, 2])), None);
        assert_eq!(with_decimal(json!("1")), None);
        assert_eq!(reordered(&json!([{ "a": 1 }])), None);
    }
}
