//! Functions of all database servers.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::Guarded;
use crate::dir::TestDir;
use crate::port::Port;
use crate::product::{APP, Product};
use crate::url::credentials;
use crate::{FakeClock, HANG_LIMIT, StartError, family, template};

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// A database server on a loopback port, stopped when the value is dropped: the common part of
/// [`PostgresServer`](crate::PostgresServer) and [`MariaDbServer`](crate::MariaDbServer).
///
/// All methods take `&self`, so that one thread may kill a server that another one uses. A
/// server dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct DatabaseServer {
    // Dropped in this order: first the process, then its files.
    child: Mutex<Option<Guarded>>,
    product: Box<dyn Product>,
    args: Vec<OsString>,
    clock: Option<FakeClock>,
    port: Port,
    dir: TestDir,
}

impl DatabaseServer {
    pub(crate) fn launch(
        product: Box<dyn Product>,
        durable: bool,
        clock: Option<FakeClock>,
        settings: Vec<OsString>,
    ) -> Result<Self, StartError> {
        let template = product.template()?;
        let port = Port::take()?;
        let dir = if durable {
            TestDir::new(product.scheme())
        } else {
            TestDir::in_memory(product.scheme())
        }?;
        template::copy(&template, &dir.path().join("data"), product.account())?;
        if let Some(account) = product.account() {
            account.own(dir.path())?;
        }
        let mut args = product.args(port.number(), dir.path(), durable);
        args.extend(settings);
        let server = Self {
            child: Mutex::new(None),
            product,
            args,
            clock,
            port,
            dir,
        };
        server.run()?;
        Ok(server)
    }

