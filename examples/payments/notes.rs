//! Effects of the parties downstream: a file of one line each.
//!
//! They are other parties, so their effects are not undone when our process dies. A line is written in
//! one piece, and the system keeps it when its writer is killed; it need not outlive a power cut.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::PayError;
use crate::provider::Movement;
use crate::request::NotifyRequest;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// The first line: the run that the others belong to.
    Run(String),
    /// The provider answered a key, and moved money or not.
    Answered {
        key: String,
        /// The movement, or the reason why there is none.
        answer: Result<Movement, PayError>,
    },
    Sent(NotifyRequest),
}

/// The file, or nothing where the parties end with the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Option<Arc<File>>);

impl Notes {
    /// Opens the file for this process alone, and reads its content.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<Note>), String> {
        let failed = |error: io::Error| {
            let path = path.display();
            format!("cannot use {path}: {error}; `--file` names another")
        };
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)
            .map_err(failed)?;
        // The lock is released with its process, however that ends.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                format!("{} is in use: another run is under way", path.display())
            }
            TryLockError::Error(error) => failed(error),
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let lines = text.lines().map(serde_json::from_str);
        let past = lines
            .collect::<Result<_, _>>()
            .map_err(|error| format!("{} holds a line that is no note: {error}", path.display()))?;
        Ok((Self(Some(Arc::new(file))), past))
    }

    /// The notes of this run; none in a new one. Notes of another run are invalid.
    pub(crate) fn belong_to(
        &self,
        run: &str,
        new: bool,
        past: Vec<Note>,
    ) -> Result<Vec<Note>, String> {
        if matches!(past.first(), Some(Note::Run(noted)) if noted == run) {
            return Ok(past);
        }
        if !new {
            return Err(
                "the notes of the provider are not those of these books; start anew with --fresh"
                    .to_owned(),
            );
        }
        if let Some(file) = &self.0 {
            let emptied = file.set_len(0);
            emptied.map_err(|error| format!("cannot empty the notes of the provider: {error}"))?;
        }
        let written = self.write(&Note::Run(run.to_owned()));
        written.map_err(|_| "cannot write the notes of the provider".to_owned())?;
        Ok(Vec::new())
    }

    pub(super) fn write(&self, note: &Note) -> Result<(), PayError> {
        let Some(file) = &self.0 else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(note).expect("a note has only strings and numbers");
        line.push(b'\n');
        // Without its notes the party counts as down.
        let written = (&**file).write_all(&line);
        written.map_err(|_| PayError::ProviderTimeout)
    }
}
