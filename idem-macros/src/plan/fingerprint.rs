//! The fingerprint: the arguments that are compared.

use super::function::{Function, bare};
use super::transaction::{Transaction, is_no_input};
use crate::args::{Args, Fingerprint};
use crate::errors::Errors;
use crate::key;
use crate::target::Parameter;
use proc_macro2::Span;
use syn::{Attribute, Error, Expr, Ident, Member, Result, Type};

/// One value of the fingerprint.
pub(crate) struct Compared {
    pub(crate) cfgs: Vec<Attribute>,
    /// Whether the parameter is declared once, and without `#[cfg]`.
    pub(crate) is_certain: bool,
    pub(crate) name: String,
    pub(crate) value: Expr,
    /// Whether the type is written as a reference.
    pub(crate) reference: bool,
    pub(crate) ty: Option<Type>,
    pub(crate) span: Span,
}

/// In the order as written; `None`: nothing is compared.
pub(super) fn plan(
    args: &mut Args,
    function: &Function<'_>,
    tx: Option<&Transaction>,
    errors: &mut Errors,
) -> Option<Vec<Compared>> {
    let has_key = args.named("key").is_some();
    let compared = match args.fingerprint.take() {
        Some(Fingerprint::None(span)) => {
            if !has_key {
                let message =
                    "without `key` the fingerprint is the key; give `key`, or remove `fingerprint`";
                errors.at(span, message);
            }
            return None;
        }
        Some(Fingerprint::List(list)) => {
            let mut compared: Vec<Compared> = Vec::new();
            for expr in list {
                if let Some(entry) = listed(expr, function, tx, errors) {
                    if compared.iter().any(|earlier| earlier.name == entry.name) {
                        errors.at(entry.span, format!("`{}` is listed twice", entry.name));
                    }
                    compared.push(entry);
                }
            }
            compared
        }
        // An error was already reported for it.
        None if args.named("fingerprint").is_some() => return None,
        None => every(function, tx, errors),
    };
    if compared.is_empty() && !has_key && errors.is_empty() {
        let name = &function.sig.ident;
        let message = format!("no argument of `{name}` distinguishes two calls; give `key`");
        errors.at(name.span(), message);
    }
    Some(compared)
}

/// Every parameter that is neither skipped nor the transaction.
fn every(function: &Function<'_>, tx: Option<&Transaction>, errors: &mut Errors) -> Vec<Compared> {
    let mut compared = Vec::new();
    for parameter in function.parameters {
        let is_tx = tx.is_some_and(|tx| parameter.names.contains(&tx.name));
        if is_tx || parameter.skip.is_some() {
            continue;
        }
        if parameter.names.is_empty() {
            let message = "this argument has no name for the fingerprint; name it, or mark it `#[idem(skip)]`";
            errors.at(parameter.span, message);
        }
        errors.ok(check_order(parameter));
        compared.extend(parameter.names.iter().map(|name| Compared {
            cfgs: parameter.cfgs.clone(),
            is_certain: parameter.cfgs.is_empty(),
            name: bare(name),
            value: syn::parse_quote!(#name),
            reference: parameter.reference,
            ty: parameter.ty.clone(),
            span: name.span(),
        }));
    }
    compared
}

/// Rejects a value that serializes differently each time.
fn check_order(parameter: &Parameter) -> Result<()> {
    parameter.unordered.map_or(Ok(()), |set| {
        let message = "the order of a `HashSet` differs each time, so that a repeated call would not be recognized; take a \
                       `BTreeSet` or a sorted `Vec`, or mark the argument `#[idem(skip)]`";
        Err(Error::new(set, message))
    })
}

/// One of `fingerprint(a, b.c)`.
fn listed(
    expr: Expr,
    function: &Function<'_>,
    tx: Option<&Transaction>,
    errors: &mut Errors,
) -> Option<Compared> {
    let span = key::span(&expr);
    let Some((first, name)) = path_text(&expr) else {
        let message =
            "`fingerprint` lists arguments and their fields, such as `req` or `req.amount`";
        errors.at(span, message);
        return None;
    };
    let Some(parameter) = function.parameter(&first) else {
        if first == "self" && function.sig.receiver().is_some() {
            let message =
                "`self` is never part of the fingerprint; put its field into `key` or `scope`";
            errors.at(span, message);
        } else {
            errors.at(first.span(), function.no_argument(&first, ""));
        }
        return None;
    };
    if tx.is_some_and(|tx| tx.name == first) {
        errors.at(span, is_no_input(&first));
        return None;
    }
    let whole = matches!(expr, Expr::Path(_));
    // Of several declarations under `#[cfg]` each may be the compiled one.
    let mut declared = 0;
    for parameter in function.parameters {
        if !parameter.names.contains(&first) {
            continue;
        }
        declared += 1;
        if let Some(skip) = parameter.skip {
            let message = format!(
                "`{first}` is listed in `fingerprint(..)`; remove it there, or remove `skip`"
            );
            errors.at(skip, message);
        }
        if whole && parameter.names.len() == 1 {
            errors.ok(check_order(parameter));
        }
    }
    let is_only = declared == 1;
    Some(Compared {
        cfgs: if is_only {
            parameter.cfgs.clone()
        } else {
            Vec::new()
        },
        is_certain: parameter.cfgs.is_empty(),
        name,
        value: expr,
        reference: parameter.reference && whole,
        ty: parameter.ty.clone().filter(|_| whole && is_only),
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
