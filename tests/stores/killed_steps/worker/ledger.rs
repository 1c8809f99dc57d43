//! The other side, which counts the effects of each step: a file for each, with a line for each effect.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) process: usize,
    pub(crate) dir: PathBuf,
}

impl Ledger {
    fn path(&self, key: &str, step: &str) -> PathBuf {
        self.dir.join(format!("{key} {step}"))
    }

    /// An effect of a step. Returns its number among those of this step.
    pub(crate) fn effect(&self, key: &str, step: &str) -> io::Result<u64> {
        let mut file = File::options();
        let mut file = file.append(true).create(true).open(self.path(key, step))?;
        // One write: a killed process has had the effect, or has not.
        file.write_all(format!("{}\n", self.process).as_bytes())?;
        self.count(key, step)
    }

    pub(crate) fn count(&self, key: &str, step: &str) -> io::Result<u64> {
        match fs::read_to_string(self.path(key, step)) {
            Ok(lines) => Ok(lines.lines().count() as u64),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}
