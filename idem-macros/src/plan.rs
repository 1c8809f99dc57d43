//! What the expansion will do: `Args` and `Target`, checked against each other.

use crate::args::{Args, Fingerprint, OnDuplicate, OnError, OnRunning, Slot, Time};
use crate::duration::{self, Mistake};
use crate::errors::Errors;
use crate::key::{self, Value};
use crate::output::{self, Shape};
use crate::target::{Parameter, Target};
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, FnArg, GenericParam, Ident, LitStr, Member, Path, Signature, Type};

pub(crate) struct Plan {
    pub(crate) krate: Path,
    pub(crate) op: Op,
    pub(crate) engine: Option<Expr>,
    pub(crate) scope: Option<Value>,
    pub(crate) key: Option<Value>,
    /// Sorted as the runtime encodes them; `None`: nothing is compared.
    pub(crate) fingerprint: Option<Vec<Compared>>,
    pub(crate) ttl: Option<Length>,
    pub(crate) error_ttl: Option<Length>,
    pub(crate) lease: Option<Length>,
    pub(crate) on_error: OnError,
    pub(crate) on_duplicate: Option<OnDuplicate>,
    pub(crate) on_running: Option<Running>,
    pub(crate) shape: Shape,
    /// With `_` for `impl Trait`.
    pub(crate) output: Type,
}

pub(crate) enum Op {
    Given(LitStr),
    /// The function's own path.
    Function,
    /// Type name of `Self` and this.
    Method(String),
}

/// One value of the fingerprint.
pub(crate) struct Compared {
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) ty: Option<Type>,
    pub(crate) span: Span,
}

pub(crate) enum Length {
    Millis(u64),
    Expr(Expr),
}

pub(crate) enum Running {
    Wait(Length),
    Reject,
}

/// Milliseconds between which a written duration has to be.
struct Limits(u64, u64);

const DAY: u64 = 86_400_000;
const TTL: Limits = Limits(1_000, 3_650 * DAY);
const LEASE: Limits = Limits(100, DAY);
const WAIT: Limits = Limits(1, u64::MAX);

