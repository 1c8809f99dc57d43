//! A NATS server with `JetStream` for tests.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::StartError;
use crate::builder::find_program;
use crate::dir::TestDir;
use crate::logged::{Logged, launched};
use crate::port::Port;

/// Variable that names another server.
const BINARY: &str = "IDEM_NATS_SERVER";
/// The places of the server; the second is that of Debian's package, which is not in every user's PATH.
const PLACES: [&str; 2] = ["nats-server", "/usr/sbin/nats-server"];

/// A `nats-server` with `JetStream` on a loopback port, stopped when the value is dropped.
///
/// Its streams are on disk, though not synced, and survive `kill` and `restart`. A server
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct NatsServer {
    // Dropped in this order: first the process, then its files.
    process: Logged,
    binary: PathBuf,
    /// User and password that the server demands.
    login: Mutex<Option<(String, String)>>,
    port: Port,
    dir: TestDir,
}

impl NatsServer {
    /// Starts an empty server without a password, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not start; the message has the reason and the remedy.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts an empty server that demands this user and password.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with_login(user: &str, password: &str) -> Self {
        Self::start_with(Some((user, password)))
    }

    fn start_with(login: Option<(&str, &str)>) -> Self {
        match launched(|| Self::launch(login)) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    fn launch(login: Option<(&str, &str)>) -> Result<Self, StartError> {
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let dir = TestDir::new("nats")?;
        let server = Self {
            process: Logged::new("nats-server", &dir),
            binary: binary()?,
            login: Mutex::new(login),
            port: Port::take()?,
            dir,
        };
        server.run()?;
        Ok(server)
    }

    /// The address of the server, the same after a restart.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// The URL, with user and password if there are any.
    #[must_use]
    pub fn url(&self) -> String {
        match &*lock(&self.login) {
            Some((user, password)) => format!("nats://{user}:{password}@{}", self.addr()),
            None => format!("nats://{}", self.addr()),
        }
    }

    /// The server's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether the process is alive.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Kills the server with SIGKILL and waits until it is gone. Does nothing when it is down.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts the server again on the same port and data; a running server is killed first.
    pub fn restart(&self) {
        if let Err(error) = self.run() {
            panic!("{error}");
        }
    }

    /// Starts the server again with another user and password.
    pub fn restart_with_login(&self, user: &str, password: &str) {
        *lock(&self.login) = Some((user.to_owned(), password.to_owned()));
        self.restart();
    }

    /// Starts the process and waits until it is ready, which it is with its streams loaded.
    fn run(&self) -> Result<(), StartError> {
        let settings = self.dir.path().join("nats.conf");
        fs::write(&settings, self.settings())?;
        let args = ["--config".into(), settings.into()];
        let command = (&*self.binary, &args[..]);
        let is_ready = |log: &str| log.contains("Server is ready");
        self.process.start(command, &self.dir, |_| {}, is_ready)
    }

    fn settings(&self) -> String {
        let login = match &*lock(&self.login) {
            Some((user, password)) => {
                format!("authorization {{ user: {user:?}, password: {password:?} }}\n")
            }
            None => String::new(),
        };
        format!(
            "host: \"127.0.0.1\"\nport: {}\njetstream {{ store_dir: \"{}\" }}\n{login}",
            self.port.number(),
            self.dir.path().display(),
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn binary() -> Result<PathBuf, StartError> {
    let found = match env::var_os(BINARY) {
        Some(wanted) => find_program(Path::new(&wanted)),
        None => PLACES
            .iter()
            .find_map(|place| find_program(Path::new(place))),
    };
    found.ok_or_else(|| {
        StartError::new(format!(
            "no nats-server; install NATS 2.9 or newer (Debian, Ubuntu: `apt-get install nats-server`; \
             macOS: `brew install nats-server`), or set {BINARY} to the path of one"
        ))
    })
}
