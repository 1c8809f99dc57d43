//! Runs the command and reads its output.

use std::process::{Command, Stdio};

use serde_json::Value;

/// Output and exit code of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The words of a command line: separated by spaces, but for those within `'…'`.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut is_quoted, mut begins) = (Vec::<String>::new(), false, true);
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => begins = true,
            _ => {
                if begins {
                    words.push(String::new());
                }
                begins = false;
                words.last_mut().unwrap().push(character);
            }
        }
    }
    words
}

/// Runs the command without a terminal, with these variables alone.
#[allow(
    clippy::print_stdout,
    reason = "`--nocapture` shows what an operator sees"
)]
pub(crate) fn idem_with(variables: &[(&str, &str)], line: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("IDEM_")) {
        command.env_remove(name);
    }
    let output = command
        .envs(variables.iter().copied())
        .args(words(line))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    println!("$ idem {line}\n{}{}", ran.out, ran.err);
    ran
}

impl Ran {
    /// The output of a run that succeeded.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!(self.err, "", "{}", self.out);
        self.out
    }

    /// The document of a run that succeeded.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Asserts a refusal with this code and this text on stderr.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(says), "{self:?}");
    }
}
