//! Plan of the expansion: `Args` and `Target`, checked against each other.

mod client_key;
mod contradictions;
mod duration_setting;
mod entry;
mod fingerprint;
mod finish;
mod function;
mod key;
mod label;
mod reconcile;
mod settings;
mod transaction;

pub(crate) use self::duration_setting::DurationSetting;
pub(crate) use self::fingerprint::Compared;
pub(crate) use self::label::Label;
pub(crate) use self::reconcile::{Hook, HookArgument};
pub(crate) use self::settings::Settings;
pub(crate) use self::transaction::Transaction;

use self::function::{Function, bare};
use crate::args::{Args, OnError, Scope};
use crate::errors::Errors;
use crate::format::captures;
use crate::key::{Value, is_token_of_subject, may_be_token};
use crate::output::{self, Shape};
use crate::runtime;
use crate::target::Target;
use crate::types;
use proc_macro2::Span;
use syn::{Expr, ExprClosure, Ident, LitStr, Path, Type};

pub(crate) struct Plan {
    pub(crate) krate: Path,
    pub(crate) op: Op,
    pub(crate) entry: Option<Ident>,
    pub(crate) engine: Option<Expr>,
    pub(crate) scope: Option<Scope<Value>>,
    pub(crate) key: Option<Value>,
    /// The `scope` of a key that may be a one-time token.
    pub(crate) scope_of_token: Option<Span>,
    /// Whether a client's key may be a one-time token without an owner.
    pub(crate) token_of_client: bool,
    /// In the order of declaration or listing; `None`: nothing is compared.
    pub(crate) fingerprint: Option<Vec<Compared>>,
    pub(crate) settings: Settings,
    pub(crate) label: Option<Label>,
    /// Chooses the life of a value.
    pub(crate) ttl_of: Option<ExprClosure>,
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
        let function = &Function::new(&target.sig, &parameters);
        let sig = function.sig;
        let shape = output::shape(sig, errors);
        let key = args.key.as_ref();
        let scope_of_token = args
            .named("scope")
            .filter(|_| key.is_some_and(may_be_token));
        let finish = args.word("on_cancel").filter(|word| word.text == "finish");
        let finish = finish.map(|word| word.span);
        contradictions::check(&args, errors);
        if let Some(key) = key.filter(|key| is_token_of_subject(key))
            && args.named("op").is_none()
        {
            errors.at(
                crate::key::span(key),
                "a token is issued for an operation by name; add the name that `Engine::issue_token` gets: `op = \"..\"`; a \
                 function of your own that is no `idem_runtime::token::token` needs another name than `token` here",
            );
        }
        let tx = transaction::plan(&args, function, errors);
        if finish.is_some() && args.named("tx").is_none() {
            finish::check(sig, errors);
        }
        entry::check(&args, shape.as_ref(), tx.as_ref(), function, errors);
        let settings = Settings::new(&args, errors);
        let compared = fingerprint::plan(&mut args, function, tx.as_ref(), errors);
        let token_of_client = client_key::check(&args, function, compared.as_deref(), errors);
        let hook = args.reconcile.take().and_then(|hook| {
            let compared = compared.as_deref().unwrap_or_default();
            errors.ok(reconcile::plan(hook, compared, sig))
        });
        let plan = Self {
            op: op(&args, function, errors),
            krate: args.krate.unwrap_or_else(runtime::default_path),
            entry: args.entry,
            engine: args.engine,
            scope: (args.scope).and_then(|scope| errors.ok(key::scope(scope, function))),
            key: (args.key).and_then(|key| errors.ok(key::key(key, function))),
            scope_of_token,
            token_of_client,
            fingerprint: compared,
            settings,
            label: (args.label).and_then(|label| errors.ok(label::plan(label, function))),
            ttl_of: args.ttl_of,
            on_error: args.on_error.unwrap_or(OnError::Classify),
            reconcile: hook,
            finish,
            output: types::nameable(shape.as_ref()?.1.clone()),
            shape: match shape?.0 {
                // The future itself must not borrow either.
                Shape::Boxed(whole) if finish.is_some() => {
                    Shape::Boxed(Box::new(types::with_lifetimes(*whole, "static")))
                }
                // The body borrows the transaction for a shorter time than the caller lent it.
                Shape::Boxed(whole) if tx.is_some() => {
                    Shape::Boxed(Box::new(types::with_lifetimes(*whole, "_")))
                }
                shape => shape,
            },
            tx,
        };
        errors.is_empty().then_some(plan)
    }
}

fn op(args: &Args, function: &Function<'_>, errors: &mut Errors) -> Op {
    let name = bare(&function.sig.ident);
    if let Some(span) = function.generic()
        && args.named("op").is_none()
    {
        let message = format!(
            "`{name}` is generic, and answers of different types must not share a record; name the operation: `op = \"..\"`"
        );
        errors.at(span, message);
    }
    match &args.op {
        Some(given) => {
            let mut captured = captures(&given.value()).into_iter();
            if let Some(captured) = captured.find(|name| function.names.contains(name)) {
                let message = format!(
                    "`op` is one name for every call, not a format string; put `{captured}` into `key` or `scope`"
                );
                errors.at(given.span(), message);
            }
            Op::Given(given.clone())
        }
        None if function.sig.receiver().is_some() => Op::Method(name),
        None => Op::Function,
    }
}
