//! A NATS server with `JetStream` for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::builder::find;
use crate::dir::TestDir;
use crate::port::Port;
use crate::server::{Description, Ready, started};
use crate::{Server, StartError};

/// Variable that names another server.
const BINARY: &str = "IDEM_NATS_SERVER";
/// The places of the server; the second is that of Debian's package, which is not in every user's PATH.
const PLACES: [&str; 2] = ["nats-server", "/usr/sbin/nats-server"];

/// A `nats-server` with `JetStream` on a loopback port, stopped on drop.
///
/// Its streams are on disk, though not synced, and survive `kill` and `restart`. A server
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct NatsServer {
    server: Server,
    /// User and password that the server demands.
    login: Mutex<Option<(String, String)>>,
}

impl NatsServer {
    /// Starts an empty server without a password, until it is ready.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts an empty server that demands this user and password.
    pub fn start_with_login(user: &str, password: &str) -> Self {
        Self::start_with(Some((user, password)))
    }

    fn start_with(login: Option<(&str, &str)>) -> Self {
        started(|| Self::launch(login))
    }

    fn launch(login: Option<(&str, &str)>) -> Result<Self, StartError> {
        let (dir, port) = (TestDir::new("nats")?, Port::take()?);
        let file = dir.path().join("nats.conf");
        fs::write(&file, settings(dir.path(), port.number(), login))?;
        let args = vec!["--config".into(), file.into()];
        // It is ready with its streams loaded.
        let ready = Ready::Says("Server is ready");
        let description = Description::new("nats-server", binary()?, args, ready);
        Ok(Self {
            server: Server::start(description, port, dir)?,
            login: Mutex::new(login.map(|(user, password)| (user.to_owned(), password.to_owned()))),
        })
    }

    /// The URL, with user and password if there are any.
    pub fn url(&self) -> String {
        match &*lock(&self.login) {
            Some((user, password)) => format!("nats://{user}:{password}@{}", self.addr()),
            None => format!("nats://{}", self.addr()),
        }
    }

    /// Starts the server again with another user and password.
    pub fn restart_with_login(&self, user: &str, password: &str) {
        let text = settings(self.dir(), self.port(), Some((user, password)));
        fs::write(self.dir().join("nats.conf"), text).expect("its directory is there");
        *lock(&self.login) = Some((user.to_owned(), password.to_owned()));
        self.restart();
    }
}

is_a!(NatsServer.server: Server);

fn settings(store: &Path, port: u16, login: Option<(&str, &str)>) -> String {
    let login = login.map_or(String::new(), |(user, password)| {
        format!("authorization {{ user: {user:?}, password: {password:?} }}\n")
    });
    format!(
        "host: \"127.0.0.1\"\nport: {port}\njetstream {{ store_dir: \"{}\" }}\n{login}",
        store.display(),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn binary() -> Result<PathBuf, StartError> {
    find(BINARY, PLACES, || {
        format!(
            "no nats-server; install NATS 2.9 or newer (Debian, Ubuntu: `apt-get install nats-server`; \
             macOS: `brew install nats-server`), or set {BINARY} to the path of one"
        )
    })
}
