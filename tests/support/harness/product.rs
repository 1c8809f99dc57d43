//! Differences between database servers.

use std::ffi::OsString;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::StartError;
use crate::account::Account;

/// A user with a password, who owns the database `idem` and nothing else.
pub(crate) const APP: (&str, &str) = ("app", "pass@word");

/// An installed database server.
pub(crate) trait Product: Debug + Send + Sync {
    /// Name for messages.
    fn name(&self) -> &'static str;

    /// Scheme of its URLs.
    fn scheme(&self) -> &'static str;

    /// User that it runs as.
    fn account(&self) -> Option<Account>;

    /// The program of the server.
    fn server(&self) -> &Path;

    /// A data directory with the users and the database of every new server.
    fn template(&self) -> Result<PathBuf, StartError>;

    /// The command line of a server whose data is in `dir/data`.
    fn args(&self, port: u16, dir: &Path, durable: bool) -> Vec<OsString>;

    /// A setting on that command line.
    fn setting(&self, name: &str, value: &str) -> Vec<OsString>;

    /// The program that runs SQL from its input, and prints bare values.
    fn client(&self, addr: SocketAddr, database: &str) -> Command;

    /// SQL for the place of the data.
    fn data_query(&self) -> &'static str;

    /// A name in SQL.
    fn quoted(&self, name: &str) -> String;

    /// Signal that ends the server in order, in spite of connected clients.
    fn stop_signal(&self) -> Signal;

    /// Script that runs when the tests die before the server, see `Guarded::spawn`.
    fn will(&self) -> &'static str {
        ""
    }

    /// Removes what a killed server leaves outside of its directory.
    fn tidy(&self, _dir: &Path) {}
}
