//! Differences between database servers.

use std::ffi::OsString;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::StartError;
use crate::account::Account;

/// A user with a password, who owns the database `idem` alone.
pub(crate) const APP: (&str, &str) = ("app", "pass@word");

/// What does not depend on the installation.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) scheme: &'static str,
    /// SQL for the place of the data.
    pub(crate) data_query: &'static str,
    /// The quote of names in SQL.
    pub(crate) quote: char,
    /// Signal that ends the server in order, in spite of connected clients.
    pub(crate) stop: Signal,
    /// Settings of a certificate's files, and the SQL that reloads them.
    pub(crate) tls: (&'static [(&'static str, &'static str)], &'static str),
    /// Script that runs when the tests die before the server, see `Guarded::spawn`.
    pub(crate) will: &'static str,
}

/// An installed database server.
pub(crate) trait Product: Debug + Send + Sync {
    fn facts(&self) -> &'static Facts;

    /// User that it runs as.
    fn account(&self) -> Option<Account>;

    fn server(&self) -> &Path;

    /// A data directory with every new server's users and database.
    fn template(&self) -> Result<PathBuf, StartError>;

    /// The command line of a server whose data is in `dir/data`.
    fn args(&self, port: u16, dir: &Path, durable: bool) -> Vec<OsString>;

    /// A setting on that command line.
    fn setting(&self, name: &str, value: &str) -> Vec<OsString>;

    /// The program that runs SQL from its input, and prints bare values.
    fn client(&self, addr: SocketAddr, database: &str) -> Command;

    /// Removes a killed server's remains outside of its directory.
    fn tidy(&self, _dir: &Path) {}
}
