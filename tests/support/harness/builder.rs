//! Builder of a server.

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fmt, io};

use crate::role::Role;
use crate::server::started;
use crate::{Certificates, Edition, FakeClock, RedisServer};

const BINARY: &str = "IDEM_REDIS_SERVER";

/// A server that did not start: the reason and its output.
#[derive(Debug)]
pub(crate) struct StartError {
    message: String,
    /// Whether the port was taken in the meantime.
    pub(crate) port_taken: bool,
}

impl StartError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            port_taken: false,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Settings of a [`RedisServer`]; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `start`"]
pub struct RedisServerBuilder {
    pub(crate) args: Vec<OsString>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) role: Role,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) tls_client_auth: bool,
    pub(crate) clock: Option<FakeClock>,
    edition: Option<Edition>,
}

impl RedisServerBuilder {
    /// Adds a setting with one value: `arg("--maxmemory", "3mb")`.
    pub fn arg(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.args([name.into(), value.into()])
    }

    /// Adds any arguments, for settings with several values:
    /// `args(["--replicaof", "127.0.0.1", "6379"])`.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Keeps data over `kill` and `restart`, written to disk once a second.
    pub fn append_only_every_second(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "everysec"])
    }

    /// Keeps data over `kill` and `restart`: on disk before a command is answered.
    pub fn append_only_always(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Requires a password of the default user. [`RedisServer::url`] carries it.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user with rules in the syntax of `ACL SETUSER`:
    /// `acl_user("app", "on >secret ~app:* +get +set")`. The user may be `default`: the harness
    /// itself authenticates as another one. A Redis before 7 gives users all channels, and accepts
    /// `&some:*` after `resetchannels` only.
    pub fn acl_user(self, name: &str, rules: &str) -> Self {
        let rules = rules.split_whitespace();
        self.args(["--user", name].into_iter().chain(rules))
    }

    /// Listens on a socket file as well, see [`RedisServer::unix_url`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Listens on a TLS port as well, with certificates of its own: see [`RedisServer::tls_url`]
    /// and [`RedisServer::certificates`].
    pub fn tls(self) -> Self {
        Self {
            certificates: Some(Certificates::new()),
            ..self
        }
    }

    /// Like [`tls`](RedisServerBuilder::tls), for clients with a certificate of the same authority.
    pub fn tls_client_auth(mut self) -> Self {
        self.tls_client_auth = true;
        self.tls()
    }

    /// Gives the server a clock that the test can step. For an [`Edition`].
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// An older or newer server than that of the system.
    pub fn version(mut self, edition: Edition) -> Self {
        self.edition = Some(edition);
        self
    }

    /// Starts the server and waits until it answers; the panic has the reason and the remedy.
    pub fn start(self) -> RedisServer {
        let binary = match self.edition {
            Some(edition) => edition.find(),
            None => find(BINARY, ["redis-server"], || {
                format!(
                    "no Redis; install it (Debian, Ubuntu: `apt-get install redis-server`, macOS: `brew install \
                     redis`) or set {BINARY} to the path of a redis-server or valkey-server"
                )
            }),
        };
        let binary = binary.unwrap_or_else(|error| panic!("{error}"));
        started(|| RedisServer::launch(&self, binary.clone()))
    }
}

/// The program named by the variable, or of the usual places.
pub(crate) fn find(
    variable: &str,
    places: impl IntoIterator<Item = impl Into<PathBuf>>,
    advice: impl FnOnce() -> String,
) -> Result<PathBuf, StartError> {
    if let Some(path) = env::var_os(variable).map(PathBuf::from) {
        return find_program(&path).ok_or_else(|| {
            StartError::new(format!("{variable} is no program: `{}`", path.display()))
        });
    }
    let mut places = places.into_iter();
    let found = places.find_map(|place| find_program(&place.into()));
    found.ok_or_else(|| StartError::new(advice()))
}

/// A program by its path, or by its name in `PATH`.
pub(crate) fn find_program(wanted: &Path) -> Option<PathBuf> {
    if wanted.components().count() > 1 {
        return Some(wanted.to_owned()).filter(|path| is_program(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join(wanted))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
