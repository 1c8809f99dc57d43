//! Expressions that name a call: `key` and `scope`.

use crate::format::{A_TUPLE, Format, captures};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

/// Maximum length of a tuple that serde serializes.
const MAX_ELEMENTS: usize = 16;

/// An expression passed to the runtime without moving the values it mentions.
pub(crate) enum Value {
    /// Each element by reference: `(req.a, req.b)` would move two fields.
    Tuple(Span, Vec<Self>),
    /// A string literal is a format string with inline captures.
    Format(LitStr, Format),
    Expr(Expr),
}

impl Value {
    /// `names`: the arguments of the function.
    pub(crate) fn new(expr: Expr, names: &[String]) -> Result<Self> {
        Ok(match unwrapped(expr) {
            Expr::Tuple(tuple) if tuple.elems.len() > MAX_ELEMENTS => {
                let message = format!(
                    "a tuple may have at most {MAX_ELEMENTS} elements here; group some into an inner tuple"
                );
                return Err(Error::new(tuple.span(), message));
            }
            Expr::Tuple(tuple) => Self::Tuple(
                tuple.span(),
                tuple
                    .elems
                    .into_iter()
                    .map(|element| Self::new(element, names))
                    .collect::<Result<_>>()?,
            ),
            other => match literal(&other) {
                Some(text) => Self::Format(text.clone(), Format::of(text, A_TUPLE)?),
                None => Self::Expr(with_formatted_texts(other, names)?),
            },
        })
    }
}

/// Whether the expression looks like `idem_runtime::token::token(..)`; only its type decides.
pub(crate) fn may_be_token(expr: &Expr) -> bool {
    token_arguments(expr).is_some()
}

/// Whether the expression looks like `token(text, subject)`.
pub(crate) fn is_token_of_subject(expr: &Expr) -> bool {
    token_arguments(expr) == Some(2)
}

fn token_arguments(expr: &Expr) -> Option<usize> {
    let Expr::Call(call) = peeled(expr) else {
        return None;
    };
    let Expr::Path(path) = &*call.func else {
        return None;
    };
    let last = path.path.segments.last()?;
    (last.ident == "token").then_some(call.args.len())
}

/// The expression without parentheses, and without the invisible delimiters of a `$value:expr`.
pub(crate) fn peeled(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => peeled(&paren.expr),
        Expr::Group(group) => peeled(&group.expr),
        other => other,
    }
}

/// [`peeled`], by value.
pub(crate) fn unwrapped(expr: Expr) -> Expr {
    match expr {
        Expr::Paren(paren) => unwrapped(*paren.expr),
        Expr::Group(group) => unwrapped(*group.expr),
        other => other,
    }
}

/// The expression without the invisible delimiters of a `$value:expr`: parentheses mean their content.
pub(crate) fn ungrouped(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungrouped(*group.expr),
        other => other,
    }
}

pub(crate) fn literal(expr: &Expr) -> Option<&LitStr> {
    match expr {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

/// Span of the start of an expression; with a nightly compiler, of all of it.
pub(crate) fn span(expr: &Expr) -> Span {
    expr.span()
}

/// Whether the value is the same for every call.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    match peeled(expr) {
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_constant),
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => {
                Format::of(text, A_TUPLE).is_ok_and(|format| format.placeholders.is_empty())
            }
            _ => true,
        },
        Expr::Unary(unary) => is_constant(&unary.expr),
        Expr::Reference(reference) => is_constant(&reference.expr),
        _ => false,
    }
}

/// Whether the expression, or its format string, mentions one of `names`.
///
/// Shadowing is ignored: the purpose is to catch a key that never varies.
pub(crate) fn mentions(expr: &Expr, names: &[String]) -> bool {
    mention(expr, names).is_some()
}

/// The first of `names` in the expression, and its span.
pub(crate) fn mention(expr: &Expr, names: &[String]) -> Option<(String, Span)> {
    first(expr.to_token_stream(), names)
}

/// Whether the tokens mention one of `names` other than as a field.
pub(crate) fn any(tokens: TokenStream, names: &[String]) -> bool {
    first(tokens, names).is_some()
}

fn first(tokens: TokenStream, names: &[String]) -> Option<(String, Span)> {
    let known = |name: &String| names.contains(name);
    let mut after_dot = false;
    for token in tokens {
        let found = match &token {
            TokenTree::Ident(ident) => Some(bare(ident))
                .filter(|name| !after_dot && known(name))
                .map(|name| (name, ident.span())),
            TokenTree::Group(group) => first(group.stream(), names),
            TokenTree::Literal(literal) => match Lit::new(literal.clone()) {
                Lit::Str(text) => {
                    let captured = captures(&text.value()).into_iter().find(known);
                    captured.map(|name| (name, text.span()))
                }
                _ => None,
            },
            TokenTree::Punct(_) => None,
        };
        if found.is_some() {
            return found;
        }
        // The second dot of `..` does not begin a field.
        after_dot =
            !after_dot && matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
    }
    None
}

