//! A server process with a log of its own, which is killed and started again.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::Guarded;
use crate::dir::TestDir;
use crate::{HANG_LIMIT, StartError};

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// A server process, killed when the value is dropped; a panicking test prints the end of its log.
///
/// Its output is the log: a file in its directory, for all of its runs.
#[derive(Debug)]
pub(crate) struct Logged {
    name: &'static str,
    log: PathBuf,
    child: Mutex<Option<Guarded>>,
}

impl Logged {
    /// A process that is not started. `name` is in messages.
    pub(crate) fn new(name: &'static str, dir: &TestDir) -> Self {
        Self {
            name,
            log: dir.path().join("server.log"),
            child: Mutex::new(None),
        }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the process is alive.
    pub(crate) fn is_running(&self) -> bool {
        match self.lock().as_mut() {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// Kills the process with SIGKILL and waits until it is gone. Does nothing when it is down.
    pub(crate) fn kill(&self) {
        drop(self.lock().take());
    }

    /// Starts the process, and waits until it is ready by the log of this run. A running one is killed first.
    pub(crate) fn start(
        &self,
        (program, args): (&Path, &[OsString]),
        dir: &TestDir,
        set_up: impl FnOnce(&mut Command),
        is_ready: impl Fn(&str) -> bool,
    ) -> Result<(), StartError> {
        self.kill();
        let before = self.log().len();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let errors = log.try_clone()?;
        let mut child = Guarded::spawn(program, args, dir.disposable(), |command| {
            set_up(command);
            command.stdout(log).stderr(errors)
        })?;
        let deadline = Instant::now() + HANG_LIMIT;
        loop {
            let log = self.log();
            let new = log.get(before..).unwrap_or_default();
            if is_ready(new) {
                break;
            }
            let ended = child.try_wait()?;
            if ended.is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            let what = match ended {
                Some(status) => format!("ended with {status}"),
                None => format!("is not ready within {HANG_LIMIT:?}"),
            };
            let message = format!("{} {what}; its log ends:\n{}", self.name, tail(new));
            let mut error = StartError::new(message);
            let new = new.to_lowercase();
            error.port_taken = ["address already in use", "eaddrinuse"]
                .iter()
                .any(|words| new.contains(words));
            return Err(error);
        }
        *self.lock() = Some(child);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the log of {} ends:\n{}", self.name, tail(&self.log()));
        }
    }
}

/// Launches again while another process takes a port between the check and the server's start.
pub(crate) fn launched<T>(launch: impl Fn() -> Result<T, StartError>) -> Result<T, StartError> {
    for _ in 0..9 {
        match launch() {
            Err(error) if error.port_taken => {}
            outcome => return outcome,
        }
    }
    launch()
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
