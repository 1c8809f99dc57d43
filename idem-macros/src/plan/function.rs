//! The function as the checks of the arguments see it.

use crate::key;
use crate::nearest::nearest;
use crate::target::Parameter;
use crate::types;
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, FnArg, GenericParam, Ident, Result, Signature};

pub(super) struct Function<'a> {
    pub(super) sig: &'a Signature,
    pub(super) parameters: &'a [Parameter],
    /// Names that the parameters bind.
    pub(super) names: Vec<String>,
    /// Those of them that hold a client's key.
    pub(super) client_keys: Vec<String>,
}

impl<'a> Function<'a> {
    pub(super) fn new(sig: &'a Signature, parameters: &'a [Parameter]) -> Self {
        let names = parameters.iter().flat_map(|parameter| &parameter.names);
        let client_keys = parameters.iter().flat_map(|known| &known.client_keys);
        Self {
            sig,
            parameters,
            names: names.map(bare).collect(),
            client_keys: client_keys.map(bare).collect(),
        }
    }

    pub(super) fn parameter(&self, name: &Ident) -> Option<&'a Parameter> {
        let mut parameters = self.parameters.iter();
        parameters.find(|parameter| parameter.names.contains(name))
    }

    /// Error for a name that is no argument, with a guess; else it ends with `otherwise`.
    pub(super) fn no_argument(&self, name: &impl ToString, otherwise: &str) -> String {
        let (name, function) = (name.to_string(), &self.sig.ident);
        let hint = match (self.meant(name.trim_start_matches("r#")), self.hidden()) {
            (Some(meant), _) => format!("; did you mean `{meant}`?"),
            (None, Some(hint)) => format!("; {hint}"),
            (None, None) => otherwise.to_owned(),
        };
        format!("`{name}` is not an argument of `{function}`{hint}")
    }

    /// Refuses an expression with a name that is probably a misspelt argument.
    pub(super) fn check_names(&self, expr: &Expr) -> Result<()> {
        let variables = key::variables(expr).into_iter();
        let mut misspelt = variables.filter(|(name, _)| self.meant(name).is_some());
        match misspelt.next() {
            Some((name, span)) => Err(Error::new(span, self.no_argument(&name, ""))),
            None => Ok(()),
        }
    }

    /// The argument whose name was probably misspelt.
    fn meant(&self, name: &str) -> Option<&str> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        nearest(name, &names)
    }

    /// `#[async_trait]` expands first: it replaces a pattern by `__arg1` and destructures it in the body.
    pub(super) fn hidden(&self) -> Option<&'static str> {
        let mut names = self.names.iter();
        names.any(|name| name.starts_with("__arg")).then_some(
            "under `#[async_trait]` the names of a pattern are not visible; name the argument, and destructure \
             it in the body",
        )
    }

    /// The first parameter that makes the function generic over types. Lifetimes do not reach the record.
    pub(super) fn generic(&self) -> Option<Span> {
        let written = self
            .sig
            .generics
            .params
            .iter()
            .find_map(|param| match param {
                GenericParam::Lifetime(_) => None,
                GenericParam::Type(param) => Some(param.ident.span()),
                GenericParam::Const(param) => Some(param.ident.span()),
            });
        let mut inputs = self.sig.inputs.iter();
        written.or_else(|| {
            inputs.find_map(|input| match input {
                FnArg::Typed(typed) if types::mentions_impl(&typed.ty) => Some(typed.ty.span()),
                _ => None,
            })
        })
    }
}

pub(super) fn bare(name: &Ident) -> String {
    name.unraw().to_string()
}
