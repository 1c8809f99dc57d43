//! A temporary directory that survives a failed test.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, thread};

use nix::sys::statvfs::statvfs;

/// If set, this variable keeps the directories of passed tests, too.
const KEEP: &str = "IDEM_TEST_KEEP";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file system in memory, and its required space for another server.
const MEMORY: &str = "/dev/shm";
const ROOM: u64 = 4 << 30;

/// A temporary directory, removed on drop unless the thread panics.
#[derive(Debug)]
pub struct TestDir {
    path: PathBuf,
}

impl TestDir {
    /// Creates a directory with this text in its name.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::below(&env::temp_dir(), name)
    }

    /// Creates a directory in memory, where there is a lot of it: the thousand files of a database take most of the time
    /// in which its server starts and is removed.
    pub(crate) fn in_memory(name: &str) -> io::Result<Self> {
        if has_room(Path::new(MEMORY)) {
            Self::below(Path::new(MEMORY), name)
        } else {
            Self::new(name)
        }
    }

    fn below(parent: &Path, name: &str) -> io::Result<Self> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("idem-{name}-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left behind by an earlier process with our pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, when a watchdog may remove it.
    pub(crate) fn disposable(&self) -> Option<&Path> {
        env::var_os(KEEP).is_none().then_some(&*self.path)
    }
}

/// Whether this is a file system, and has room for a server.
#[allow(
    clippy::unnecessary_cast,
    reason = "the numbers are not of this width on every system"
)]
fn has_room(dir: &Path) -> bool {
    statvfs(dir)
        .is_ok_and(|there| there.blocks_available() as u64 * there.fragment_size() as u64 >= ROOM)
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if thread::panicking() || env::var_os(KEEP).is_some() {
            eprintln!("kept: {}", self.path.display());
        } else {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}
