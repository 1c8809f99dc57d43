//! Plan of the expansion: `Args` and `Target`, checked against each other.

mod client_key;
mod contradictions;
mod duration_setting;
mod entry;
mod fingerprint;
mod finish;
mod key;
mod label;
mod reconcile;
mod settings;
mod transaction;

pub(crate) use self::duration_setting::DurationSetting;
pub(crate) use self::fingerprint::Compared;
pub(crate) use self::label::Label;
pub(crate) use self::reconcile::{Hook, HookArgument};
pub(crate) use self::settings::{Running, Settings};
pub(crate) use self::transaction::Transaction;

use crate::args::{Args, OnError, Scope, Slot};
use crate::borrows;
use crate::errors::Errors;
use crate::format::captures;
use crate::key::{Value, may_be_token};
use crate::nearest::nearest;
use crate::output::{self, Shape};
use crate::runtime;
use crate::target::{Parameter, Target};
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, FnArg, GenericParam, Ident, LitStr, Path, Signature, Type};

pub(crate) struct Plan {
    pub(crate) krate: Path,
    pub(crate) op: Op,
    pub(crate) entry: Option<Ident>,
    pub(crate) engine: Option<Expr>,
    pub(crate) scope: Option<Scope<Value>>,
    pub(crate) key: Option<Value>,
    /// The `scope`, where the key may be a one-time token, which takes none.
    pub(crate) scope_of_token: Option<Span>,
    /// Whether the key may be a one-time token made of a client's key, with no other argument that names its owner.
    pub(crate) token_of_client: bool,
    /// In the order of declaration or listing; `None`: nothing is compared.
    pub(crate) fingerprint: Option<Vec<Compared>>,
    pub(crate) settings: Settings,
    pub(crate) label: Option<Label>,
    pub(crate) on_error: OnError,
    pub(crate) reconcile: Option<Hook>,
    /// The `finish` of `on_cancel = finish`: the body runs in a task of its own.
    pub(crate) finish: Option<Span>,
    /// The record is part of the caller's transaction.
    pub(crate) tx: Option<Transaction>,
    pub(crate) shape: Shape,
    /// With `_` for each `impl Trait`.
    pub(crate) output: Type,
}

pub(crate) enum Op {
    Given(LitStr),
    /// The function's own path.
    Function,
    /// Type name of `Self`, followed by this text.
    Method(String),
}

