//! Canonical form of JSON documents ([RFC 8259](https://www.rfc-editor.org/rfc/rfc8259)).
//!
//! Parsed here rather than by `serde_json`, whose numbers are doubles and whose objects lose a name that occurs twice:
//! two documents of different amounts must not be one. The output is the document without whitespace, each object
//! sorted by name, each string with as few escapes as possible, numbers as they came, and a comma after each member and
//! element. That is unambiguous: the output of two documents is equal only if they differ in nothing else.

/// The limit of `serde_json`.
const DEEPEST: usize = 128;

/// A pointer into a document (RFC 6901), other than to the whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// `None` for text that is no pointer, and for the whole document.
    pub(super) fn read(text: &str) -> Option<Self> {
        let tokens = text.strip_prefix('/')?.split('/').map(|token| {
            let mut rest = token.split('~');
            let mut name = rest.next()?.to_owned();
            for escaped in rest {
                let (sign, rest) = match escaped.split_at_checked(1)? {
                    ("0", rest) => ('~', rest),
                    ("1", rest) => ('/', rest),
                    _ => return None,
                };
                name.push(sign);
                name.push_str(rest);
            }
            Some(name)
        });
        tokens.collect::<Option<_>>().map(Self)
    }
}

/// The canonical form of a document, without the values at these pointers. `None` for input that is not one document
/// that all parsers read alike.
pub(super) fn canonical(body: &[u8], without: &[Pointer]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = JsonReader {
        text,
        at: 0,
        out: Vec::with_capacity(body.len()),
        unescaped: String::new(),
    };
    let without: Vec<&[String]> = without.iter().map(|pointer| &*pointer.0).collect();
    reader.value(&without, DEEPEST)?;
    reader.blanks();
    (reader.at == text.len()).then_some(reader.out)
}

/// Rests of pointers whose beginning has led to a value; none is empty.
type Places<'p> = [&'p [String]];

/// The pointers into the member or element of this name; `None` if a pointer excludes all of it.
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
    at: usize,
    out: Vec<u8>,
    /// The last string that had escapes.
    unescaped: String,
}

/// A member that was written: start and end of its name, and its own end.
struct Member {
    start: usize,
    name_end: usize,
    /// That of the name, for a member that does not count.
    end: usize,
}

impl JsonReader<'_> {
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
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let words = ["true", "false", "null"];
        let word = words.into_iter().find(|word| rest.starts_with(word))?;
        self.out.extend_from_slice(word.as_bytes());
        self.at += word.len();
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        self.out
            .extend_from_slice(&self.text.as_bytes()[start..self.at]);
        Some(())
    }

    /// Writes a string, and returns its characters.
    fn string(&mut self) -> Option<&str> {
        self.at += 1;
        let start = self.at;
        let plain = loop {
            match self.peek()? {
                b'"' => break true,
                b'\\' => break false,
                0..0x20 => return None,
                _ => self.at += 1,
            }
        };
        if plain {
            let text = &self.text[start..self.at];
            self.at += 1;
            self.out.push(b'"');
            self.out.extend_from_slice(text.as_bytes());
            self.out.push(b'"');
            return Some(text);
        }
        self.unescape(start)?;
        serde_json::to_writer(&mut self.out, &self.unescaped).ok()?;
        Some(&self.unescaped)
    }

    /// Reads a string that begins at `start`, from its first escape on.
    fn unescape(&mut self, start: usize) -> Option<()> {
        self.unescaped.clear();
        self.unescaped.push_str(&self.text[start..self.at]);
        loop {
            let plain = self.at;
            while !matches!(self.peek()?, b'"' | b'\\' | 0..0x20) {
                self.at += 1;
            }
            self.unescaped.push_str(&self.text[plain..self.at]);
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Some(()),
                b'\\' => {
                    let character = self.escape()?;
                    self.unescaped.push(character);
                }
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let second = match first {
                    0xd800..0xdc00 if self.text[self.at..].starts_with("\\u") => {
                        self.at += 2;
                        Some(self.unit()?)
                    }
                    _ => None,
                };
                // Half of a surrogate pair is no character.
                let units = [first].into_iter().chain(second);
                char::decode_utf16(units).next()?.ok()?
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
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

    fn member(&mut self, without: &Places<'_>, depth: usize) -> Option<Member> {
        self.blanks();
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.out.len();
        let name = self.string()?;
        let places = match without {
            [] => Some(Vec::new()),
            _ => within(without, name),
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
        Some(Member {
            start,
            name_end,
            end,
        })
    }

    /// Sorts the members, which are written from `start` on, by name, and removes excluded ones. `None` if two have the
    /// same name.
    fn sort(&mut self, start: usize, mut members: Vec<Member>) -> Option<()> {
        let in_order = members.is_sorted_by(|a, b| self.name(a) < self.name(b));
        if in_order && members.iter().all(Member::counts) {
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

    fn name(&self, member: &Member) -> &[u8] {
        &self.out[member.start..member.name_end]
    }
}

impl Member {
    fn counts(&self) -> bool {
        self.end > self.name_end
    }
}

#[cfg(test)]
mod tests;
