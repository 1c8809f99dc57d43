//! The parameters of a template.

/// A part of a template.
pub(super) enum TemplatePiece<'a> {
    Text(&'a str),
    /// An argument, counted from zero.
    Argument(usize),
}

/// Splits a template at its parameters (`?1`).
pub(super) fn split<'a>(template: &'a str, mut take: impl FnMut(TemplatePiece<'a>)) {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('?') {
        take(TemplatePiece::Text(before));
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = after[..digits].parse::<usize>().unwrap_or(1);
        take(TemplatePiece::Argument(number - 1));
        rest = &after[digits..];
    }
    take(TemplatePiece::Text(rest));
}

/// `?1 … ?2 … ?1` as `? … ? … ?`, of the arguments 0, 1 and 0.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn positional(template: &str) -> (String, Vec<usize>) {
    let (mut text, mut order) = (String::with_capacity(template.len()), Vec::new());
    split(template, |piece| match piece {
        TemplatePiece::Text(piece) => text.push_str(piece),
        TemplatePiece::Argument(index) => {
            text.push('?');
            order.push(index);
        }
    });
    (text, order)
}
