//! Parts of a form ([RFC 7578](https://www.rfc-editor.org/rfc/rfc7578)), independent of its boundary.
//!
//! This is no parser of forms: the bytes between the delimiter lines are taken as they are, headers included. That is
//! sound because a form is refused whose delimiter, `--` and the boundary, occurs anywhere else: no parser, however
//! lenient about line ends and blanks, then sees other parts. With the parts, and any boundary that is in none of them,
//! a form can be written again: two forms of the same parts differ in their boundary alone.

/// The boundary of a form, by its `Content-Type`.
///
/// `None` for any other type, for a boundary that RFC 2046 does not allow, and for one with other parameters.
pub(super) fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let at = content_type.iter().position(|byte| *byte == b';')?;
    let (essence, parameter) = content_type.split_at(at);
    if !essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"multipart/form-data")
    {
        return None;
    }
    let parameter = parameter[1..].trim_ascii();
    let (name, value) = parameter.split_at_checked(b"boundary=".len())?;
    if !name.eq_ignore_ascii_case(b"boundary=") {
        return None;
    }
    let quoted = value
        .strip_prefix(b"\"")
        .map(|value| value.strip_suffix(b"\""));
    let (boundary, allowed): (_, &[u8]) = match quoted {
        None => (value, b"'+_-."),
        Some(inner) => (inner?, b"'()+_,-./:=? "),
    };
    let fits = (1..=70).contains(&boundary.len()) && !boundary.ends_with(b" ");
    let mut bytes = boundary.iter();
    (fits && bytes.all(|byte| byte.is_ascii_alphanumeric() || allowed.contains(byte)))
        .then_some(boundary)
}

/// The parts of a form in order, then the bytes after it.
///
/// These are nothing, or a line break. `None` for input that is not exactly a form.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Option<impl Iterator<Item = &'a [u8]>> {
    let delimiter = [b"--", boundary].concat();
    let mut parts = Vec::new();
    // The start of the part that the next delimiter ends.
    let mut start = None;
    let mut is_closed = false;
    for at in occurrences(body, &delimiter) {
        if is_closed {
            return None;
        }
        match start {
            None if at == 0 => {}
            None => return None,
            Some(start) => {
                let part = body.get(start..at)?;
                parts.push(part.strip_suffix(b"\r\n")?);
            }
        }
        let rest = &body[at + delimiter.len()..];
        if rest.starts_with(b"\r\n") {
            start = Some(body.len() - rest.len() + 2);
        } else {
            let end = rest.strip_prefix(b"--")?;
            if !matches!(end, b"" | b"\r\n") {
                return None;
            }
            parts.push(end);
            is_closed = true;
        }
    }
    is_closed.then(|| parts.into_iter())
}

/// The positions of `needle`, not empty, in `text`, with overlapping ones.
///
/// Linear in the length of both, for any input (Knuth, Morris and Pratt).
fn occurrences(text: &[u8], needle: &[u8]) -> Vec<usize> {
    // The length of the longest border of each prefix of the needle.
    let mut borders = vec![0; needle.len()];
    let mut matched = 0;
    for at in 1..needle.len() {
        while matched > 0 && needle[at] != needle[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(needle[at] == needle[matched]);
        borders[at] = matched;
    }
    let mut found = Vec::new();
    matched = 0;
    for (at, byte) in text.iter().enumerate() {
        while matched > 0 && (matched == needle.len() || *byte != needle[matched]) {
            matched = borders[matched - 1];
        }
        matched += usize::from(*byte == needle[matched]);
        if matched == needle.len() {
            found.push(at + 1 - needle.len());
        }
    }
    found
}

#[cfg(test)]
mod tests;