    /// The address of the server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port on 127.0.0.1, the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL of the database `idem`, for the user `idem`, who has all rights.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("idem")
    }

    /// The URL of another database, for the user `idem`.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!(
            "{}://idem@{}/{database}",
            self.product.scheme(),
            self.addr()
        )
    }

    /// Like [`url`](Self::url), for a server behind a [`TcpProxy`](crate::TcpProxy) at `addr`.
    #[must_use]
    pub fn url_at(&self, addr: SocketAddr) -> String {
        format!("{}://idem@{addr}/idem", self.product.scheme())
    }

    /// The URL of the database `idem`, for the user `app`, who needs a password.
    #[must_use]
    pub fn password_url(&self) -> String {
        self.url_as(APP.0, APP.1)
    }

    /// The URL of the database `idem` for another user.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let login = credentials(user, password);
        format!("{}://{login}{}/idem", self.product.scheme(), self.addr())
    }

    /// The directory of the server's files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process id of the running server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running(|child| child.pid())
    }

    /// Whether the process is alive; a paused one is.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match self.lock().as_mut() {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// Kills all processes of the server with SIGKILL and waits until they are gone. Does nothing
    /// when it is down.
    pub fn kill(&self) {
        let Some(mut child) = self.lock().take() else {
            return;
        };
        // A stopped server starts no further process, and the pids of ended children stay reserved.
        if child.pause().is_ok() {
            family::kill_children(child.pid()).expect("children can be killed");
        }
    }

    /// Shuts the server down in order, disconnecting clients, and waits until it is gone.
    pub fn stop(&self) {
        let mut slot = self.lock();
        let child = slot.as_mut().expect("the server runs");
        resume(child);
        child
            .signal(self.product.stop_signal())
            .expect("the server runs");
        let deadline = Instant::now() + HANG_LIMIT;
        while child
            .try_wait()
            .expect("our child can be waited for")
            .is_none()
        {
            if Instant::now() > deadline {
                let tail = self.tail();
                panic!("the server does not stop within {HANG_LIMIT:?}; its log ends:\n{tail}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        *slot = None;
    }

    /// Starts the server again on the same port and data; a running server is stopped first.
    pub fn restart(&self) {
        if self.is_running() {
            self.stop();
        }
        self.kill();
        // A client that holds a connection to the port may block the bind for a moment.
        let deadline = Instant::now() + HANG_LIMIT;
        loop {
            match self.run() {
                Ok(()) => return,
                Err(error) if error.port_taken && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Freezes all processes of the server with SIGSTOP, and returns once they are stopped.
    /// Connections stay open.
    pub fn pause(&self) {
        self.running(|child| {
            child.pause().expect("a running server can be paused");
            family::pause_children(child.pid()).expect("children can be paused");
        });
    }

    /// Thaws the server with SIGCONT. Requests sent in between are answered now.
    pub fn resume(&self) {
        self.running(resume);
    }

    /// Runs SQL in the database `idem` and returns the values: rows in lines, of columns between
    /// `|` (Postgres) or tabs (`MariaDB`).
    ///
    /// # Panics
    ///
    /// When the server refuses it; see [`try_execute`](Self::try_execute) for that.
    pub fn execute(&self, sql: &str) -> String {
        self.execute_in("idem", sql)
    }

    /// Like [`execute`](Self::execute), in another database.
    pub fn execute_in(&self, database: &str, sql: &str) -> String {
        match self.ask(database, sql) {
            Ok(values) => values,
            Err(error) => panic!("`{sql}` is refused: {error}"),
        }
    }

    /// Like [`execute`](Self::execute), for SQL that may fail.
    ///
    /// # Errors
    ///
    /// With the message of the server, or of the client that cannot reach it.
    pub fn try_execute(&self, sql: &str) -> Result<String, String> {
        self.ask("idem", sql)
    }

    /// Creates another, empty database, and returns its URL.
    #[must_use]
    pub fn create_database(&self, name: &str) -> String {
        self.execute(&format!("CREATE DATABASE {}", self.product.quoted(name)));
        self.url_of(name)
    }

    /// Starts the process and waits until it answers.
    fn run(&self) -> Result<(), StartError> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let start = fs::read(self.log_path())?.len();
        let errors = log.try_clone()?;
        let dir = self.dir.disposable();
        let (server, will) = (self.product.server(), self.product.will());
        let clock = FakeClock::environment(self.clock.as_ref())?;
        let mut child = Guarded::spawn_with_will(server, &self.args, dir, will, |command| {
            command
                .env("LC_ALL", "C")
                .envs(clock)
                .current_dir(self.dir.path())
                .stdout(log)
                .stderr(errors);
            match self.product.account() {
                Some(account) => account.put_on(command),
                None => command,
            }
        })?;
        let deadline = Instant::now() + HANG_LIMIT;
        while !self.answers() {
            let ended = child.try_wait()?;
            if ended.is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            let what = match ended {
                Some(status) => format!("ended with {status}"),
                None => format!("does not answer within {HANG_LIMIT:?}"),
            };
            let (name, tail) = (self.product.name(), self.tail());
            let mut error = StartError::new(format!("{name} {what}; its log ends:\n{tail}"));
            let log = fs::read(self.log_path())?;
            let log = String::from_utf8_lossy(&log[start..]);
            error.port_taken = log.contains("Address already in use");
            return Err(error);
        }
        *self.lock() = Some(child);
        Ok(())
    }

    /// Whether this server, not another one on its port, is up and has recovered its data.
    fn answers(&self) -> bool {
        // Cheaper than a client, which most of the time would come too early.
        let listens = TcpStream::connect(self.addr()).is_ok();
        let place = || self.ask("idem", self.product.data_query()).ok();
        listens && place().is_some_and(|place| Path::new(&place).starts_with(self.dir.path()))
    }

    fn ask(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut command = self.product.client(self.addr(), database);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut client = command.spawn().map_err(|error| error.to_string())?;
        let mut input = client.stdin.take().expect("stdin is piped");
        // In a thread of its own, because the output may have to be read first. A client that cannot connect
        // reads nothing, and prints the reason.
        let sql = sql.to_owned();
        let writer = thread::spawn(move || input.write_all(sql.as_bytes()));
        let output = client
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        drop(writer.join());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    fn running<T>(&self, action: impl FnOnce(&mut Guarded) -> T) -> T {
        action(self.lock().as_mut().expect("the server runs"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// The server's own process last, because it would start further ones.
fn resume(child: &mut Guarded) {
    if child.is_paused() {
        family::resume_children(child.pid()).expect("children can be resumed");
    }
    child.resume().expect("a running server can be resumed");
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.kill();
        self.product.tidy(self.dir.path());
        if thread::panicking() {
            eprintln!(
                "the log of {} at {} ends:",
                self.product.name(),
                self.addr()
            );
            eprintln!("{}", self.tail());
        }
    }
}
