//! A `RabbitMQ` broker for tests.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::StartError;
use crate::builder::find_program;
use crate::child::Guarded;
use crate::dir::TestDir;
use crate::port::Port;

/// The programs of Debian's package. Those in `PATH` change to the user of the service.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// Deadline of the start, which takes 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// The only user of the broker.
const USER: &str = "idem";

/// A `RabbitMQ` broker on a loopback port, stopped when the value is dropped.
///
/// It has a node name, ports, data and a port mapper (`epmd`) of its own. Its data survives
/// [`kill`](Self::kill) and [`restart`](Self::restart). A broker dropped by a panicking test prints the end of its log
/// and keeps its directory.
#[derive(Debug)]
pub struct RabbitServer {
    // Dropped in this order: first the processes, then their files.
    child: Mutex<Option<Guarded>>,
    mapper: Mutex<Guarded>,
    port: Port,
    distribution: Port,
    mapper_port: Port,
    password: String,
    dir: TestDir,
}

impl RabbitServer {
    /// Starts a broker without queues, and waits until it is complete.
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

    /// Starts a broker without queues, and waits until it is complete.
    ///
    /// # Errors
    ///
    /// When it does not start; the message has the reason and the remedy.
    pub fn try_start() -> Result<Self, StartError> {
        let mapper = find_program(Path::new("epmd")).ok_or_else(no_server)?;
        find_program(&program("rabbitmq-server")).ok_or_else(no_server)?;
        // Another process may take a port between the check and the broker's start.
        for _ in 0..9 {
            match Self::launch(&mapper) {
                Err(error) if error.port_taken => {}
                outcome => return outcome,
            }
        }
        Self::launch(&mapper)
    }

    fn launch(mapper: &Path) -> Result<Self, StartError> {
        let (port, distribution, mapper_port) = (Port::take()?, Port::take()?, Port::take()?);
        let dir = TestDir::new("rabbitmq")?;
        let password = format!("secret-{}-{}", process::id(), port.number());
        let file = |name: &str, content: &str| fs::write(dir.path().join(name), content);
        file(
            "rabbitmq.conf",
            &format!(
                "listeners.tcp.1 = 127.0.0.1:{}\ndefault_user = {USER}\ndefault_pass = {password}\n\
                 disk_free_limit.absolute = 1MB\nvm_memory_high_watermark.absolute = 512MB\n\
                 log.console = true\nlog.file = false\n",
                port.number()
            ),
        )?;
        // The counts of a quorum queue are of its last tick.
        file(
            "advanced.config",
            "[{rabbit, [{quorum_tick_interval, 200}]}].\n",
        )?;
        file("enabled_plugins", "[].\n")?;
        // The broker would start a port mapper that outlives it.
        let args = ["-port", &mapper_port.number().to_string()].map(OsString::from);
        let mapper = Guarded::spawn(mapper, &args, None, |command| {
            command
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
        })?;
        let server = Self {
            child: Mutex::new(None),
            mapper: Mutex::new(mapper),
            port,
            distribution,
            mapper_port,
            password,
            dir,
        };
        server.run()?;
        Ok(server)
    }

    /// The address of the broker.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// The URL of the broker for its user, who has every permission.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(&self.password)
    }

    /// The URL of the broker with another password.
    #[must_use]
    pub fn url_with(&self, password: &str) -> String {
        format!("amqp://{USER}:{password}@{}/%2f", self.addr())
    }

    /// Runs `rabbitmqctl`, which takes about a second, and returns its output.
    ///
    /// # Panics
    ///
    /// When it fails.
    #[must_use]
    pub fn ctl(&self, args: &[&str]) -> String {
        let output = self
            .environment(&mut Command::new(program("rabbitmqctl")))
            .arg("--quiet")
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("`rabbitmqctl` is there, as the broker is");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "`rabbitmqctl {}` {}: {}{}",
            args.join(" "),
            output.status,
            said(&output.stdout),
            said(&output.stderr)
        );
        said(&output.stdout)
    }

    /// The broker's log so far.
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

    /// Kills the broker with SIGKILL and waits until it is gone. Does nothing when it is down.
    pub fn kill(&self) {
        drop(lock(&self.child).take());
    }

    /// Starts the broker again on the same port and data; a running one is killed first.
    pub fn restart(&self) {
        self.kill();
        if let Err(error) = self.run() {
            panic!("{error}");
        }
    }

    /// Starts the process and waits until it is complete.
    fn run(&self) -> Result<(), StartError> {
        let before = self.log().len();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let errors = log.try_clone()?;
        let dir = self.dir.disposable();
        let mut child = Guarded::spawn(&program("rabbitmq-server"), &[], dir, |command| {
            self.environment(command).stdout(log).stderr(errors)
        })?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            let new = log.get(before..).unwrap_or_default();
            if new.contains("Server startup complete") {
                break;
            }
            let ended = child.try_wait()?;
            if ended.is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            let what = match ended {
                Some(status) => format!("ended with {status}"),
                None => format!("is not complete within {PATIENCE:?}"),
            };
            let mut error =
                StartError::new(format!("RabbitMQ {what}; its log ends:\n{}", tail(new)));
            error.port_taken = new.contains("eaddrinuse");
            return Err(error);
        }
        *lock(&self.child) = Some(child);
        Ok(())
    }

    /// The environment of the broker and its tools, in place of the files of the service.
    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let dir = self.dir.path();
        let number = |port: &Port| port.number().to_string();
        command
            // The place of the cookie by which the tools are let in.
            .env("HOME", dir)
            .env("ERL_EPMD_PORT", number(&self.mapper_port))
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env(
                "RABBITMQ_NODENAME",
                format!("idem-{}@localhost", number(&self.port)),
            )
            .env("RABBITMQ_DIST_PORT", number(&self.distribution))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", dir.join("advanced.config"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("enabled_plugins"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", dir)
            .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
            .env("RABBITMQ_LOG_BASE", dir.join("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_PID_FILE", dir.join("pid"))
            .env("RABBITMQ_CTL_ERL_ARGS", "-start_epmd false")
            // Two schedulers, where the default is one for each core.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-start_epmd false +S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
            )
            // The script becomes the broker: its pid is that of the child.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env_remove("NOTIFY_SOCKET")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("rabbitmq.log")
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        self.kill();
        lock(&self.mapper).kill();
        if thread::panicking() {
            eprintln!("the log of RabbitMQ at {} ends:", self.addr());
            eprintln!("{}", tail(&self.log()));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join(name)
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

fn no_server() -> StartError {
    StartError::new(
        "no RabbitMQ; install it (Debian, Ubuntu: `apt-get install rabbitmq-server`): its programs \
         are looked for in /usr/lib/rabbitmq/bin, and `epmd` of Erlang in PATH"
            .to_owned(),
    )
}
