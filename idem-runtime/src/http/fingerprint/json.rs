//! Canonical form of JSON documents ([RFC 8259](https://www.rfc-editor.org/rfc/rfc8259)).
//!
//! Only strings and the form of numbers are parsed by `serde_json`: its numbers are doubles and its objects lose a name that
//! occurs twice, and two documents of different amounts must not be one. The output is the document without whitespace, each object
//! sorted by name, each string with as few escapes as possible, numbers as they came or by their value, and a comma after
//! each member and element. That is unambiguous: the output of two documents is equal only if they differ in nothing else.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::http::pointer::Pointer;

/// The limit of `serde_json`.
const DEEPEST: usize = 128;

/// What counts of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Its text.
    #[default]
    AsWritten,
    /// Its exact value.
    ByValue,
}

/// The canonical form of a document, without the values at these pointers.
///
/// `None` for input that is not one document that all parsers read alike.
pub(super) fn canonical(body: &[u8], without: &[Pointer], numbers: Numbers) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = JsonReader {
        text,
        numbers,
        at: 0,
        out: Vec::with_capacity(body.len()),
    };
    let without: Vec<&[String]> = without.iter().map(Pointer::names).collect();
    reader.value(&without, DEEPEST)?;
    reader.blanks();
    (reader.at == text.len()).then_some(reader.out)
}

/// Rests of pointers whose beginning led to a value; none is empty.
type Places<'p> = [&'p [String]];

/// The pointers into the child of this name; `None`: it is excluded.
fn within<'p>(places: &Places<'p>, name: &str) -> Option<Vec<&'p [String]>> {
    let mut inner = Vec::new();
    for place in places {
        match place.split_first() {
            Some((first, [])) if first == name => return None,
            Some((first, rest)) if first == name => inner.push(rest),
            _ => {}
        }
    }
    Some(inner)
}

struct JsonReader<'a> {
    text: &'a str,
    numbers: Numbers,
    at: usize,
    out: Vec<u8>,
}

/// A written member: start and end of its name, and its end.
struct WrittenMember {
    start: usize,
    name_end: usize,
    /// That of the name, for a member that does not count.
    end: usize,
}

impl<'a> JsonReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Consumes this byte, after blanks.
    fn takes(&mut self, byte: u8) -> bool {
        self.blanks();
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self, without: &Places<'_>, depth: usize) -> Option<()> {
        self.blanks();
        match self.peek()? {
            b'{' => self.object(without, depth.checked_sub(1)?),
            b'[' => self.array(without, depth.checked_sub(1)?),
            b'"' => self.string().map(drop),
            _ => self.scalar(),
        }
    }

    /// Writes a number, or one of the three words.
    fn scalar(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let end = rest.find([',', ']', '}', ' ', '\t', '\n', '\r']);
        let scalar = &rest[..end.unwrap_or(rest.len())];
        serde_json::from_str::<IgnoredAny>(scalar).ok()?;
        let is_number = scalar.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if is_number && self.numbers == Numbers::ByValue {
            write_value(scalar, &mut self.out);
        } else {
            self.out.extend_from_slice(scalar.as_bytes());
        }
        self.at += scalar.len();
        Some(())
    }

    /// Writes a string, and returns its characters.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let rest = &self.text[self.at..];
        let (mut end, mut has_escapes) = (1, false);
        loop {
            end += rest.get(end..)?.find(['"', '\\'])?;
            if rest.as_bytes()[end] == b'"' {
                break;
            }
            (end, has_escapes) = (end + 2, true);
        }
        let written = &rest[..=end];
        self.at += written.len();
        if has_escapes {
            let text: String = serde_json::from_str(written).ok()?;
            serde_json::to_writer(&mut self.out, &text).ok()?;
            return Some(Cow::Owned(text));
        }
        let text = serde_json::from_str(written).ok()?;
        self.out.extend_from_slice(written.as_bytes());
        Some(Cow::Borrowed(text))
    }

    fn array(&mut self, without: &Places<'_>, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push(b'[');
        if !self.takes(b']') {
            for index in 0_usize.. {
                let start = self.out.len();
                let places = match without {
                    [] => Some(Vec::new()),
                    _ => within(without, &index.to_string()),
                };
                self.value(places.as_deref().unwrap_or_default(), depth)?;
                self.out.push(b',');
                if places.is_none() {
                    self.out.truncate(start);
                }
                if self.takes(b']') {
                    break;
                }
                self.takes(b',').then_some(())?;
            }
        }
        self.out.push(b']');
        Some(())
    }

    fn object(&mut self, without: &Places<'_>, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push(b'{');
        let start = self.out.len();
        let mut members = Vec::new();
        if !self.takes(b'}') {
            loop {
                members.push(self.member(without, depth)?);
                if self.takes(b'}') {
                    break;
                }
                self.takes(b',').then_some(())?;
            }
        }
        self.sort(start, members)?;
        self.out.push(b'}');
        Some(())
    }

    fn member(&mut self, without: &Places<'_>, depth: usize) -> Option<WrittenMember> {
        self.blanks();
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.out.len();
        let name = self.string()?;
        let places = match without {
            [] => Some(Vec::new()),
            _ => within(without, &name),
        };
        let name_end = self.out.len();
        self.takes(b':').then_some(())?;
        self.out.push(b':');
        self.value(places.as_deref().unwrap_or_default(), depth)?;
        self.out.push(b',');
        if places.is_none() {
            self.out.truncate(name_end);
        }
        let end = self.out.len();
        Some(WrittenMember {
            start,
            name_end,
            end,
        })
    }

    /// Sorts the members from `start` on by name, and removes excluded ones.
    ///
    /// `None` if two have the same name.
    fn sort(&mut self, start: usize, mut members: Vec<WrittenMember>) -> Option<()> {
        let in_order = members.is_sorted_by(|a, b| self.name(a) < self.name(b));
        if in_order && members.iter().all(WrittenMember::counts) {
            return Some(());
        }
        members.sort_unstable_by(|a, b| self.name(a).cmp(self.name(b)));
        if !members.is_sorted_by(|a, b| self.name(a) < self.name(b)) {
            return None;
        }
        let written = self.out.split_off(start);
        for member in members.iter().filter(|member| member.counts()) {
            let member = &written[member.start - start..member.end - start];
            self.out.extend_from_slice(member);
        }
        Some(())
    }

    fn name(&self, member: &WrittenMember) -> &[u8] {
        &self.out[member.start..member.name_end]
    }
}

impl WrittenMember {
    fn counts(&self) -> bool {
        self.end > self.name_end
    }
}

/// Writes a number of JSON by its exact value.
///
/// Its digits without zeros at either end, and a power of ten.
///
/// The output is a JSON number of the same value, so that two numbers of different values never are the same bytes. A
/// power of ten beyond an `i64` stays as it came, and then two notations of one value are two.
fn write_value(number: &str, out: &mut Vec<u8>) {
    let (sign, magnitude) = match number.strip_prefix('-') {
        Some(magnitude) => ("-", magnitude),
        None => ("", number),
    };
    let (decimal, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        out.push(b'0');
        return;
    }
    let Ok(exponent) = exponent.parse::<i64>() else {
        out.extend_from_slice(number.as_bytes());
        return;
    };
    // No length overflows it.
    let exponent =
        i128::from(exponent) - fraction.len() as i128 + (digits.len() - significant.len()) as i128;
    out.extend_from_slice(sign.as_bytes());
    out.extend_from_slice(significant.as_bytes());
    if exponent != 0 {
        out.extend_from_slice(format!("e{exponent}").as_bytes());
    }
}

#[cfg(test)]
mod tests;
