//! Unprivileged user for servers that refuse to run as root.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use nix::unistd::{User, geteuid};

use crate::StartError;

/// A user without rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The first existing user of this list, or the user `nobody`. `None` without root: the server runs as the same
    /// user.
    pub(crate) fn below_root(name: &str) -> Result<Option<Self>, StartError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        for name in [name, "nobody"] {
            if let Some(user) = User::from_name(name).map_err(io::Error::from)? {
                let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
                return Ok(Some(Self { uid, gid }));
            }
        }
        Err(StartError::new(format!(
            "the server refuses to run as root, and there is neither a user `{name}` nor `nobody` \
             to run it as; run the tests as another user"
        )))
    }

    /// Runs a program as this user.
    pub(crate) fn put_on(self, command: &mut Command) -> &mut Command {
        command.uid(self.uid).gid(self.gid)
    }

    /// Changes the owner of a directory and its content.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))?;
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.own(&entry?.path())?;
            }
        }
        Ok(())
    }
}
