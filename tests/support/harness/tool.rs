//! Programs that prepare a server, and end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::account::Account;
use crate::child::Guarded;
use crate::dir::TestDir;
use crate::{StartError, poll};

/// Runs a program in `dir`, or fails with its output.
pub(crate) fn run(
    program: &Path,
    args: &[OsString],
    input: &str,
    dir: &TestDir,
    account: Option<Account>,
) -> Result<(), StartError> {
    let said = dir.path().join("tool.log");
    let log = File::create(&said)?;
    let errors = log.try_clone()?;
    let mut child = Guarded::spawn(program, args, dir.disposable(), "", |command| {
        command
            .env("LC_ALL", "C")
            .current_dir(dir.path())
            .stdout(log)
            .stderr(errors);
        match account {
            Some(account) => account.put_on(command),
            None => command,
        }
    })?;
    // A program that has ended without reading its input has printed the reason.
    if let Some(stdin) = child.stdin()
        && let Err(error) = stdin.write_all(input.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(error.into());
    }
    child.close_stdin();
    let status = poll::until("a program that prepares a server ends", || {
        let status = child.try_wait()?;
        status.ok_or_else(|| io::Error::other("it runs"))
    });
    if status.success() {
        return Ok(());
    }
    Err(StartError::new(format!(
        "`{}` ended with {status}; it says:\n{}",
        program.display(),
        String::from_utf8_lossy(&fs::read(&said)?)
    )))
}
