//! A worker program as a process of its own, to be killed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, mem, thread};

use crate::child::Guarded;
use crate::{FakeClock, HANG_LIMIT, poll};

/// Number of lines of a worker's stderr that its panic shows.
const LAST_LINES: usize = 6;

/// A worker process that exchanges lines by stdin and stdout. It is killed on drop.
///
/// Its stderr is copied to that of the test, and its end is in the panic of a worker that ends unexpectedly.
#[derive(Debug)]
pub struct Worker {
    child: Guarded,
    lines: Receiver<String>,
    errors: Receiver<String>,
    name: String,
    _clock: Option<FakeClock>,
}

#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `spawn`"]
pub struct WorkerBuilder {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    clock: Option<FakeClock>,
}

impl WorkerBuilder {
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Gives the worker a clock that the test can step.
    pub fn clock(self, clock: FakeClock) -> Self {
        let environment = FakeClock::environment(Some(&clock));
        let environment = environment.unwrap_or_else(|error| panic!("{error}"));
        let set = |worker: Self, (name, value): (&str, PathBuf)| worker.env(name, value);
        let mut worker = environment.into_iter().fold(self, set);
        worker.clock = Some(clock);
        worker
    }

    /// Runs shell commands in the process first, such as `ulimit -n 64`.
    pub fn after(mut self, commands: &str) -> Self {
        let script = format!("{commands}; exec \"$0\" \"$@\"");
        let program = mem::replace(&mut self.program, "sh".into()).into_os_string();
        self.args
            .splice(0..0, ["-c".into(), script.into(), program]);
        self
    }

    pub fn spawn(self) -> Worker {
        let name = self.program.display().to_string();
        let spawned = Guarded::spawn(&self.program, &self.args, None, "", |command| {
            let command = command.envs(self.envs);
            command.stdout(Stdio::piped()).stderr(Stdio::piped())
        });
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
        let stdout = child.take_stdout().expect("stdout is piped");
        let stderr = child.take_stderr().expect("stderr is piped");
        Worker {
            child,
            lines: read(stdout, |_| {}),
            // Past the capture of the test's output, as a stderr that is inherited.
            errors: read(stderr, |line| drop(writeln!(io::stderr(), "{line}"))),
            name,
            _clock: self.clock,
        }
    }
}

/// Reads lines in a thread, up to the end of `from`.
fn read(
    from: impl Read + Send + 'static,
    mut each: impl FnMut(&str) + Send + 'static,
) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            each(&line);
            // The worker is gone, but its last lines are still copied.
            drop(sender.send(line));
        }
    });
    lines
}

/// Whether a line belongs to a panic's backtrace in the stderr copy.
fn is_of_backtrace(line: &str) -> bool {
    let line = line.trim_start();
    let frame = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_frame = frame.len() < line.len() && frame.starts_with(": ");
    is_frame
        || ["at ", "stack backtrace:", "note: "]
            .iter()
            .any(|start| line.starts_with(start))
}

impl Worker {
    /// A binary of the package under test, by name. Cargo builds it beside the test; elsewhere
    /// `env!("CARGO_BIN_EXE_<name>")` and [`Worker::program`] do the same.
    pub fn sibling(name: &str) -> WorkerBuilder {
        let test = env::current_exe().expect("a process knows its program");
        let mut dir = test.parent().expect("a program is in a directory");
        if [Some(OsStr::new("deps")), Some(OsStr::new("examples"))].contains(&dir.file_name()) {
            dir = dir.parent().expect("cargo's directories are nested");
        }
        let program = dir.join(name);
        assert!(
            program.is_file(),
            "no program {}; cargo builds the binaries of the package under test only",
            program.display()
        );
        Self::program(program)
    }

    pub fn program(path: impl AsRef<Path>) -> WorkerBuilder {
        WorkerBuilder {
            program: path.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            clock: None,
        }
    }

    pub fn send(&mut self, line: &str) {
        let stdin = self.child.stdin().expect("stdin is open");
        let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        sent.unwrap_or_else(|error| panic!("{} takes no line: {error}", self.name));
    }

    /// Closes the worker's stdin.
    pub fn close(&mut self) {
        self.child.close_stdin();
    }

    pub fn line(&mut self) -> String {
        let line = self.line_within(HANG_LIMIT);
        line.unwrap_or_else(|| panic!("{} says nothing for {HANG_LIMIT:?}", self.name))
    }

    /// The next line, or `None` when the worker is silent for `patience`.
    pub fn line_within(&mut self, patience: Duration) -> Option<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let words = self.last_words();
                panic!("{} has ended{words}", self.name)
            }
        }
    }

    /// An ended worker's status and last lines of stderr.
    fn last_words(&mut self) -> String {
        let deadline = Instant::now() + HANG_LIMIT;
        let mut lines = VecDeque::new();
        while let Ok(line) = self.errors.recv_timeout(deadline - Instant::now()) {
            if !is_of_backtrace(&line) {
                lines.push_back(line);
            }
            if lines.len() > LAST_LINES {
                lines.pop_front();
            }
        }
        let status = format!(" with {}", self.wait());
        lines
            .into_iter()
            .fold(status, |words, line| words + "\n" + &line)
    }

    /// Reads up to a line that begins with `start`. Returns its remainder.
    pub fn line_after(&mut self, start: &str) -> String {
        loop {
            if let Some(rest) = self.line().strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// The remaining lines, after the worker has ended or was killed.
    pub fn rest(&mut self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Kills the worker with SIGKILL and waits until it is gone.
    pub fn kill9(&mut self) {
        self.child.kill();
    }

    /// Freezes the worker with SIGSTOP, and returns once it is stopped.
    pub fn pause(&mut self) {
        self.child.pause().expect("a running worker can be paused");
    }

    /// Thaws the worker with SIGCONT.
    pub fn resume(&mut self) {
        self.child.resume().expect("a paused worker can be resumed");
    }

    /// Closes the worker's stdin and waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.close();
        let (child, name) = (&mut self.child, &self.name);
        poll::until("a worker ends", || {
            let status = child.try_wait().expect("our child can be waited for");
            status.ok_or_else(|| format!("{name} runs"))
        })
    }
}