impl Plan {
    /// The plan, or `None` beside an error.
    pub(crate) fn new(args: Args, target: &mut Target, errors: &mut Errors) -> Option<Self> {
        target.take_second_attribute(errors);
        let parameters = target.take_parameters(errors);
        let sig = &target.sig;
        let shape = output::shape(sig, errors);
        let has_key = args.key.named;
        let names = names(&parameters);
        let plan = Self {
            krate: args
                .krate
                .value
                .unwrap_or_else(|| syn::parse_quote!(::idem_runtime)),
            op: op(args.op, &names, sig, errors),
            engine: args.engine.value,
            scope: args.scope.value.and_then(|scope| call_scope(scope, errors)),
            key: args
                .key
                .value
                .and_then(|key| call_key(key, &names, &sig.ident, errors)),
            fingerprint: fingerprint(args.fingerprint, &parameters, has_key, sig, errors),
            ttl: length("ttl", args.ttl.value, &TTL, errors),
            error_ttl: length("error_ttl", args.error_ttl.value, &TTL, errors),
            lease: length("lease", args.lease.value, &LEASE, errors),
            on_error: args.on_error.value.unwrap_or(OnError::Classify),
            on_duplicate: args.on_duplicate.value,
            on_running: args.on_running.value.and_then(|running| {
                Some(match running {
                    OnRunning::Wait(time) => {
                        Running::Wait(length("wait", Some(time), &WAIT, errors)?)
                    }
                    OnRunning::Reject => Running::Reject,
                })
            }),
            output: output::nameable(shape.as_ref()?.1.clone()),
            shape: shape?.0,
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

fn op(given: Slot<LitStr>, names: &[String], sig: &Signature, errors: &mut Errors) -> Op {
    let name = bare(&sig.ident);
    let generic = if given.named { None } else { generic(sig) };
    if let Some(span) = generic {
        let message = format!(
            "`{name}` is generic, and answers of different types must not meet; name the operation: `op = \"..\"`"
        );
        errors.at(span, message);
    }
    match given.value {
        Some(given) => {
            let captured = key::placeholders(&given.value()).unwrap_or_default();
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

/// The first parameter that stands for several types. Lifetimes do not reach the record.
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

fn call_key(key: Expr, names: &[String], function: &Ident, errors: &mut Errors) -> Option<Value> {
    let span = key::span(&key);
    let constant = key::is_constant(&key);
    let varies = key::mentions(&key, names);
    let value = errors.ok(Value::new(key))?;
    if constant {
        errors.at(
            span,
            "this key is the same for every call; name what tells two calls apart, such as `key = order_id` or \
             `key = \"{order_id}\"`",
        );
    } else if !varies {
        let hint = hidden(names).unwrap_or("every call would share one record and get its answer");
        errors.at(
            span,
            format!("`key` names no argument of `{function}`; {hint}"),
        );
    }
    Some(value)
}

/// A constant that is not literal may well be the region of a deployment.
fn call_scope(scope: Expr, errors: &mut Errors) -> Option<Value> {
    let span = key::span(&scope);
    let constant = key::is_constant(&scope);
    let value = errors.ok(Value::new(scope))?;
    if constant {
        errors.at(
            span,
            "this scope is the same for every caller; name what tells them apart, such as `scope = tenant` or \
             `scope = \"{tenant}\"`",
        );
    }
    Some(value)
}

/// `#[async_trait]` expands first: of a pattern it leaves `__arg1`, and takes it apart in the body.
fn hidden(names: &[String]) -> Option<&'static str> {
    names.iter().any(|name| name.starts_with("__arg")).then_some(
        "under `#[async_trait]` the names of a pattern are not seen; name the argument, and take \
         it apart in the body",
    )
}

fn fingerprint(
    given: Slot<Fingerprint>,
    parameters: &[Parameter],
    has_key: bool,
    sig: &Signature,
    errors: &mut Errors,
) -> Option<Vec<Compared>> {
    let mut compared = match given.value {
        Some(Fingerprint::None(span)) => {
            if !has_key {
                errors.at(
                    span,
                    "without `key` the fingerprint is the key; give `key`, or remove this",
                );
            }
            return None;
        }
        Some(Fingerprint::List(list)) => {
            let mut compared = Vec::new();
            for expr in list {
                if let Some(entry) = listed(expr, parameters, sig, errors) {
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
        // Named, but not understood.
        None if given.named => return None,
        None => every(parameters, errors),
    };
    if compared.is_empty() && !has_key && errors.is_empty() {
        let message = format!(
            "no argument of `{}` tells two calls apart; give `key`",
            sig.ident
        );
        errors.at(sig.ident.span(), message);
    }
    compared.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    Some(compared)
}

/// Every parameter that is not skipped.
fn every(parameters: &[Parameter], errors: &mut Errors) -> Vec<Compared> {
    let mut compared = Vec::new();
    for parameter in parameters
        .iter()
        .filter(|parameter| parameter.skip.is_none())
    {
        if parameter.names.is_empty() {
            errors.at(
                parameter.span,
                "this argument has no name to take part in the fingerprint; name it, or mark it `#[idem(skip)]`",
            );
        }
        for name in &parameter.names {
            compared.push(Compared {
                cfgs: parameter.cfgs.clone(),
                name: bare(name),
                value: syn::parse_quote!(#name),
                ty: parameter.ty.clone(),
                span: name.span(),
            });
        }
    }
    compared
}

/// One of `fingerprint(a, b.c)`.
fn listed(
    expr: Expr,
    parameters: &[Parameter],
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
                "`self` never takes part in the fingerprint; put its field into `key` or `scope`",
            );
            return None;
        }
        let hint = hidden(&names(parameters)).map_or_else(String::new, |hint| format!("; {hint}"));
        let message = format!("`{first}` is not an argument of `{}`{hint}", sig.ident);
        errors.at(first.span(), message);
        return None;
    };
    if let Some(skip) = parameter.skip {
        errors.at(
            skip,
            format!("`{first}` is listed in `fingerprint(..)`; remove it there, or this"),
        );
    }
    let whole = matches!(expr, Expr::Path(_));
    let ty = parameter.ty.clone().filter(|_| whole);
    Some(Compared {
        cfgs: parameter.cfgs.clone(),
        name,
        value: expr,
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

fn length(name: &str, time: Option<Time>, limits: &Limits, errors: &mut Errors) -> Option<Length> {
    match time? {
        Time::Expr(expr) => Some(Length::Expr(expr)),
        Time::Forever(word) => {
            let message = if name == "ttl" || name == "error_ttl" {
                format!(
                    "`{name} = forever` needs a SQL store, which this version does not have; write a duration \
                     such as \"365d\""
                )
            } else {
                format!("`{name}` cannot be `forever`; write a duration such as \"30s\"")
            };
            errors.at(word.span(), message);
            None
        }
        Time::Text(text) => match duration::millis(&text.value()) {
            Ok(millis) if millis < limits.0 || millis > limits.1 => {
                let (least, most) = (duration::words(limits.0), duration::words(limits.1));
                errors.at(
                    text.span(),
                    format!("`{name}` is between {least} and {most}"),
                );
                None
            }
            Ok(millis) => Some(Length::Millis(millis)),
            Err(mistake) => {
                errors.at(
                    text.span(),
                    format!("`{name}` {}", advice(name, &mistake, limits)),
                );
                None
            }
        },
    }
}

/// Zero often means "not at all", for which there is another argument.
fn advice(name: &str, mistake: &Mistake, limits: &Limits) -> String {
    match (mistake, name) {
        (Mistake::Zero, "wait") => "is zero; not to wait is `on_running = reject`".to_owned(),
        (Mistake::Zero, "error_ttl") => {
            "is zero; not to keep errors is `on_error = release`".to_owned()
        }
        (Mistake::Zero, _) => format!("is zero; write at least \"{}\"", duration::words(limits.0)),
        _ => mistake.to_string(),
    }
}
