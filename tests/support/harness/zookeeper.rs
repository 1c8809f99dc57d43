//! A `ZooKeeper` server for tests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::StartError;
use crate::builder::find_program;
use crate::dir::TestDir;
use crate::logged::{Logged, launched};
use crate::port::Port;

/// Variable that names another class path than that of Debian's package.
const CLASS_PATH: &str = "IDEM_ZOOKEEPER_CLASSPATH";
/// Files of the server in Debian's package. The second makes it log to its output.
const JARS: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];

const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";

/// A standalone `ZooKeeper` on a loopback port, stopped when the value is dropped.
///
/// Its data is on disk, though not synced, and survives `kill` and `restart`. A server
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Dropped in this order: first the process, then its files.
    process: Logged,
    java: PathBuf,
    args: Vec<OsString>,
    port: Port,
    dir: TestDir,
}

impl ZooKeeperServer {
    /// Starts an empty server, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start; the message has the reason and the remedy.
    #[must_use]
    pub fn start() -> Self {
        match Self::try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts an empty server, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When it does not start; the message has the reason and the remedy.
    pub fn try_start() -> Result<Self, StartError> {
        let java = find_program(Path::new("java")).ok_or_else(no_server)?;
        let class_path = class_path().ok_or_else(no_server)?;
        launched(|| Self::launch(&java, &class_path))
    }

    fn launch(java: &Path, class_path: &OsString) -> Result<Self, StartError> {
        let port = Port::take()?;
        let dir = TestDir::new("zookeeper")?;
        let settings = dir.path().join("zoo.cfg");
        let data = dir.path().join("data");
        fs::write(
            &settings,
            format!(
                "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
                 admin.enableServer=false\n4lw.commands.whitelist=conf,srvr\n",
                data.display(),
                port.number()
            ),
        )?;
        let mut args: Vec<OsString> = [
            // Settings for a small, short-lived server: the simplest collector, no second compiler, no sync of a log
            // that need not survive a power cut, and no preallocation of 64 MiB for it.
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=1024",
            "-cp",
        ]
        .map(OsString::from)
        .into();
        args.extend([class_path.clone(), MAIN.into(), settings.into()]);
        let server = Self {
            process: Logged::new("ZooKeeper", &dir),
            java: java.to_owned(),
            args,
            port,
            dir,
        };
        server.run()?;
        Ok(server)
    }

    /// The address of the server. Its text is the clients' connect string.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
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

    /// Starts the process and waits until it answers.
    fn run(&self) -> Result<(), StartError> {
        let (command, is_ready) = ((&*self.java, &*self.args), |_: &str| self.answers());
        self.process.start(command, &self.dir, |_| {}, is_ready)
    }

    /// Whether this server, not another one on its port, is up and has loaded its data: it reports
    /// the path of its data, and its mode.
    fn answers(&self) -> bool {
        let says = |word, what: &str| self.ask(word).is_ok_and(|answer| answer.contains(what));
        says("conf", &self.dir.path().to_string_lossy()) && says("srvr", "Mode: ")
    }

    /// Sends one of the four-letter commands.
    fn ask(&self, word: &str) -> io::Result<String> {
        let mut connection = TcpStream::connect(self.addr())?;
        // A server that is still starting may accept the command and never answer it.
        connection.set_read_timeout(Some(Duration::from_millis(250)))?;
        connection.write_all(word.as_bytes())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn class_path() -> Option<OsString> {
    if let Some(path) = env::var_os(CLASS_PATH) {
        return Some(path);
    }
    let there = JARS.iter().all(|jar| Path::new(jar).is_file());
    there.then(|| JARS.join(":").into())
}

fn no_server() -> StartError {
    StartError::new(format!(
        "no ZooKeeper; install it (Debian, Ubuntu: `apt-get install default-jre-headless \
         libzookeeper-java`), or install a Java runtime and set {CLASS_PATH} to the jars of a \
         ZooKeeper 3.6 or newer: `/path/to/zookeeper/lib/*`"
    ))
}
