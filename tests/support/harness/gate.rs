//! Standard error as a gate for a process.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Lines};
use std::process::Stdio;

/// Lines of a process that stops before each unread line.
pub type GatedLines = Lines<BufReader<File>>;

/// Standard error for a process, and its lines.
///
/// On Linux the process stops at each line until the one before has been read, so it cannot end with lines unread.
pub fn gated_lines() -> io::Result<(GatedLines, Stdio)> {
    let (reader, writer) = pipe()?;
    Ok((BufReader::new(File::from(reader)).lines(), writer.into()))
}

/// A pipe with room for one write.
#[cfg(target_os = "linux")]
fn pipe() -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    let (reader, writer) = nix::unistd::pipe2(OFlag::O_DIRECT | OFlag::O_CLOEXEC)?;
    // Rounded up to a page.
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1))?;
    Ok((reader, writer))
}

#[cfg(not(target_os = "linux"))]
fn pipe() -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}
