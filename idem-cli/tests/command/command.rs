//! Runs the command, and reads what it writes.

use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command wrote, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the command without a terminal, with these variables and no others of its own.
#[allow(
    clippy::print_stdout,
    reason = "`--nocapture` shows what an operator sees"
)]
pub(crate) fn idem_with(variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    for name in [
        "IDEM_STORE",
        "IDEM_PREFIX",
        "IDEM_TABLE",
        "IDEM_PASSWORD",
        "IDEM_SENTINEL_PASSWORD",
        "IDEM_CA",
        "IDEM_CERT",
        "IDEM_CERT_KEY",
    ] {
        command.env_remove(name);
    }
    let output = command
        .envs(variables.iter().copied())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    println!("$ idem {}\n{}{}", arguments.join(" "), ran.out, ran.err);
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

    /// Asserts that the run was refused with this code, and says so on stderr.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(says), "{self:?}");
    }
}
