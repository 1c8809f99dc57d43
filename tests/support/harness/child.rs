//! A child process that cannot outlive this one.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::FakeClock;

/// Reads a pid, then waits for the end of its input. It comes when the process at the other end of the pipe dies, by
/// any cause. Then it runs the will, if there is one, kills the child, and removes its directory.
const WATCHDOG: &str = r#"
read -r pid || exit 0
read -r _
if [ -n "$2" ]; then kill -STOP "$pid"; eval "$2"; fi
kill -9 "$pid"
if [ -n "$1" ]; then rm -rf -- "$1"; fi
"#;

/// Becomes the real program once the watchdog has received the pid. `read` takes single bytes from a
/// pipe, so the rest of the input is the program's.
const GATE: &str = r#"read -r _ && exec "$@""#;

/// A child process, killed on drop, or when this process dies.
///
/// `PR_SET_PDEATHSIG` would be shorter, but it needs `unsafe`, is Linux only, and fires when the
/// *thread* that started the child ends, which kills servers shared between tests.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Child,
    watchdog: Child,
    stdin: Option<ChildStdin>,
    paused: bool,
    status: Option<ExitStatus>,
    lost: bool,
}

impl Guarded {
    /// Runs `program` with `args`. `setup` may add an environment and set stdout and stderr.
    ///
    /// When this process dies without dropping the value, the watchdog stops the child, runs `will`, a shell script for
    /// a child with processes of its own (`$pid` is the child, `$1` is `dir`), kills the child, and removes `dir`.
    pub(crate) fn spawn(
        program: &Path,
        args: &[OsString],
        dir: Option<&Path>,
        will: &str,
        setup: impl FnOnce(&mut Command) -> &mut Command,
    ) -> io::Result<Self> {
        // Both get a process group of their own: Ctrl-C reaches this process only, and the
        // watchdog outlives it.
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(dir.unwrap_or(Path::new("")))
            .arg(will)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut command = Command::new("sh");
        command
            .args(["-c", GATE, "gate"])
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .process_group(0);
        let mut child = match setup(&mut command).spawn() {
            Ok(child) => child,
            Err(error) => {
                end(&mut watchdog);
                return Err(error);
            }
        };
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let armed = match watchdog.stdin.as_mut() {
            Some(pipe) => writeln!(pipe, "{}", child.id()),
            None => Err(io::Error::other("the watchdog has no stdin")),
        };
        if let Err(error) = armed.and_then(|()| stdin.write_all(b"go\n")) {
            end(&mut child);
            end(&mut watchdog);
            return Err(error);
        }
        Ok(Self {
            child,
            watchdog,
            stdin: Some(stdin),
            paused: false,
            status: None,
            lost: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.stdin.as_mut()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn take_stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child.stderr.take()
    }

    /// The exit status, if the child has ended.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && !self.lost {
            self.status = self.child.try_wait()?;
            if self.status.is_some() {
                end(&mut self.watchdog);
            }
        }
        Ok(self.status)
    }

    /// Whether the child has ended. Its pid may then be another process's.
    pub(crate) fn was_waited_for(&self) -> bool {
        self.status.is_some() || self.lost
    }

    /// Kills the child with SIGKILL and waits for it. A paused child dies too.
    pub(crate) fn kill(&mut self) {
        if self.was_waited_for() {
            return;
        }
        // The pid stays taken until `wait`, so the watchdog must be gone before that.
        drop(self.child.kill());
        end(&mut self.watchdog);
        self.status = self.child.wait().ok();
        self.lost = self.status.is_none();
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.try_wait()?.is_some() || self.lost {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(kill(self.nix_pid()?, signal)?)
    }

    /// Stops the child, and returns once it is stopped.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        if self.paused {
            return Ok(());
        }
        self.signal(Signal::SIGSTOP)?;
        match waitpid(self.nix_pid()?, Some(WaitPidFlag::WUNTRACED))? {
            WaitStatus::Stopped(..) => {
                self.paused = true;
                Ok(())
            }
            other => {
                self.lost = true;
                end(&mut self.watchdog);
                Err(io::Error::other(format!("it ended instead: {other:?}")))
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Lets a paused child run again.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.paused = false;
        self.signal(Signal::SIGCONT)
    }

    fn nix_pid(&self) -> io::Result<Pid> {
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        Ok(Pid::from_raw(pid))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
        FakeClock::tidy(self.pid());
    }
}

/// Kills a process and waits for it; a process that has already ended is not an error.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}
