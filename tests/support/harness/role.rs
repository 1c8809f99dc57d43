//! Role of a server among others, as its start needs it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::{fs, io};

use crate::port::Port;

/// Role of a server among others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// A server without replication.
    #[default]
    Alone,
    /// A primary or a replica; `CONFIG REWRITE` keeps the role over a restart.
    Replicated,
    /// A sentinel, which is no data server.
    Sentinel,
    /// A node of a cluster. It has a second port for the bus.
    ClusterNode,
}

impl Role {
    /// The port of a server and the one of its cluster bus.
    pub(crate) fn take_ports(self) -> io::Result<(Port, Option<Port>)> {
        match self {
            Self::ClusterNode => Port::take_with_bus().map(|(port, bus)| (port, Some(bus))),
            _ => Ok((Port::take()?, None)),
        }
    }

    /// The arguments of the server. A server that changes its settings gets them in a file in `dir`: it refuses to
    /// define a user in the file and on the command line, so all of them move.
    pub(crate) fn command_line(
        self,
        settings: Vec<OsString>,
        dir: &Path,
    ) -> io::Result<Vec<OsString>> {
        if matches!(self, Self::Alone | Self::ClusterNode) {
            return Ok(settings);
        }
        let path = dir.join("redis.conf");
        fs::write(&path, lines(&settings))?;
        let mut args = vec![path.into_os_string()];
        if self == Self::Sentinel {
            args.push("--sentinel".into());
        }
        Ok(args)
    }
}

/// Input: `--port 1 --save ""`.  Output: one setting a line, `port "1"` and `save ""`.
fn lines(settings: &[OsString]) -> Vec<u8> {
    let mut lines = Vec::new();
    for word in settings {
        match word.as_bytes().strip_prefix(b"--") {
            Some(name) => {
                lines.push(b'\n');
                lines.extend_from_slice(name);
            }
            None => lines.extend(quoted(word).into_vec()),
        }
    }
    lines.push(b'\n');
    lines
}

fn quoted(word: &OsStr) -> OsString {
    let mut quoted = b" \"".to_vec();
    for byte in word.as_bytes() {
        if b"\"\\".contains(byte) {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}
