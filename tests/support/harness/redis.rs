//! A Redis server for tests.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use crate::dir::TestDir;
use crate::port::Port;
use crate::server::{Description, Ready};
use crate::tls::TlsPort;
use crate::url::credentials;
use crate::{FakeClock, Monitor, RedisServerBuilder, Reply, RespConn, Server, StartError};

/// The harness's user. A test may therefore change the default user freely.
const ADMIN: &str = "idem-harness";

/// A `redis-server` on a loopback port, stopped when the value is dropped.
///
/// By default no data is written to disk. It is a [`Server`].
#[derive(Debug)]
pub struct RedisServer {
    server: Server,
    password: Option<String>,
    admin_password: String,
    socket: Option<PathBuf>,
    pub(crate) tls: Option<TlsPort>,
    /// Bus port of a cluster node.
    bus: Option<Port>,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::builder().start()
    }

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
        let args = builder.role.command_line(args, dir.path())?;
        let (addr, admin) = (
            (Ipv4Addr::LOCALHOST, port.number()).into(),
            admin_password.clone(),
        );
        let ready = Ready::Answers(Box::new(move || answers(addr, &admin)));
        let mut description = Description::new("redis-server", binary, args, ready);
        let clock = builder.clock.clone();
        description.set_up = Box::new(move |command| {
            command.envs(FakeClock::environment(clock.as_ref())?);
            Ok(())
        });
        description.stop = Some(Signal::SIGTERM);
        Ok(Self {
            server: Server::start(description, port, dir)?,
            password: builder.password.clone(),
            admin_password,
            socket,
            tls,
            bus,
        })
    }

    /// The URL for the default user, with its password if any.
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.login(), self.addr())
    }

    /// The default user's password as the user part of a URL.
    pub(crate) fn login(&self) -> String {
        let password = self.password.as_deref();
        password.map_or(String::new(), |password| credentials("", password))
    }

    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{}{}", credentials(user, password), self.addr())
    }

    /// The URL of the socket file, for a server built with `unix_socket`.
    pub fn unix_url(&self) -> String {
        let socket = self.socket.as_deref();
        let socket = socket.expect("the server is built with `unix_socket()`");
        format!("redis+unix://{}", socket.display())
    }

    /// A connection with all rights.
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
    pub fn cli<A: AsRef<[u8]>>(&self, command: &[A]) -> String {
        match self.reply(command) {
            Reply::Error(error) => panic!("`{}` is refused: {error}", joined(command)),
            reply => reply.to_string(),
        }
    }

    /// The value of a field of `INFO`; empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.cli(&["INFO", section]);
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        found.map_or_else(String::new, |(_, value)| value.trim_end().to_owned())
    }

    /// Watches every command from now on.
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

    fn open(&self) -> io::Result<RespConn> {
        open(self.addr(), &self.admin_password)
    }
}

is_a!(RedisServer.server: Server);

/// Whether this server, not another on its port, has loaded its data.
fn answers(addr: SocketAddr, admin_password: &str) -> bool {
    let pong = open(addr, admin_password).and_then(|mut conn| conn.command(&["PING"]));
    pong.is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
}

fn open(addr: SocketAddr, admin_password: &str) -> io::Result<RespConn> {
    let mut connection = RespConn::open(addr)?;
    match connection.command(&["AUTH", ADMIN, admin_password])? {
        Reply::Error(error) => Err(io::Error::other(error)),
        _ => Ok(connection),
    }
}

fn joined<A: AsRef<[u8]>>(command: &[A]) -> String {
    let word = |word: &A| String::from_utf8_lossy(word.as_ref()).into_owned();
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}
