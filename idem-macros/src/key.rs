//! Expressions that name a call: `key` and `scope`.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

/// The longest tuple that serde serializes.
const MOST_ELEMENTS: usize = 16;

/// How an expression is handed to the runtime without moving what it mentions.
pub(crate) enum Value {
    /// Each element by reference: `(req.a, req.b)` would move two fields.
    Tuple(Span, Vec<Self>),
    /// A string literal is a format string with inline captures.
    Format(LitStr),
    Expr(Expr),
}

impl Value {
    pub(crate) fn new(expr: Expr) -> Result<Self> {
        Ok(match expr {
            Expr::Tuple(tuple) if tuple.elems.len() > MOST_ELEMENTS => {
                let message = format!(
                    "a tuple has at most {MOST_ELEMENTS} parts here; put some into a tuple of their own"
                );
                return Err(Error::new(tuple.span(), message));
            }
            Expr::Tuple(tuple) => Self::Tuple(
                tuple.span(),
                tuple
                    .elems
                    .into_iter()
                    .map(Self::new)
                    .collect::<Result<_>>()?,
            ),
            Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) => {
                placeholders(&text.value()).map_err(|message| Error::new(text.span(), message))?;
                Self::Format(text)
            }
            Expr::Paren(paren) => Self::new(*paren.expr)?,
            Expr::Group(group) => Self::new(*group.expr)?,
            other => Self::Expr(other),
        })
    }
}

/// Whether this looks like `idem_runtime::token(..)`: only its type can tell.
pub(crate) fn may_be_token(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => {
                let last = path.path.segments.last();
                last.is_some_and(|segment| segment.ident == "token")
            }
            _ => false,
        },
        Expr::Paren(paren) => may_be_token(&paren.expr),
        Expr::Group(group) => may_be_token(&group.expr),
        _ => false,
    }
}

/// Where an expression begins; with a nightly compiler, all of it.
pub(crate) fn span(expr: &Expr) -> Span {
    expr.span()
}

/// Whether the value is the same for every call.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => placeholders(&text.value()).is_ok_and(|names| names.is_empty()),
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_constant),
        Expr::Lit(_) => true,
        Expr::Unary(unary) => is_constant(&unary.expr),
        Expr::Paren(paren) => is_constant(&paren.expr),
        Expr::Group(group) => is_constant(&group.expr),
        Expr::Reference(reference) => is_constant(&reference.expr),
        _ => false,
    }
}

/// The names captured by a format string; an error for what names nothing.
pub(crate) fn placeholders(text: &str) -> std::result::Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let inside = &rest[open + 1..];
        if let Some(after) = inside.strip_prefix('{') {
            rest = after;
            continue;
        }
        let Some((placeholder, after)) = inside.split_once('}') else {
            return Err(format!(
                "`{{{inside}` is not closed; write `{{order_id}}` for a value, `{{{{` for a brace"
            ));
        };
        rest = after;
        let name = placeholder.split(':').next().unwrap_or_default().trim();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!(
                "`{{{placeholder}}}` names no argument; write a name between the braces, such as `{{order_id}}`"
            ));
        }
        if name.contains(|c: char| !c.is_alphanumeric() && c != '_' && c != '#') {
            return Err(format!(
                "`{{{placeholder}}}` is not a name; write the value itself, `{name}`, or a tuple of values \
                 instead of a string"
            ));
        }
        names.push(name.trim_start_matches("r#").to_owned());
    }
    Ok(names)
}

/// Whether the expression names one of `names`, be it in a format string.
///
/// Shadowing is not looked at: what matters is to catch a key that varies with nothing.
pub(crate) fn mentions(expr: &Expr, names: &[String]) -> bool {
    any(expr.to_token_stream(), names)
}

/// Whether the tokens name one of `names`, and not as a field.
pub(crate) fn any(tokens: TokenStream, names: &[String]) -> bool {
    let known = |name: &String| names.contains(name);
    let mut after_dot = false;
    for token in tokens {
        let found = match &token {
            TokenTree::Ident(ident) => !after_dot && known(&bare(ident)),
            TokenTree::Group(group) => any(group.stream(), names),
            TokenTree::Literal(literal) => match Lit::new(literal.clone()) {
                Lit::Str(text) => {
                    placeholders(&text.value()).is_ok_and(|captured| captured.iter().any(known))
                }
                _ => false,
            },
            TokenTree::Punct(_) => false,
        };
        if found {
            return true;
        }
        // The second dot of `..` does not begin a field.
        after_dot =
            !after_dot && matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
    }
    false
}

/// What may be meant to be arguments: names that are neither fields nor called nor parts of paths, and the names
/// in format strings; and where they stand.
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
                    let names = placeholders(&text.value()).unwrap_or_default();
                    found.extend(names.into_iter().map(|name| (name, text.span())));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

fn bare(ident: &Ident) -> String {
    ident.unraw().to_string()
}

#[cfg(test)]
mod tests {
    use super::{is_constant, mentions, placeholders, variables};
    use syn::{Expr, parse_str};

    fn expr(text: &str) -> Expr {
        parse_str(text).expect("an expression")
    }

    #[test]
    fn placeholders_are_names() {
        assert_eq!(
            placeholders("a {b} {{c}} {d:>4}"),
            Ok(vec!["b".to_owned(), "d".to_owned()])
        );
        assert_eq!(placeholders("nothing"), Ok(vec![]));
        assert!(placeholders("{}").is_err_and(|message| message.contains("names no argument")));
        assert!(placeholders("{0}").is_err());
        assert!(placeholders("a {b").is_err_and(|message| message.contains("not closed")));
        assert!(placeholders("{req.id}").is_err_and(|message| message.contains("`req.id`")));
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
    fn a_field_of_the_same_name_is_no_mention() {
        let names = ["self", "id"].map(str::to_owned);
        assert!(mentions(&expr("id"), &names));
        assert!(mentions(&expr("f(&id.0)"), &names));
        assert!(mentions(&expr("\"{id}\""), &names));
        assert!(mentions(&expr("format!(\"{id}\")"), &names));
        assert!(mentions(&expr("self.id"), &names));
        assert!(mentions(&expr("0..id"), &names));
        assert!(!mentions(&expr("CONFIG.id"), &names));
        assert!(!mentions(&expr("\"id\""), &names));
        assert!(!mentions(&expr("self.id"), &names[1..]));
    }
}
