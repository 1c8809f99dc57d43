//! The label of the key, for operators.

use super::client_key::is_client_key;
use super::function::Function;
use crate::format::Format;
use crate::key;
use syn::{Error, Expr, LitStr, Result};

/// The form in which an expression of the label is passed on.
pub(crate) enum Label {
    /// A string literal is a format string with inline captures.
    Format(LitStr),
    Expr(Expr),
}

pub(super) fn plan(label: Expr, function: &Function<'_>) -> Result<Label> {
    let label = key::unwrapped(label);
    check(&label, function)?;
    Ok(match key::literal(&label) {
        Some(text) => Label::Format(text.clone()),
        None => Label::Expr(key::with_formatted_texts(label, &function.names)?),
    })
}

fn check(label: &Expr, function: &Function<'_>) -> Result<()> {
    let error = |message: &str| Err(Error::new(key::span(label), message));
    if key::is_constant(label) {
        return error(
            "this label is the same for every call; name what an operator recognizes a call by, such as \
             `label = \"order {order_id}\"`",
        );
    }
    if matches!(label, Expr::Tuple(_)) {
        return error(
            "a label is one text; write a format string, such as `label = \"{merchant}/{order_id}\"`",
        );
    }
    let format = match key::literal(label) {
        Some(text) => Format::of(text, "`format_args!(\"{}\", ..)`")?,
        None => Format::default(),
    };
    let clients = &function.client_keys;
    if is_client_key(label, clients) || format.names().any(|name| clients.contains(&name)) {
        return error(
            "a label is plain text in the store, and a client's key is a secret of its client: with it, another \
             client may get the stored answer; show its end alone, such as \
             `label = idem_runtime::key::redacted(key.as_str(), 4)`",
        );
    }
    if key::mentions(label, &function.names) {
        return Ok(());
    }
    function.check_names(label)
}
