//! Older and newer servers than the system's.

use std::env;
use std::path::PathBuf;

use crate::StartError;
use crate::builder::find;

/// A server of another version or product. `scripts/test tools` fetches them.
///
/// None of them supports TLS; the system's server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edition {
    /// The oldest supported version.
    Redis62,
    /// The newest version.
    Redis8,
    /// The replacement of Redis on most systems.
    Valkey,
}

impl Edition {
    pub const ALL: [Self; 3] = [Self::Redis62, Self::Redis8, Self::Valkey];

    /// The named one, or the one fetched for the workspace.
    pub(crate) fn find(self) -> Result<PathBuf, StartError> {
        // The variable that names another binary, and the path at which `scripts/test tools` installs it.
        let (variable, place) = match self {
            Self::Redis62 => ("IDEM_REDIS_62_SERVER", "redis-6.2.14/redis-server"),
            Self::Redis8 => ("IDEM_REDIS_8_SERVER", "redis-8.2.3/redis-server"),
            Self::Valkey => ("IDEM_VALKEY_SERVER", "valkey-9.1.2/valkey-server"),
        };
        let place = format!("target/servers/{place}");
        find(variable, in_workspace(&place), || {
            format!(
                "no {self:?} at `{place}` of the workspace; run `bash scripts/test tools`, or set {variable} to the \
                 path of one"
            )
        })
    }
}

/// The possible paths of this edition, below the workspace's root.
pub(crate) fn in_workspace(place: &str) -> impl Iterator<Item = PathBuf> {
    // Cargo names the crate whose tests run; without Cargo, the path is that of the build.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let dirs: Vec<_> = manifest.ancestors().map(|dir| dir.join(place)).collect();
    dirs.into_iter()
}
