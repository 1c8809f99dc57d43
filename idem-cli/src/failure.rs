//! How the command fails, and with which exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use idem_runtime::store::StoreError;
use idem_runtime::{Error, ErrorKind};

use crate::text::printed;

/// A message for the operator, with the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The answer is no: no such record, a refused change, an operator who declined. Exit code 1.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(1, message)
    }

    /// Wrong arguments. Exit code 2, as clap's.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// The store cannot be reached, or refuses. Exit code 3.
    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self::new(3, message)
    }

    fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    /// Writes the message to stderr.
    #[allow(clippy::print_stderr, reason = "the last words of a program")]
    pub(crate) fn report(self) -> ExitCode {
        // A reader that has seen enough, as `head` has, is no failure.
        if !self.message.is_empty() {
            let lines: Vec<_> = self.message.lines().map(printed).collect();
            eprintln!("idem: {}", lines.join("\n"));
        }
        ExitCode::from(self.code)
    }
}

/// Words of the library, and what they are to an operator: options in place of setters, and no claim, because the
/// command has made none.
const WORDS: [(&str, &str); 6] = [
    ("`RedisStoreBuilder::root_certificate`", "`--ca`"),
    (
        "`RedisStoreBuilder::client_certificate`",
        "`--cert` and `--cert-key`",
    ),
    (
        "`RedisStoreBuilder::sentinel_credentials`",
        "`IDEM_SENTINEL_PASSWORD`",
    ),
    (
        "a step cannot be run as it is written",
        "the steps cannot be settled so",
    ),
    (
        "the store did not grant the claim, so nothing was run; call again",
        "the store cannot be reached",
    ),
    (
        "the store refuses, so nothing was run; mend its access first",
        "the store refuses",
    ),
];

/// The error and its causes in the command's words, outermost first; parts that a former one has are left out.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    let in_words =
        |text: String, (library, operator): (&str, &str)| text.replace(library, operator);
    WORDS.into_iter().fold(text, in_words)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::store(reason(&error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = reason(&error);
        match error.kind() {
            ErrorKind::StoreUnavailable | ErrorKind::Unsupported => Self::store(message),
            ErrorKind::InvalidKey | ErrorKind::InvalidPolicy | ErrorKind::InvalidCursor => {
                Self::usage(message)
            }
            _ => Self::refused(message),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(0, "");
        }
        Self::refused(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
