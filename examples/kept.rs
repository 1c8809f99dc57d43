//! Default place of an example's file.

use std::path::PathBuf;

/// Beside the program, in the `target` directory, so that neither another user nor another clone of
/// the repository finds the same file. Without such a place, among temporary files.
#[must_use]
pub(crate) fn beside_the_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().ok();
    let place = program.as_deref().and_then(|program| program.parent());
    place
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(name)
}
