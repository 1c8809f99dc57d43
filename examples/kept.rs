//! Where an example keeps a file that nobody gave it a place for.

use std::path::PathBuf;

/// Beside the program: each clone of the repository has its own, in its `target` directory, and nobody
/// comes upon what another user or another clone began. Without such a place, among temporary files.
#[must_use]
pub(crate) fn beside_the_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().ok();
    let place = program.as_deref().and_then(|program| program.parent());
    place
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(name)
}
