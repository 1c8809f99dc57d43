//! Format strings with inline captures, as keys, scopes and labels.

use syn::{Error, LitStr, Result};

/// The advice for a placeholder of a key that has an expression.
pub(crate) const A_TUPLE: &str = "a tuple of values";

/// A parsed string literal: its text and its placeholders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    /// The literal with `{}` for each placeholder; a brace of the text stays doubled.
    ///
    /// Two literals have one template only where they have the same text between the same number of placeholders.
    pub(crate) template: String,
    /// Contents of the braces, format specifications included: `order:>4`.
    pub(crate) placeholders: Vec<String>,
}

impl Format {
    /// # Errors
    ///
    /// The defect of the literal, and the correct form: for an expression in a placeholder, this one.
    pub(crate) fn of(text: &LitStr, of_expression: &str) -> Result<Self> {
        let format = Self::parse(&text.value(), of_expression);
        format.map_err(|message| Error::new(text.span(), message))
    }

    fn parse(text: &str, of_expression: &str) -> std::result::Result<Self, String> {
        let mut format = Self::default();
        for piece in Pieces(text) {
            match piece {
                Piece::Text(text) => format.template.push_str(text),
                Piece::Placeholder(placeholder) => {
                    check(placeholder, of_expression)?;
                    format.template.push_str("{}");
                    format.placeholders.push(placeholder.to_owned());
                }
                Piece::NotClosed(rest) => {
                    return Err(format!(
                        "`{{{rest}` is not closed; write `{{order_id}}` for a value, `{{{{` for a brace"
                    ));
                }
                Piece::NotOpened => {
                    return Err(
                        "a `}` closes no placeholder here; write `}}` for a brace".to_owned()
                    );
                }
            }
        }
        Ok(format)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let names = self.placeholders.iter();
        names.map(|text| name(text).trim_start_matches("r#").to_owned())
    }

    /// The text of a literal without placeholders.
    pub(crate) fn text(&self) -> String {
        self.template.replace("{{", "{").replace("}}", "}")
    }
}

/// Names that a literal captures, including literals with positional arguments (`format!("{id}{}", 1)`).
pub(crate) fn captures(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for piece in Pieces(text) {
        if let Piece::Placeholder(placeholder) = piece {
            let (name, spec) = placeholder.split_once(':').unwrap_or((placeholder, ""));
            names.push(name.trim());
            // A width or a precision: `{amount:>width$}`.
            let counts = spec.split('$').rev().skip(1);
            names.extend(counts.map(|text| {
                let begin = text.rfind(|c: char| !is_of_name(c));
                begin.map_or(text, |at| text[at..].trim_start_matches(|c| !is_of_name(c)))
            }));
        }
    }
    let names = names
        .into_iter()
        .filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .map(|name| name.trim_start_matches("r#").to_owned());
    names.collect()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn name(placeholder: &str) -> &str {
    placeholder.split(':').next().unwrap_or_default().trim()
}

fn check(placeholder: &str, of_expression: &str) -> std::result::Result<(), String> {
    let name = name(placeholder);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "`{{{placeholder}}}` names no argument; write a name between the braces, such as `{{order_id}}`"
        ));
    }
    if name.contains(|c: char| !is_of_name(c) && c != '#') {
        return Err(format!(
            "`{{{placeholder}}}` is not a name; write the value itself, `{name}`, or {of_expression} \
             instead of a string"
        ));
    }
    Ok(())
}

enum Piece<'a> {
    /// Literal text as written: a brace is doubled.
    Text(&'a str),
    /// Contents of the braces.
    Placeholder(&'a str),
    /// A `{` without its `}`, and the text after it.
    NotClosed(&'a str),
    /// A lone `}`.
    NotOpened,
}

struct Pieces<'a>(&'a str);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let rest = self.0;
        let begin = rest.chars().next()?;
        if begin != '{' && begin != '}' {
            let (text, after) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
            self.0 = after;
            return Some(Piece::Text(text));
        }
        let after = &rest[1..];
        if after.starts_with(begin) {
            let (brace, after) = rest.split_at(2);
            self.0 = after;
            return Some(Piece::Text(brace));
        }
        if begin == '}' {
            self.0 = after;
            return Some(Piece::NotOpened);
        }
        let Some((placeholder, after)) = after.split_once('}') else {
            self.0 = "";
            return Some(Piece::NotClosed(after));
        };
        self.0 = after;
        Some(Piece::Placeholder(placeholder))
    }
}

