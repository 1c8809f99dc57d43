//! The fingerprint: the arguments that are compared.

use super::transaction::{Transaction, is_no_input};
use super::{bare, guess, hidden, names};
use crate::args::{Fingerprint, Slot};
use crate::errors::Errors;
use crate::key;
use crate::target::Parameter;
use proc_macro2::Span;
use syn::{Attribute, Expr, Ident, Member, Signature, Type};

/// One value of the fingerprint.
pub(crate) struct Compared {
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) name: String,
    pub(crate) value: Expr,
    /// Whether the type is written as a reference.
    pub(crate) reference: bool,
    pub(crate) ty: Option<Type>,
    pub(crate) span: Span,
}

/// In the order as written; `None`: nothing is compared.
pub(super) fn plan(
    given: Slot<Fingerprint>,
    parameters: &[Parameter],
    tx: Option<&Transaction>,
    has_key: bool,
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Vec<Compared>> {
    let compared = match given.value {
        Some(Fingerprint::None(span)) => {
            if !has_key {
                errors.at(
                    span,
                    "without `key` the fingerprint is the key; give `key`, or remove `fingerprint`",
                );
            }
            return None;
        }
        Some(Fingerprint::List(list)) => {
            let mut compared = Vec::new();
            for expr in list {
                if let Some(entry) = listed(expr, parameters, tx, sig, errors) {
                    let twice = compared
                        .iter()
                        .any(|earlier: &Compared| earlier.name == entry.name);
                    if twice {
                        errors.at(entry.span, format!("`{}` is listed twice", entry.name));
                    }
                    compared.push(entry);
                }
            }
            compared
        }
        // An error was already reported for it.
        None if given.named.is_some() => return None,
        None => every(parameters, tx, errors),
    };
    if compared.is_empty() && !has_key && errors.is_empty() {
        let message = format!(
            "no argument of `{}` distinguishes two calls; give `key`",
            sig.ident
        );
        errors.at(sig.ident.span(), message);
    }
    Some(compared)
}

/// Every parameter that is neither skipped nor the transaction.
fn every(parameters: &[Parameter], tx: Option<&Transaction>, errors: &mut Errors) -> Vec<Compared> {
    let mut compared = Vec::new();
    let is_tx = |parameter: &Parameter| tx.is_some_and(|tx| parameter.names.contains(&tx.name));
    for parameter in parameters
        .iter()
        .filter(|parameter| parameter.skip.is_none() && !is_tx(parameter))
    {
        if parameter.names.is_empty() {
            errors.at(
                parameter.span,
                "this argument has no name for the fingerprint; name it, or mark it `#[idem(skip)]`",
            );
        }
        check_order(parameter, errors);
        for name in &parameter.names {
            compared.push(Compared {
                cfgs: parameter.cfgs.clone(),
                name: bare(name),
                value: syn::parse_quote!(#name),
                reference: parameter.reference,
                ty: parameter.ty.clone(),
                span: name.span(),
            });
        }
    }
    compared
}

/// Rejects a value that serializes differently each time.
fn check_order(parameter: &Parameter, errors: &mut Errors) {
    if let Some(set) = parameter.unordered {
        errors.at(
            set,
            "the order of a `HashSet` differs each time, so that a repeated call would not be recognized; take a \
             `BTreeSet` or a sorted `Vec`, or mark the argument `#[idem(skip)]`",
        );
    }
}

/// One of `fingerprint(a, b.c)`.
fn listed(
    expr: Expr,
    parameters: &[Parameter],
    tx: Option<&Transaction>,
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Compared> {
    let span = key::span(&expr);
    let Some((first, name)) = path_text(&expr) else {
        errors.at(
            span,
            "`fingerprint` lists arguments and their fields, such as `req` or `req.amount`",
        );
        return None;
    };
    let Some(parameter) = parameters
        .iter()
        .find(|parameter| parameter.names.contains(&first))
    else {
        if first == "self" && sig.receiver().is_some() {
            errors.at(
                span,
                "`self` is never part of the fingerprint; put its field into `key` or `scope`",
            );
            return None;
        }
        let names = names(parameters);
        let hint = match (guess(&bare(&first), &names), hidden(&names)) {
            (Some(meant), _) => format!("; did you mean `{meant}`?"),
            (None, Some(hint)) => format!("; {hint}"),
            (None, None) => String::new(),
        };
        let message = format!("`{first}` is not an argument of `{}`{hint}", sig.ident);
        errors.at(first.span(), message);
        return None;
    };
    if tx.is_some_and(|tx| tx.name == first) {
        errors.at(span, is_no_input(&first));
        return None;
    }
    if let Some(skip) = parameter.skip {
        errors.at(
            skip,
            format!("`{first}` is listed in `fingerprint(..)`; remove it there, or remove `skip`"),
        );
    }
    let whole = matches!(expr, Expr::Path(_));
    if whole && parameter.names.len() == 1 {
        check_order(parameter, errors);
    }
    let ty = parameter.ty.clone().filter(|_| whole);
    Some(Compared {
        cfgs: parameter.cfgs.clone(),
        name,
        value: expr,
        reference: parameter.reference && whole,
        ty,
        span,
    })
}

/// `b` and `"b.c"` of `b.c`.
fn path_text(expr: &Expr) -> Option<(Ident, String)> {
    match expr {
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            Some((name.clone(), bare(name)))
        }
        Expr::Field(field) => {
            let (first, before) = path_text(&field.base)?;
            let member = match &field.member {
                Member::Named(name) => bare(name),
                Member::Unnamed(index) => index.index.to_string(),
            };
            Some((first, format!("{before}.{member}")))
        }
        _ => None,
    }
}
