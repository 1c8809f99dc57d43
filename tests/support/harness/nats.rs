//! A NATS server with `JetStream` for tests.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::StartError;
use crate::builder::find_program;
use crate::child::Guarded;
use crate::dir::TestDir;
use crate::port::Port;

/// Variable that names another server.
const BINARY: &str = "IDEM_NATS_SERVER";
/// The places of the server; the second is that of Debian's package, which is not in every user's PATH.
const PLACES: [&str; 2] = ["nats-server", "/usr/sbin/nats-server"];

/// Deadline of the start, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// A `nats-server` with `JetStream` on a loopback port, stopped when the value is dropped.
///
/// Its streams are on disk, though not synced, and survive `kill` and `restart`. A server
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct NatsServer {
    // Dropped in this order: first the process, then its files.
    child: Mutex<Option<Guarded>>,
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
        let mut outcome = Self::launch(login);
        // Another process may take a port between the check and the server's start.
        for _ in 0..9 {
            if !outcome.as_ref().is_err_and(|error| error.port_taken) {
                break;
            }
            outcome = Self::launch(login);
        }
        match outcome {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    fn launch(login: Option<(&str, &str)>) -> Result<Self, StartError> {
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let server = Self {
            child: Mutex::new(None),
            binary: binary()?,
            login: Mutex::new(login),
            port: Port::take()?,
            dir: TestDir::new("nats")?,
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
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the process is alive.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match lock(&self.child).as_mut() {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// Kills the server with SIGKILL and waits until it is gone. Does nothing when it is down.
    pub fn kill(&self) {
        drop(lock(&self.child).take());
    }

    /// Starts the server again on the same port and data; a running server is killed first.
    pub fn restart(&self) {
        self.kill();
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
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let start = self.log().len();
        let errors = log.try_clone()?;
        let dir = self.dir.disposable();
        let args = ["--config".into(), settings.into()];
        let mut child = Guarded::spawn(&self.binary, &args, dir, |command| {
            command.stdout(log).stderr(errors)
        })?;
        let deadline = Instant::now() + PATIENCE;
        while !self.log()[start..].contains("Server is ready") {
            let ended = child.try_wait()?;
            if ended.is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let what = match ended {
                Some(status) => format!("ended with {status}"),
                None => format!("is not ready within {PATIENCE:?}"),
            };
            let tail = self.tail();
            let mut error = StartError::new(format!("nats-server {what}; its log ends:\n{tail}"));
            error.port_taken = self.log()[start..].contains("address already in use");
            return Err(error);
        }
        *lock(&self.child) = Some(child);
        Ok(())
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

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("nats.log")
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the log of NATS at {} ends:", self.addr());
            eprintln!("{}", self.tail());
        }
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
