//! Older and newer servers than the system's.

use std::env;
use std::path::{Path, PathBuf};

use crate::StartError;
use crate::builder::find_program;

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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Redis62, Self::Redis8, Self::Valkey];

    /// The variable that names another binary.
    fn variable(self) -> &'static str {
        match self {
            Self::Redis62 => "IDEM_REDIS_62_SERVER",
            Self::Redis8 => "IDEM_REDIS_8_SERVER",
            Self::Valkey => "IDEM_VALKEY_SERVER",
        }
    }

    /// Path at which `scripts/test tools` installs it, below the root of the workspace.
    fn place(self) -> &'static str {
        match self {
            Self::Redis62 => "target/servers/redis-6.2.14/redis-server",
            Self::Redis8 => "target/servers/redis-8.2.3/redis-server",
            Self::Valkey => "target/servers/valkey-9.1.2/valkey-server",
        }
    }

    pub(crate) fn find(self) -> Result<PathBuf, StartError> {
        // Cargo names the crate whose tests run; without Cargo, the path is that of the build.
        let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        self.find_from(env::var_os(self.variable()).map(PathBuf::from), &manifest)
    }

    /// The named one, or the one fetched for the workspace of `manifest`.
    fn find_from(self, named: Option<PathBuf>, manifest: &Path) -> Result<PathBuf, StartError> {
        let variable = self.variable();
        if let Some(path) = named {
            return find_program(&path).ok_or_else(|| {
                StartError::new(format!("{variable} is no program: `{}`", path.display()))
            });
        }
        let mut places = manifest.ancestors().map(|dir| dir.join(self.place()));
        places.find_map(|path| find_program(&path)).ok_or_else(|| {
            StartError::new(format!(
                "no {self:?} at `{}` of the workspace; run `bash scripts/test tools`, or set \
                 {variable} to the path of one",
                self.place()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_names_its_source() {
        for edition in Edition::ALL {
            let error = edition.find_from(None, Path::new("/nowhere")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("bash scripts/test tools"), "{message}");
            assert!(message.contains(edition.variable()), "{message}");
        }
    }

    #[test]
    fn a_named_server_comes_first_and_must_be_there() {
        let found = Edition::Valkey.find_from(Some("sh".into()), Path::new("/nowhere"));
        assert!(found.unwrap().ends_with("sh"));
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = Edition::Valkey.find_from(Some("/nowhere/server".into()), manifest);
        assert_eq!(
            error.unwrap_err().to_string(),
            "IDEM_VALKEY_SERVER is no program: `/nowhere/server`"
        );
    }
}
