//! Child processes of a server: Postgres has one for each connection.
//!
//! A signal to the group of the server does not reach them, as each is a group of its own. The children
//! of a browser stay in its group.

use std::path::Path;
use std::{fmt, fs, io};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::poll;

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// First letter of the state in `ps`: `T` is stopped, `Z` has ended.
    state: char,
}

impl Process {
    /// Parses a line of `/proc/<pid>/stat`. The name of the program may contain any character.
    fn from_stat(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let mut words = rest.split(' ');
        let state = words.next()?.chars().next()?;
        Some(Self {
            pid: pid.parse().ok()?,
            parent: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            state,
        })
    }
}

/// Kills the children of a stopped process, and waits for their ends.
pub(crate) fn kill_children(parent: u32) -> io::Result<()> {
    signal_children(parent, Signal::SIGKILL, "Z")
}

/// Stops the children of a stopped process, and waits for that.
pub(crate) fn pause_children(parent: u32) -> io::Result<()> {
    signal_children(parent, Signal::SIGSTOP, "TZ")
}

pub(crate) fn resume_children(parent: u32) -> io::Result<()> {
    signal_children(parent, Signal::SIGCONT, "")
}

/// Kills a process and its group, and returns once all have ended.
///
/// It must not have been waited for: the group could be that of another process.
pub(crate) fn kill_group(leader: u32) -> io::Result<()> {
    let leader = i32::try_from(leader).map_err(io::Error::other)?;
    killpg(Pid::from_raw(leader), Signal::SIGKILL)?;
    poll::until("a group ends after SIGKILL", || {
        let mut all = all()?;
        all.retain(|process| process.group == leader && process.state != 'Z');
        no_more(&all)
    });
    Ok(())
}

/// Waits until no process has an argument in this directory.
pub(crate) fn wait_for_those_of(dir: &Path) {
    let dir = dir.to_string_lossy();
    poll::until("the other processes of a server end", || {
        let mut lines = command_lines()?;
        lines.retain(|line| line.contains(&*dir));
        no_more(&lines)
    });
}

fn no_more<T: fmt::Debug>(left: &[T]) -> io::Result<()> {
    let left = left.first().map(|left| format!("{left:?} is left"));
    left.map_or(Ok(()), |left| Err(io::Error::other(left)))
}

/// Command lines of all processes that have not ended.
fn command_lines() -> io::Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Ok(line) = fs::read(entry?.path().join("cmdline")) {
            all.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    Ok(all)
}

/// The parent must be stopped: otherwise it could start children meanwhile, or reap one whose pid
/// is then reused by another process.
fn signal_children(parent: u32, signal: Signal, until: &str) -> io::Result<()> {
    let parent = i32::try_from(parent).map_err(io::Error::other)?;
    for child in children(parent)? {
        match kill(Pid::from_raw(child.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if !until.is_empty() {
        poll::until("a signal has its effect on each child", || {
            let mut children = children(parent)?;
            children.retain(|child| !until.contains(child.state));
            no_more(&children)
        });
    }
    Ok(())
}

fn children(parent: i32) -> io::Result<Vec<Process>> {
    let mut all = all()?;
    all.retain(|process| process.parent == parent);
    Ok(all)
}

fn all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // A process may end meanwhile, and most entries are no processes.
        if let Ok(stat) = fs::read(entry?.path().join("stat")) {
            all.extend(Process::from_stat(&String::from_utf8_lossy(&stat)));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_is_skipped() {
        let process = Process::from_stat("12 (a) S 1) T 34 56 12 0 -1").unwrap();
        let (pid, parent) = (process.pid, process.parent);
        assert_eq!(
            (pid, parent, process.group, process.state),
            (12, 34, 56, 'T')
        );
    }
}
