//! The journal: what each process did, outside the store under test.
//!
//! One file a process, one write(2) a line, so that `kill -9` loses nothing that was written: it is in the
//! page cache. Times are microseconds of `CLOCK_MONOTONIC`. A line is
//!
//! ```text
//! <time> call <id> <key> <payload>              a call begins
//! <time> start <id> <key> <attempt> <digest>    its body starts
//! <time> fence <id> <key> <fence>               the fencing number of the body
//! <time> end <id> <key> <how> [<answer>]        the body ends: ok, declined, down, unknown, panic, gone
//! <time> told <id> <key> <what> [<answer>]      the caller gets: as above, or the kind of an error
//! <time> hook <id> <key> landed|not|unknown     the reconcile hook has found out
//! <time> reset <id> <key> begin|done|failed     an operator resets the key
//! <time> resolve <id> <key> begin|done|failed <answer>
//! <time> recorded 0 <key> <fence>:<end> …       the record's attempts
//! <time> row 0 <key> <answer>                   a row of the ledger
//! <time> event 0 <digest> <words>               an event of the engine's observer
//! <time> stopped 0 - <words>                    the process ends in order
//! ```

use std::fmt::Arguments;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use nix::time::{ClockId, clock_gettime};

/// The start of the name of a process's file.
const NAME: &str = "worker-";

/// Microseconds of `CLOCK_MONOTONIC`.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has a clock");
    let micros = time.tv_sec() * 1_000_000 + time.tv_nsec() / 1_000;
    micros.unsigned_abs()
}

#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Appends to the journal of this process.
    pub fn open(dir: &Path, process: u32) -> io::Result<Self> {
        let path = dir.join(format!("{NAME}{process}.log"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(file))
    }

    /// Writes a line with the time of now.
    pub fn write(&self, words: Arguments<'_>) {
        let line = format!("{} {words}\n", now());
        let written = (&self.0).write_all(line.as_bytes());
        written.expect("the disk has room for the journal");
    }
}

/// A line of a journal, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub time: u64,
    pub word: &'a str,
    pub call: u32,
    pub key: &'a str,
    /// What follows.
    pub rest: &'a str,
}

impl<'a> Entry<'a> {
    /// `None` for a line that is none.
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        Some(Self {
            time: words.next()?.parse().ok()?,
            word: words.next()?,
            call: words.next()?.parse().ok()?,
            key: words.next()?,
            rest: words.next().unwrap_or_default(),
        })
    }

    /// The word after the first one of the rest.
    pub fn second(&self) -> &'a str {
        self.rest.split_once(' ').map_or("", |(_, second)| second)
    }

    /// The first word of the rest.
    pub fn first(&self) -> &'a str {
        self.rest.split(' ').next().unwrap_or_default()
    }
}

/// Reads the journals of a directory, line by line, with process numbers. A killed process's incomplete last line is
/// skipped.
pub fn read(dir: &Path, mut each: impl FnMut(u32, &str)) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(NAME)?.parse().ok());
        let Some(process) = process else { continue };
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            if let Some(whole) = line.strip_suffix('\n') {
                each(process, whole);
            }
            line.clear();
        }
    }
    Ok(())
}