/// Possible argument names: identifiers that are no fields, calls or path segments, and captures of format
/// strings; with their spans.
pub(crate) fn variables(expr: &Expr) -> Vec<(String, Span)> {
    let mut found = Vec::new();
    collect(expr.to_token_stream(), &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<(String, Span)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punct = |at: Option<usize>, chars: &str| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Punct(punct)) if chars.contains(punct.as_char()))
    };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) => {
                let called = matches!(tokens.get(at + 1), Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Parenthesis);
                if !called && !punct(at.checked_sub(1), ".:") && !punct(Some(at + 1), ":!") {
                    found.push((bare(ident), ident.span()));
                }
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal.clone()) {
                    let names = captures(&text.value()).into_iter();
                    found.extend(names.map(|name| (name, text.span())));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// The expression, unless a text in it looks like its format string.
///
/// `&"{order}"` is the same text for every call: a literal is formatted as the whole value, or by a macro.
pub(crate) fn with_formatted_texts(expr: Expr, names: &[String]) -> Result<Expr> {
    unformatted(expr.to_token_stream(), names).map_or(Ok(expr), |(name, span)| {
        let message = format!(
            "`{{{name}}}` is not filled in here; write the string literal without anything around it, or \
             `format!(\"{{{name}}}\")`"
        );
        Err(Error::new(span, message))
    })
}

/// An argument's name in a text outside of macros, with its span.
fn unformatted(tokens: TokenStream, names: &[String]) -> Option<(String, Span)> {
    // An identifier and `!` before a group: its tokens are those of a macro.
    let (mut after_name, mut of_macro) = (false, false);
    for token in tokens {
        let found = match &token {
            TokenTree::Group(group) if !of_macro => unformatted(group.stream(), names),
            TokenTree::Literal(_) => first(token.clone().into(), names),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
        let is_bang = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '!');
        of_macro = after_name && is_bang;
        after_name = matches!(token, TokenTree::Ident(_));
    }
    None
}

fn bare(ident: &Ident) -> String {
    ident.unraw().to_string()
}

#[cfg(test)]
mod tests {
    use super::{is_constant, mentions, variables, with_formatted_texts};
    use syn::{Expr, parse_str};

    fn expr(text: &str) -> Expr {
        parse_str(text).expect("an expression")
    }

    #[test]
    fn a_value_without_a_name_is_constant() {
        for text in [
            "1",
            "-1",
            "true",
            "\"pay\"",
            "(1, \"a\")",
            "()",
            "(\"a\")",
            "&\"a\"",
        ] {
            assert!(is_constant(&expr(text)), "{text}");
        }
        for text in ["a", "\"{a}\"", "(1, a)", "(1, \"{a}\")", "f(1)"] {
            assert!(!is_constant(&expr(text)), "{text}");
        }
    }

    #[test]
    fn a_variable_is_no_field_and_no_function() {
        let text = "(a.b, c(d), e!(f), g::h, &i, \"{j}\", format!(\"{k:?}\"), l[0].m)";
        let names = variables(&expr(text)).into_iter().map(|(name, _)| name);
        let names: Vec<String> = names.collect();
        assert_eq!(names, ["a", "d", "f", "i", "j", "k", "l"]);
    }

    #[test]
    fn a_text_is_formatted_by_a_macro_alone() {
        let names = ["id".to_owned()];
        for text in [
            "&\"{id}\"",
            "\"{id}\".to_owned()",
            "String::from(\"a {id:?}\")",
            "[f(1), \"{id}\"]",
            "a && !(\"{id}\" == b)",
        ] {
            assert!(with_formatted_texts(expr(text), &names).is_err(), "{text}");
        }
        for text in [
            "format!(\"{id}\")",
            "a::format![(\"{id}\")].trim()",
            "\"{{id}}\".len()",
            "f(\"{other}\", id)",
            "id",
        ] {
            assert!(with_formatted_texts(expr(text), &names).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_field_of_the_same_name_is_no_mention() {
        let names = ["self", "id"].map(str::to_owned);
        assert!(mentions(&expr("id"), &names));
        assert!(mentions(&expr("f(&id.0)"), &names));
        assert!(mentions(&expr("\"{id}\""), &names));
        assert!(mentions(&expr("format!(\"{id}\")"), &names));
        assert!(mentions(&expr("format!(\"{id}{}\", 1)"), &names));
        assert!(mentions(&expr("format!(\"{:>id$}\", 1)"), &names));
        assert!(mentions(&expr("self.id"), &names));
        assert!(mentions(&expr("0..id"), &names));
        assert!(!mentions(&expr("CONFIG.id"), &names));
        assert!(!mentions(&expr("\"id\""), &names));
        assert!(!mentions(&expr("self.id"), &names[1..]));
    }
}