#[cfg(test)]
mod tests {
    use super::{A_TUPLE, Format, captures};
    use std::collections::HashMap;

    fn parsed(text: &str) -> (String, Vec<String>) {
        let format = Format::parse(text, A_TUPLE).expect("a format string");
        (format.template, format.placeholders)
    }

    #[test]
    fn names_and_specifications_are_no_part_of_the_template() {
        let (template, placeholders) = parsed("a {b} {{c}} {d:>4}{e:?}");
        assert_eq!(template, "a {} {{c}} {}{}");
        assert_eq!(placeholders, ["b", "d:>4", "e:?"]);
        assert_eq!(parsed("{a}/{b}").0, parsed("{tenant}/{order_no}").0);
        assert_eq!(parsed("{{{a}}}"), ("{{{}}}".into(), vec!["a".into()]));
        assert_eq!(Format::parse("{{a}} }}", A_TUPLE).unwrap().text(), "{a} }");
    }

    #[test]
    fn a_placeholder_is_a_name() {
        let error = |text| Format::parse(text, A_TUPLE).expect_err("a mistake");
        assert!(error("{}").contains("names no argument"));
        assert!(error("{0}").contains("names no argument"));
        assert!(error("a {b").contains("not closed"));
        assert!(error("{req.id}").contains("`req.id`"));
        assert!(error("a } b").contains("closes no placeholder"));
        assert!(error("{a:}>4}").contains("closes no placeholder"));
    }

    #[test]
    fn captures_are_found_in_any_format_string() {
        assert_eq!(
            captures("{a} {{b}} {c:>4} {} {0} {d:>e$.f$} {r#g} {:?}"),
            ["a", "c", "d", "f", "e", "g"]
        );
        assert_eq!(captures("{a} }"), ["a"]);
    }

    /// The text between placeholders, by a second, character-wise parser.
    fn texts(literal: &str) -> Option<Vec<String>> {
        let mut texts = vec![String::new()];
        let mut chars = literal.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.next_if_eq(&c).is_some() => texts.last_mut()?.push(c),
                '{' => {
                    let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
                    texts.push(String::new());
                    // The last brace may be missing, but then `Format` reports it.
                    name.chars().all(|c| c == 'a').then_some(())?;
                }
                '}' => return None,
                other => texts.last_mut()?.push(other),
            }
        }
        Some(texts)
    }

    /// All literals of up to eight of these characters: equal templates imply equal text between placeholders.
    #[test]
    fn one_template_is_one_text_between() {
        let mut of_template: HashMap<String, Vec<String>> = HashMap::new();
        let mut of_texts: HashMap<Vec<String>, String> = HashMap::new();
        let mut literals = vec![String::new()];
        let mut checked = 0;
        while let Some(literal) = literals.pop() {
            if literal.len() < 8 {
                literals.extend(['{', '}', 'a', '/'].map(|c| format!("{literal}{c}")));
            }
            let Ok(format) = Format::parse(&literal, A_TUPLE) else {
                continue;
            };
            let texts = texts(&literal).expect("what is parsed is well-formed");
            assert_eq!(texts.len(), format.placeholders.len() + 1, "{literal}");
            let template = format.template;
            let earlier = of_template.insert(template.clone(), texts.clone());
            assert!(earlier.is_none_or(|earlier| earlier == texts), "{literal}");
            let earlier = of_texts.insert(texts, template.clone());
            assert!(
                earlier.is_none_or(|earlier| earlier == template),
                "{literal}"
            );
            checked += 1;
        }
        assert!(checked > 1_000, "{checked}");
    }
}
