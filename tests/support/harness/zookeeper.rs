//! A `ZooKeeper` server for tests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::builder::find_program;
use crate::dir::TestDir;
use crate::port::Port;
use crate::server::{Description, Ready, started};
use crate::{Server, StartError};

/// Variable that names another class path than that of Debian's package.
const CLASS_PATH: &str = "IDEM_ZOOKEEPER_CLASSPATH";
/// Files of the server in Debian's package. The second makes it log to its output.
const JARS: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];

const MAIN: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";

/// A standalone `ZooKeeper` on a loopback port, stopped on drop.
///
/// The text of its address is the connect string of clients. Its data is on disk, though not synced, and survives
/// `kill` and `restart`.
#[derive(Debug)]
pub struct ZooKeeperServer(Server);

impl ZooKeeperServer {
    /// Starts an empty server, and waits until it answers.
    pub fn start() -> Self {
        started(|| {
            let java = find_program(Path::new("java")).ok_or_else(no_server)?;
            let class_path = class_path().ok_or_else(no_server)?;
            Self::launch(&java, &class_path)
        })
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
        let (addr, place) = (
            (Ipv4Addr::LOCALHOST, port.number()).into(),
            dir.path().to_owned(),
        );
        let ready = Ready::Answers(Box::new(move || answers(addr, &place)));
        let description = Description::new("ZooKeeper", java, args, ready);
        Server::start(description, port, dir).map(Self)
    }
}

is_a!(ZooKeeperServer.0: Server);

/// Whether this server, not another on its port, has loaded its data: it reports the path of its data, and its mode.
fn answers(addr: SocketAddr, dir: &Path) -> bool {
    let says = |word, what: &str| ask(addr, word).is_ok_and(|answer| answer.contains(what));
    says("conf", &dir.to_string_lossy()) && says("srvr", "Mode: ")
}

/// Sends one of the four-letter commands.
fn ask(addr: SocketAddr, word: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(addr)?;
    // A server that is still starting may accept the command and never answer it.
    connection.set_read_timeout(Some(Duration::from_millis(250)))?;
    connection.write_all(word.as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
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
