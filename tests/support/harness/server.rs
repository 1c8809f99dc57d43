//! One server process, by its description: started, killed, paused, stopped, started again, and its log.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use nix::sys::signal::Signal;

use crate::child::Guarded;
use crate::dir::TestDir;
use crate::port::Port;
use crate::{HANG_LIMIT, StartError, family, poll};

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// Adds an environment, an account or a directory to a server's command.
type SetUp = Box<dyn Fn(&mut Command) -> io::Result<()> + Send + Sync>;

/// How a server becomes ready.
pub(crate) enum Ready {
    /// It says this in the log of this run.
    Says(&'static str),
    /// It answers, and is not another server on its port.
    Answers(Box<dyn Fn() -> bool + Send + Sync>),
}

/// The processes of a server beside its own one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    None,
    /// Children, each a group of its own: paused, resumed and killed with it.
    Children,
    /// All in its group, or with its directory among their arguments: killed with it.
    Group,
}

/// The differences of a server.
pub(crate) struct Description {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) set_up: SetUp,
    pub(crate) ready: Ready,
    /// Ends it in order, in spite of connected clients. A server without such a signal is killed for a restart.
    pub(crate) stop: Option<Signal>,
    pub(crate) family: Family,
    /// Script for its death with the tests, see `Guarded::spawn`.
    pub(crate) will: &'static str,
}

impl Description {
    /// A server that is a single process with nothing in its environment.
    pub(crate) fn new(
        name: &'static str,
        program: impl Into<PathBuf>,
        args: Vec<OsString>,
        ready: Ready,
    ) -> Self {
        Self {
            name,
            program: program.into(),
            args,
            set_up: Box::new(|_| Ok(())),
            ready,
            stop: None,
            family: Family::None,
            will: "",
        }
    }
}

/// A server process on a loopback port, killed on drop: the common part of all servers.
///
/// All methods take `&self`, so that one thread may kill a server that another one uses. Its output is the log: a file
/// in its directory, for all of its runs. A server dropped by a panicking test prints the end of its log and keeps its
/// directory.
pub struct Server {
    // Dropped in this order: first the process, then its port and its files.
    child: Mutex<Option<Guarded>>,
    description: Description,
    port: Port,
    dir: TestDir,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.description.name, self.addr())
    }
}

impl Server {
    /// Starts a server, and waits until it is ready.
    pub(crate) fn start(
        description: Description,
        port: Port,
        dir: TestDir,
    ) -> Result<Self, StartError> {
        let server = Self {
            child: Mutex::new(None),
            description,
            port,
            dir,
        };
        server.run()?;
        Ok(server)
    }

    /// The address of the server, the same after a restart.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port on 127.0.0.1, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The directory of the server's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process id of the running server.
    pub fn pid(&self) -> u32 {
        self.running(|child| child.pid())
    }

    /// Whether the process is alive; a paused one is.
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
        let Some(mut child) = self.lock().take() else {
            return;
        };
        let killed = match self.description.family {
            // A stopped server starts no further process, and the pids of ended children stay reserved.
            Family::Children if child.pause().is_ok() => family::kill_children(child.pid()),
            // The id of its group is valid until it is waited for.
            Family::Group if !child.was_waited_for() => family::kill_group(child.pid()),
            _ => Ok(()),
        };
        killed.expect("its other processes can be killed");
        drop(child);
        if self.description.family == Family::Group {
            // Crash reporters are not in the group, and end once the processes they report on have ended.
            family::wait_for_those_of(self.dir());
        }
    }

    /// Shuts the server down in order, disconnecting clients, and awaits its end.
    pub fn stop(&self) {
        let signal = self.description.stop.expect("it can be stopped in order");
        let mut slot = self.lock();
        let child = slot.as_mut().expect("the server runs");
        self.thaw(child);
        child.signal(signal).expect("the server runs");
        poll::until("a server stops", || {
            let status = child.try_wait().expect("our child can be waited for");
            status.ok_or_else(|| format!("its log ends:\n{}", tail(&self.log())))
        });
        *slot = None;
    }

    /// Starts the server again on the same port and data; a running one is stopped first.
    pub fn restart(&self) {
        if self.description.stop.is_some() && self.is_running() {
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

    /// Freezes the server with SIGSTOP, and returns once it is stopped. Connections stay open.
    pub fn pause(&self) {
        self.running(|child| {
            child.pause().expect("a running server can be paused");
            if self.description.family == Family::Children {
                family::pause_children(child.pid()).expect("children can be paused");
            }
        });
    }

    /// Thaws the server with SIGCONT. Requests sent in between are answered now.
    pub fn resume(&self) {
        self.running(|child| self.thaw(child));
    }

    /// The server's own process last, because it would start further ones.
    fn thaw(&self, child: &mut Guarded) {
        if self.description.family == Family::Children && child.is_paused() {
            family::resume_children(child.pid()).expect("children can be resumed");
        }
        child.resume().expect("a running server can be resumed");
    }

    /// Starts the process and waits until it is ready.
    fn run(&self) -> Result<(), StartError> {
        let Description { name, ready, .. } = &self.description;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let before = fs::read(self.log_path())?.len();
        let new = || -> io::Result<String> {
            let log = fs::read(self.log_path())?;
            Ok(String::from_utf8_lossy(&log[before..]).into_owned())
        };
        let mut child = self.spawn(log)?;
        let deadline = Instant::now() + HANG_LIMIT;
        loop {
            let is_ready = match ready {
                Ready::Says(words) => new()?.contains(*words),
                Ready::Answers(answers) => answers(),
            };
            if is_ready {
                *self.lock() = Some(child);
                return Ok(());
            }
            let what = match child.try_wait()? {
                Some(status) => format!("ended with {status}"),
                None if Instant::now() > deadline => {
                    format!("is not ready within {HANG_LIMIT:?}")
                }
                None => {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                }
            };
            let log = new()?;
            let mut error =
                StartError::new(format!("{name} {what}; its log ends:\n{}", tail(&log)));
            let log = log.to_lowercase();
            error.port_taken = ["address already in use", "eaddrinuse"]
                .iter()
                .any(|words| log.contains(words));
            return Err(error);
        }
    }

    fn spawn(&self, log: fs::File) -> io::Result<Guarded> {
        let Description { program, args, .. } = &self.description;
        let (errors, dir) = (log.try_clone()?, self.dir.disposable());
        let mut set_up = Ok(());
        let child = Guarded::spawn(program, args, dir, self.description.will, |command| {
            set_up = (self.description.set_up)(command);
            command.stdout(log).stderr(errors)
        });
        set_up.and(child)
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
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("the log of {self:?} ends:\n{}", tail(&self.log()));
        }
    }
}

/// A started server, or a panic with the reason and the remedy.
///
/// Launches again while another process takes a port between the check and the server's start.
pub(crate) fn started<T>(launch: impl Fn() -> Result<T, StartError>) -> T {
    for _ in 0..9 {
        match launch() {
            Err(error) if error.port_taken => {}
            outcome => return outcome.unwrap_or_else(|error| panic!("{error}")),
        }
    }
    launch().unwrap_or_else(|error| panic!("{error}"))
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
