//! The label of the key, for operators.

use super::client_key::is_client_key;
use super::{bare, guess, names};
use crate::errors::Errors;
use crate::format::Format;
use crate::key;
use crate::target::Parameter;
use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit, LitStr, Signature};

/// The form in which an expression of the label is passed on.
pub(crate) enum Label {
    /// A string literal is a format string with inline captures.
    Format(LitStr),
    Expr(Expr),
}

pub(super) fn plan(
    label: Expr,
    parameters: &[Parameter],
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Label> {
    match label {
        Expr::Paren(paren) => return plan(*paren.expr, parameters, sig, errors),
        Expr::Group(group) => return plan(*group.expr, parameters, sig, errors),
        _ => {}
    }
    if let Some((span, message)) = error(&label, parameters, sig) {
        errors.at(span, message);
        return None;
    }
    Some(match label {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Label::Format(text),
        label => Label::Expr(label),
    })
}

fn error(label: &Expr, parameters: &[Parameter], sig: &Signature) -> Option<(Span, String)> {
    let span = key::span(label);
    if key::is_constant(label) {
        let message = "this label is the same for every call; name what an operator recognizes a call by, such as \
                       `label = \"order {order_id}\"`";
        return Some((span, message.to_owned()));
    }
    let format = match label {
        Expr::Tuple(_) => {
            let message = "a label is one text; write a format string, such as `label = \"{merchant}/{order_id}\"`";
            return Some((span, message.to_owned()));
        }
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => match Format::parse(&text.value(), "`format_args!(\"{}\", ..)`") {
            Ok(format) => format,
            Err(message) => return Some((span, message)),
        },
        _ => Format::default(),
    };
    let clients: Vec<String> = (parameters.iter())
        .flat_map(|parameter| &parameter.client_keys)
        .map(bare)
        .collect();
    if is_client_key(label, &clients) || format.names().any(|name| clients.contains(&name)) {
        let message = "a label is plain text in the store, and a client's key is a secret of its client: with it, another \
                       client may get the stored answer; show its end alone, such as \
                       `label = idem_runtime::key::redacted(key.as_str(), 4)`";
        return Some((span, message.to_owned()));
    }
    let names = names(parameters);
    if key::mentions(label, &names) {
        return None;
    }
    let mut misspelt = key::variables(label)
        .into_iter()
        .filter_map(|(name, span)| Some((guess(&name, &names)?, name, span)));
    let (meant, name, span) = misspelt.next()?;
    let message = format!(
        "`{name}` is not an argument of `{}`; did you mean `{meant}`?",
        sig.ident
    );
    Some((span, message))
}
