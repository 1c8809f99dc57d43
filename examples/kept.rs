//! Default place of an example's file, and the text of an error.

use std::error::Error;
use std::path::PathBuf;

/// A file beside the program, or else among temporary files.
///
/// The `target` directory belongs to one clone of the repository, so that neither another user nor
/// another clone finds the same file.
#[must_use]
pub(crate) fn beside_the_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().ok();
    let place = program.as_deref().and_then(|program| program.parent());
    place
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(name)
}

/// "cannot …", and the error with its causes.
pub(crate) fn cannot<E: Error>(what: &str) -> impl Fn(E) -> String {
    move |error| {
        let mut text = format!("cannot {what}: {error}");
        let mut source = error.source();
        while let Some(error) = source {
            let cause = error.to_string();
            // Some errors print their cause themselves.
            if !text.ends_with(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
            source = error.source();
        }
        text
    }
}
