//! Default place of an example's file.

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
