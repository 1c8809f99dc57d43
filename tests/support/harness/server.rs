//! A Redis server for tests.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;

use crate::child::Guarded;
use crate::dir::TestDir;
use crate::port::Port;
use crate::tls::TlsPort;
use crate::url::credentials;
use crate::{FakeClock, HANG_LIMIT, Monitor, RedisServerBuilder, Reply, RespConn, StartError};

/// The harness's own user, so that a test may change the default user freely.
const ADMIN: &str = "idem-harness";

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// A `redis-server` on a loopback port, stopped when the value is dropped.
///
/// By default no data is written to disk. All methods take `&self`, so that one thread may
/// kill a server that another one uses. A server dropped by a panicking test prints the end
/// of its log and keeps its directory.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped in this order: first the process, then its files.
    child: Mutex<Option<Guarded>>,
    binary: PathBuf,
    args: Vec<OsString>,
    password: Option<String>,
    admin_password: String,
    socket: Option<PathBuf>,
    clock: Option<FakeClock>,
    pub(crate) tls: Option<TlsPort>,
    port: Port,
    /// Bus port of a cluster node.
    bus: Option<Port>,
    dir: TestDir,
}

impl RedisServer {
    /// Starts an empty server.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Builder of a server with settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    pub(crate) fn launch(
        builder: &RedisServerBuilder,
        binary: PathBuf,
    ) -> Result<Self, StartError> {
        let (port, bus) = builder.role.take_ports()?;
        let dir = TestDir::new("redis")?;
        let socket = builder.unix_socket.then(|| dir.path().join("redis.sock"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let admin_password = format!("{}-{}", port.number(), now.unwrap_or_default().as_nanos());
        let number = port.number().to_string();
        let secret = format!(">{admin_password}");
        let mut args: Vec<OsString> = [
            "--port",
            &number,
            "--bind",
            "127.0.0.1",
            "--daemonize",
            "no",
            "--save",
            "",
            "--appendonly",
            "no",
            "--user",
            ADMIN,
            "on",
            &secret,
            "~*",
            "&*",
            "+@all",
        ]
        .map(OsString::from)
        .into();
        args.extend(["--dir".into(), dir.path().into()]);
        if let Some(socket) = &socket {
            args.extend(["--unixsocket".into(), socket.into()]);
        }
        let tls = TlsPort::take(builder, dir.path(), &mut args)?;
        if let Some(password) = &builder.password {
            args.extend(["--requirepass".into(), password.into()]);
        }
        args.extend(builder.args.iter().cloned());
        let server = Self {
            child: Mutex::new(None),
            binary,
            args: builder.role.command_line(args, dir.path())?,
            password: builder.password.clone(),
            admin_password,
            socket,
            clock: builder.clock.clone(),
            tls,
            port,
            bus,
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

    /// The URL for the default user, with its password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.login(), self.addr())
    }

    /// The password of the default user, as the user part of a URL.
    pub(crate) fn login(&self) -> String {
        let password = self.password.as_deref();
        password.map_or(String::new(), |password| credentials("", password))
    }

    /// The URL for another user.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{}{}", credentials(user, password), self.addr())
    }

    /// The URL of the socket file, for a server built with `unix_socket`.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let socket = self.socket.as_deref();
        let socket = socket.expect("the server is built with `unix_socket()`");
        format!("redis+unix://{}", socket.display())
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

    /// Whether the process is alive and not paused.
    pub(crate) fn is_awake(&self) -> bool {
        self.is_running() && !self.lock().as_ref().is_some_and(Guarded::is_paused)
    }

    /// Kills the server with SIGKILL and waits until it is gone. Does nothing when it is down.
    pub fn kill(&self) {
        drop(self.lock().take());
    }

    /// Shuts the server down in order and waits until it is gone.
    pub fn shutdown(&self) {
        let mut slot = self.lock();
        let child = slot.as_mut().expect("the server runs");
        child.resume().expect("the server runs");
        child.signal(Signal::SIGTERM).expect("the server runs");
        let deadline = Instant::now() + HANG_LIMIT;
        while child
            .try_wait()
            .expect("our child can be waited for")
            .is_none()
        {
            if Instant::now() > deadline {
                let tail = self.tail();
                panic!(
                    "the server does not shut down within {HANG_LIMIT:?}; its log ends:\n{tail}"
                );
            }
            thread::sleep(Duration::from_millis(1));
        }
        *slot = None;
    }

    /// Starts the server again on the same port and directory; a running server is shut down first.
    pub fn restart(&self) {
        if self.is_running() {
            self.shutdown();
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

    /// Freezes the server with SIGSTOP, and returns once it is stopped. Connections stay open.
    pub fn pause(&self) {
        self.running(|child| child.pause().expect("a running server can be paused"));
    }

    /// Thaws the server with SIGCONT. Requests sent in between are answered now.
    pub fn resume(&self) {
        self.running(|child| child.resume().expect("a paused server can be resumed"));
    }

    /// A connection with all rights.
    #[must_use]
    pub fn connect(&self) -> RespConn {
        match self.open() {
            Ok(connection) => connection,
            Err(error) => panic!("no connection to {}: {error}", self.addr()),
        }
    }

    /// Runs a command and returns its reply, errors included.
    pub fn reply<A: AsRef<[u8]>>(&self, command: &[A]) -> Reply {
        match self.try_reply(command) {
            Ok(reply) => reply,
            Err(error) => panic!("`{}` is not answered: {error}", joined(command)),
        }
    }

    /// Runs a command on a server that may go down meanwhile.
    pub(crate) fn try_reply<A: AsRef<[u8]>>(&self, command: &[A]) -> io::Result<Reply> {
        self.open()?.command(command)
    }

    /// Runs a command and returns its reply as text: `cli(&["GET", "key"])`.
    ///
    /// # Panics
    ///
    /// When the server refuses the command; see [`RedisServer::reply`] for that.
    pub fn cli<A: AsRef<[u8]>>(&self, command: &[A]) -> String {
        match self.reply(command) {
            Reply::Error(error) => panic!("`{}` is refused: {error}", joined(command)),
            reply => reply.to_string(),
        }
    }

    /// Watches every command from now on.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.connect(), self.connect())
    }

    /// Makes every key under `prefix` older by `age`: a key that would have expired is deleted, the
    /// remaining ttl of the others is reduced. Keys without a ttl stay. Returns the number of keys that had one.
    ///
    /// This is how tests move the server's time.
    pub fn advance(&self, age: Duration, prefix: &str) -> usize {
        let mut pattern = String::new();
        for c in prefix.chars() {
            if r"*?[]\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        let age = age.as_millis().to_string();
        let mut connection = self.connect();
        if self.bus.is_some() {
            // Without it, a node does not touch keys of a slot that it is importing.
            drop(connection.command(&["ASKING"]));
        }
        let moved = connection.command(&["EVAL", include_str!("advance.lua"), "0", &pattern, &age]);
        let count = match &moved {
            Ok(reply) => reply.as_int().and_then(|count| usize::try_from(count).ok()),
            Err(_) => None,
        };
        count.unwrap_or_else(|| panic!("the keys under {prefix:?} did not move: {moved:?}"))
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
        let clock = FakeClock::environment(self.clock.as_ref())?;
        let mut child = Guarded::spawn(&self.binary, &self.args, dir, |command| {
            command.envs(clock).stdout(log).stderr(errors)
        })?;
        let deadline = Instant::now() + HANG_LIMIT;
        while !self.answers() {
            if let Some(status) = child.try_wait()? {
                let mut error = StartError::new(format!(
                    "{} ended with {status}; its log ends:\n{}",
                    self.binary.display(),
                    self.tail()
                ));
                let log = fs::read(self.log_path())?;
                let log = String::from_utf8_lossy(&log[start..]);
                error.port_taken = log.contains("Address already in use");
                return Err(error);
            }
            if Instant::now() > deadline {
                return Err(StartError::new(format!(
                    "{} does not answer within {HANG_LIMIT:?}; its log ends:\n{}",
                    self.binary.display(),
                    self.tail()
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
        *self.lock() = Some(child);
        Ok(())
    }

    /// Whether this server, not another one on its port, is up and has loaded its data.
    fn answers(&self) -> bool {
        let pong = self.open().and_then(|mut conn| conn.command(&["PING"]));
        pong.is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
    }

    fn open(&self) -> io::Result<RespConn> {
        let mut connection = RespConn::open(self.addr())?;
        match connection.command(&["AUTH", ADMIN, &self.admin_password])? {
            Reply::Error(error) => Err(io::Error::other(error)),
            _ => Ok(connection),
        }
    }

    fn running<T>(&self, action: impl FnOnce(&mut Guarded) -> T) -> T {
        action(self.lock().as_mut().expect("the server runs"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("redis.log")
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let (port, tail) = (self.port(), self.tail());
            eprintln!("the log of the server on port {port} ends:\n{tail}");
        }
    }
}

fn joined<A: AsRef<[u8]>>(command: &[A]) -> String {
    let word = |word: &A| String::from_utf8_lossy(word.as_ref()).into_owned();
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}
