//! The clock of a running server, set by a test.

use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, io};

use crate::StartError;
use crate::dir::TestDir;

/// Variable that names another libfaketime.
const LIBRARY: &str = "IDEM_FAKETIME_LIB";

/// The library for programs with threads, below a system's directories of libraries.
const PLACE: &str = "faketime/libfaketimeMT.so.1";

/// The calendar clock of the processes that are started with it; clones are the same clock.
///
/// It is that of the machine, off by some seconds, by libfaketime: a process sees a step of its calendar
/// clock as of any other, and its monotonic clock goes on as before. Linux only. A server whose
/// allocator reads the clock (the jemalloc of Debian's Redis) does not start with it; each
/// [`Edition`](crate::Edition) does.
#[derive(Debug, Clone)]
pub struct FakeClock(Arc<TestDir>);

impl FakeClock {
    /// A clock in agreement with the machine's.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let dir = TestDir::new("clock").expect("there is room for a file");
        let clock = Self(Arc::new(dir));
        clock.set(0);
        clock
    }

    /// Steps the clock: from now on it is this many seconds ahead of the machine's, or behind it.
    pub fn set(&self, seconds: i64) {
        let (file, next) = (self.file(), self.0.path().join("next"));
        // Replaced atomically, because processes read it whenever they read the time.
        let written = fs::write(&next, format!("{seconds:+}\n"));
        written
            .and_then(|()| fs::rename(&next, &file))
            .expect("the file of the clock can be written");
    }

    /// Environment of a process with this clock, if any.
    pub(crate) fn environment(clock: Option<&Self>) -> io::Result<Vec<(&'static str, PathBuf)>> {
        let Some(clock) = clock else {
            return Ok(Vec::new());
        };
        let library = library(env::var_os(LIBRARY).map(PathBuf::from));
        let library = library.map_err(io::Error::other)?;
        let on = || PathBuf::from("1");
        Ok(vec![
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", clock.file()),
            ("FAKETIME_NO_CACHE", on()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", on()),
        ])
    }

    /// Removes a killed process's shared memory and semaphore of such a clock.
    pub(crate) fn tidy(pid: u32) {
        for name in ["faketime_shm", "sem.faketime_sem"] {
            // Most processes have none.
            drop(fs::remove_file(format!("/dev/shm/{name}_{pid}")));
        }
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("offset")
    }
}

fn library(named: Option<PathBuf>) -> Result<PathBuf, StartError> {
    if let Some(path) = named {
        let missing = || StartError::new(format!("{LIBRARY} is no file: `{}`", path.display()));
        return path.is_file().then_some(path.clone()).ok_or_else(missing);
    }
    let mut places = directories().map(|dir| dir.join(PLACE));
    let found = places.find(|path| path.is_file());
    found.ok_or_else(|| {
        StartError::new(format!(
            "no libfaketime; install it (Debian, Ubuntu: `apt-get install faketime`, Fedora: `dnf install \
             libfaketime`), or set {LIBRARY} to the path of a libfaketimeMT.so.1"
        ))
    })
}

/// Library directories of different systems; Debian has one for each architecture.
fn directories() -> impl Iterator<Item = PathBuf> {
    let of_each = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let of_each = of_each.map(|entry| entry.path());
    ["/usr/lib64", "/usr/lib"]
        .map(PathBuf::from)
        .into_iter()
        .chain(of_each)
}