impl Plan {
    /// The plan, or `None` after an error.
    pub(crate) fn new(mut args: Args, target: &mut Target, errors: &mut Errors) -> Option<Self> {
        target.take_second_attribute(errors);
        target.take_misplaced_options(errors);
        let parameters = target.take_parameters(errors);
        let sig = &target.sig;
        let shape = output::shape(sig, errors);
        let has_key = args.key.named.is_some();
        let names = names(&parameters);
        let scope_of_token = args.scope.named.filter(|_| {
            let key = args.key.value.as_ref();
            key.is_some_and(may_be_token)
        });
        let finish = (args.word("on_cancel").value)
            .filter(|word| word.text == "finish")
            .map(|word| word.span);
        contradictions::check(&args, errors);
        if let (Some(key), None) = (&args.key.value, &args.op.named)
            && crate::key::is_token_of_subject(key)
        {
            errors.at(
                crate::key::span(key),
                "a token is issued for an operation by name; add the name that `Engine::issue_token` gets: `op = \"..\"`; a \
                 function of your own that is no `idem_runtime::token::token` needs another name than `token` here",
            );
        }
        let tx = transaction::plan(&args, &parameters, sig, errors);
        if finish.is_some() && args.tx.named.is_none() {
            finish::check(sig, errors);
        }
        entry::check(&args, shape.as_ref(), tx.as_ref(), sig, errors);
        let settings = Settings::new(&mut args, errors);
        let compared = fingerprint::plan(
            args.fingerprint,
            &parameters,
            tx.as_ref(),
            has_key,
            sig,
            errors,
        );
        let token_of_client = client_key::check(
            &args.key,
            &args.scope,
            &parameters,
            compared.as_deref(),
            errors,
        );
        let hook = args.reconcile.value.and_then(|hook| {
            let compared = compared.as_deref().unwrap_or_default();
            reconcile::plan(hook, compared, sig, errors)
        });
        let plan = Self {
            krate: args.krate.value.unwrap_or_else(runtime::default_path),
            op: op(args.op, &names, sig, errors),
            entry: args.entry.value,
            engine: args.engine.value,
            scope: (args.scope.value).and_then(|scope| key::scope(scope, &parameters, sig, errors)),
            key: args
                .key
                .value
                .and_then(|key| key::key(key, &parameters, sig, errors)),
            scope_of_token,
            token_of_client,
            fingerprint: compared,
            settings,
            label: (args.label.value)
                .and_then(|label| label::plan(label, &parameters, sig, errors)),
            on_error: args.on_error.value.unwrap_or(OnError::Classify),
            reconcile: hook,
            finish,
            output: output::nameable(shape.as_ref()?.1.clone()),
            shape: match shape?.0 {
                // The future itself must not borrow either.
                Shape::Boxed(whole) if finish.is_some() => {
                    Shape::Boxed(Box::new(borrows::owned(*whole)))
                }
                // The body borrows the transaction for a shorter time than the caller lent it.
                Shape::Boxed(whole) if tx.is_some() => {
                    Shape::Boxed(Box::new(borrows::inferred(*whole)))
                }
                shape => shape,
            },
            tx,
        };
        errors.is_empty().then_some(plan)
    }
}

fn names(parameters: &[Parameter]) -> Vec<String> {
    let names = parameters.iter().flat_map(|parameter| &parameter.names);
    names.map(bare).collect()
}

fn bare(name: &Ident) -> String {
    name.unraw().to_string()
}

/// The argument whose name was probably misspelt.
fn guess<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest(name, &names)
}

fn op(given: Slot<LitStr>, names: &[String], sig: &Signature, errors: &mut Errors) -> Op {
    let name = bare(&sig.ident);
    let generic = if given.named.is_some() {
        None
    } else {
        generic(sig)
    };
    if let Some(span) = generic {
        let message = format!(
            "`{name}` is generic, and answers of different types must not share a record; name the operation: `op = \"..\"`"
        );
        errors.at(span, message);
    }
    match given.value {
        Some(given) => {
            let captured = captures(&given.value());
            if let Some(captured) = captured.iter().find(|name| names.contains(name)) {
                let message = format!(
                    "`op` is one name for every call, not a format string; put `{captured}` into `key` or `scope`"
                );
                errors.at(given.span(), message);
            }
            Op::Given(given)
        }
        None if sig.receiver().is_some() => Op::Method(name),
        None => Op::Function,
    }
}

/// The first parameter that makes the function generic over types. Lifetimes do not reach the record.
fn generic(sig: &Signature) -> Option<Span> {
    let written = sig.generics.params.iter().find_map(|param| match param {
        GenericParam::Lifetime(_) => None,
        GenericParam::Type(param) => Some(param.ident.span()),
        GenericParam::Const(param) => Some(param.ident.span()),
    });
    written.or_else(|| {
        sig.inputs.iter().find_map(|input| match input {
            FnArg::Typed(typed) if output::mentions_impl(&typed.ty) => Some(typed.ty.span()),
            _ => None,
        })
    })
}

/// `#[async_trait]` expands first: it replaces a pattern by `__arg1` and destructures it in the body.
fn hidden(names: &[String]) -> Option<&'static str> {
    names.iter().any(|name| name.starts_with("__arg")).then_some(
        "under `#[async_trait]` the names of a pattern are not visible; name the argument, and destructure \
         it in the body",
    )
}
