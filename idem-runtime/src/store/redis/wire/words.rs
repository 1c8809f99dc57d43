//! The words of a command, encoded.

use redis::Cmd;

use crate::store::redis::arguments::decimal;

/// Writes a command at the place that sends it.
///
/// A command in the future of a call would be copied for each possible path of it.
pub(crate) type WriteCommand<'a> = dyn Fn(&mut Words<'_>) + Send + Sync + 'a;

/// Receives the words of commands: their bytes, one after the other.
pub(crate) struct Words<'a>(&'a mut Vec<u8>);

impl<'a> Words<'a> {
    /// Appends commands to these bytes, as the protocol has them: an array of texts for each.
    pub(super) fn encoded(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Writes one command: all words of all parts.
    pub(crate) fn command(&mut self, parts: &[&[&[u8]]]) {
        let words = || parts.iter().copied().flatten();
        // Each word has a length of up to 7 digits, a letter and two ends of line with it.
        let size: usize = words().map(|word| word.len() + 12).sum();
        self.0.reserve(size + 12);
        array(self.0, words().count());
        words().for_each(|text| word(self.0, text));
    }

    /// Writes a command of the client library.
    pub(crate) fn copy(&mut self, command: &Cmd) {
        command.write_packed_command(self.0);
    }
}

/// Begins a command of so many words.
pub(super) fn array(bytes: &mut Vec<u8>, words: usize) {
    length(bytes, b'*', words);
}

/// Appends a word.
pub(super) fn word(bytes: &mut Vec<u8>, word: &[u8]) {
    length(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

fn length(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    #[allow(clippy::cast_possible_truncation, reason = "a digit")]
    let digit = |power| b'0' + (length / power % 10) as u8;
    // Nearly all lengths. Of a known size, no copy is a call.
    match length {
        0..10 => bytes.extend_from_slice(&[kind, digit(1), b'\r', b'\n']),
        10..100 => bytes.extend_from_slice(&[kind, digit(10), digit(1), b'\r', b'\n']),
        100..1_000 => {
            bytes.extend_from_slice(&[kind, digit(100), digit(10), digit(1), b'\r', b'\n']);
        }
        _ => {
            bytes.push(kind);
            bytes.extend_from_slice(decimal(length as u64).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_bytes_of_the_client_library() {
        let long = vec![b'x'; 12_345];
        let lengths: Vec<&[u8]> = [0, 1, 9, 10, 11, 99, 100, 109, 999, 1_000, 12_345]
            .map(|length| &long[..length])
            .to_vec();
        for parts in [
            &[&[b"HELLO" as &[u8]] as &[&[u8]]] as &[&[&[u8]]],
            &[&[b"SET", b"name", b"a\r\nb\0"], &[b"NX", b"", &long]],
            &[&lengths],
        ] {
            let mut bytes = b"before".to_vec();
            Words::encoded(&mut bytes).command(parts);
            let mut command = Cmd::new();
            for word in parts.iter().copied().flatten() {
                command.arg(*word);
            }
            assert_eq!(bytes[6..], command.get_packed_command());
            let mut copied = Vec::new();
            Words::encoded(&mut copied).copy(&command);
            assert_eq!(bytes[6..], copied);
        }
    }
}
